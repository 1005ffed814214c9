"""Models that exist: their configurations, audits of their calls, and comparisons of their generation."""
