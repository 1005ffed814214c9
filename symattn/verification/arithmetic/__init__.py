"""Which arithmetic a function in half precision has, by its own bits: contracts, their replays, and what agrees."""
