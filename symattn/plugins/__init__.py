"""Where other programs find symattn: pytest."""
