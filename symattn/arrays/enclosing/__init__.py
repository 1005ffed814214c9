"""The parts of ``enclosure``: bounds on rounding, elementwise operations, sums and products, functions."""
