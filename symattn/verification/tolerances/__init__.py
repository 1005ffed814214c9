"""Tolerances: the one that follows from the arithmetic, and what commonly used ones accept and reject."""
