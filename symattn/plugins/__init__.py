"""Plugins of other programs: pytest and Sphinx."""
