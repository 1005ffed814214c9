"""Tolerances: the one that follows from the arithmetic, and what those that people pick accept and refuse."""
