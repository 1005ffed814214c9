"""Soft capping of scores."""

from __future__ import annotations

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of


def softcap(s: Array, cap: object) -> Array:
    """c tanh(s / c): scores between −c and c. Applied before masks. Source: Gemma Team, Gemma 2 (2024), §2."""
    xp = namespace_of(s)
    c = xp.asarray(cap, dtype=s.dtype)
    return c * xp.tanh(s / c)
