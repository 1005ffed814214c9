"""The parts of the kind ``rounded``: bounds on roundings, errors in common, and the operations."""
