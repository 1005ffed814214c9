"""Repairs: local edits of a wrong function's own source after which it computes the definition."""
