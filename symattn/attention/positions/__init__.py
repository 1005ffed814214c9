"""Positions of tokens: rotary embeddings, linear biases, buckets of distances, relative terms."""
