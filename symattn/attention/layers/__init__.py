"""What stands around attention: feed-forward layers, blocks, whole Transformers, and their digits."""
