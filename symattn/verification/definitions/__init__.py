"""Verification of any definition: norms, positions, gradients, caches, linear attention, blocks."""
