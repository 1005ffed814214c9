"""Dropout of weights, with the choice of what is dropped as an input."""

from __future__ import annotations

from fractions import Fraction

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.document.errors import InputError


def dropout(a: Array, keep: Array, rate: int | float | Fraction) -> Array:
    """A ⊙ B / (1 − r): weights that are not kept are 0, the others grow, so that A is the mean over B.

    The mean is over entries of B that are 1 with probability 1 − r; rows no longer sum to one. Raises InputError
    unless 0 ≤ r < 1. Shapes: a (…, n_q, n_k), keep booleans that broadcast to it, True for what is kept.
    Source: Srivastava et al., Dropout (2014), §10, which scales by 1/(1 − r) while training.
    """
    if not 0 <= rate < 1:
        raise InputError(f"dropout: the rate {rate} is not from 0 on and below 1")
    xp = namespace_of(a)
    return xp.where(keep, a, 0) / xp.asarray(1 - rate, dtype=a.dtype)
