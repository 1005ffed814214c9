"""Attention as people write it, right and wrong, to be compared; a file of its own, which tests also write."""

from typing import Any

import numpy as np

Array = Any


def softmax(scores: Array) -> Array:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def plain(q: Array, k: Array, v: Array) -> Array:
    """As the definition says it."""
    return softmax(q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v


def late(q: Array, k: Array, v: Array) -> Array:
    """Scales the queries, and divides by the sums at the end."""
    scores = (q / np.sqrt(q.shape[-1]).astype(q.dtype)) @ k.T
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ v / weights.sum(-1, keepdims=True)


def of_values(q: Array, k: Array, v: Array) -> Array:
    """The mistake: the scale of the values' width."""
    return softmax(q @ k.T / np.sqrt(v.shape[-1]).astype(q.dtype)) @ v


def unscaled(q: Array, k: Array, v: Array) -> Array:
    """Another mistake: no scale."""
    return softmax(q @ k.T) @ v


def refusing(q: Array, k: Array, v: Array) -> Array:
    """Right, and raises for more queries than 3."""
    if len(q) > 3:
        raise ValueError("at most 3 queries")
    return plain(q, k, v)
