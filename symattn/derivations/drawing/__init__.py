"""The pictures, one to a module."""
