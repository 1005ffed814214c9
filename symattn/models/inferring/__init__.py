"""The attention of a model type, inferred from one run of a tiny model of it."""
