"""The backward pass as it is implemented, formula by formula; ``derivative`` takes it from the definitions."""
