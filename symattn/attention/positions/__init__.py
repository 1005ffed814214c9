"""Where tokens stand: rotary embeddings, linear biases, buckets of distances, relative terms."""
