"""Whole layers of running models: each part around attention held to what the configuration promises of it."""
