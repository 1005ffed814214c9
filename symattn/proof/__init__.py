"""Decide that an equality holds, and for which sizes."""
