"""Attention: each step once, as ordinary array code, and the specification that puts them together."""
