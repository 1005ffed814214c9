"""The backward pass as it is implemented, formula by formula; ``derivative`` differentiates the definitions."""
