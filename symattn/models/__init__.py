"""Existing models: their configurations, audits of their calls, and comparisons of their ways to generate."""
