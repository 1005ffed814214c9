"""What the kind ``rounded`` is made of: bounds on roundings, errors in common, and the operations."""
