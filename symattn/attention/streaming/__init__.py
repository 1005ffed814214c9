"""Attention in tiles and with caches: states that merge to the result for all keys."""
