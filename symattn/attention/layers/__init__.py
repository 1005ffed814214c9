"""Layers around attention: feed-forward layers, blocks, whole Transformers, and their digits."""
