"""Whole layers of running models: each part around attention is checked against the promise of the configuration."""
