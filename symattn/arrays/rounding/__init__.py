"""The parts of the kind ``rounded``: bounds on roundings, common errors, and the operations."""
