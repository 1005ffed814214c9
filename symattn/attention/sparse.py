"""Weights that can be exactly 0: projections of the scores to the simplex of weights."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.softmax import nonempty, row_max


def sparsemax(s: Array, fully_masked: str = "nan") -> Array:
    """The weights nearest to the scores: argmin ‖p − s‖² over p ≥ 0 with Σ p = 1, p_j = max(s_j − τ, 0).

    τ = (Σ_{j ≤ k} z_j − 1) / k for the scores z in falling order, k the last place with 1 + k z_k > Σ_{j ≤ k} z_j.
    A forbidden score gives 0. Shapes: (…, n_k) → (…, n_k).
    Source: Martins, Astudillo, From Softmax to Sparsemax (2016), algorithm 1.
    """
    xp = namespace_of(s)
    s = s - row_max(s)  # the same weights, and sums of scores that do not cancel
    z, place = _falling(s)
    kept = 1 + place * z > xp.cumulative_sum(z, axis=-1)
    number = nonempty(_count(kept, s), fully_masked)
    tau = (xp.sum(xp.where(kept, z, 0), axis=-1, keepdims=True) - 1) / number
    return xp.maximum(s - tau, 0)


def entmax15(s: Array, fully_masked: str = "nan") -> Array:
    """1.5-entmax: p_j = max(s_j/2 − τ, 0)² with Σ p = 1, between softmax and sparsemax.

    For z = s/2 in falling order τ = μ − √((1 − Σ_{j ≤ k} (z_j − μ)²) / k), μ the mean of the first k, and k the last
    place with Σ_{j ≤ k} (z_j − z_k)² < 1: there the weights for the threshold z_k do not yet sum to 1.
    A forbidden score gives 0. One root is taken in each row. Shapes: (…, n_k) → (…, n_k).
    Source: Peters, Niculae, Martins, Sparse Sequence-to-Sequence Models (2019), algorithm 2.
    """
    xp = namespace_of(s)
    s = (s - row_max(s)) / 2
    z, place = _falling(s)
    near = z > -1  # τ is −1 or more, since the largest z is 0 and has a weight of at most 1
    z = xp.where(near, z, 0)
    beyond = xp.cumulative_sum(z * z, axis=-1) - 2 * z * xp.cumulative_sum(z, axis=-1) + place * z * z
    kept = near & (beyond < 1)
    number = nonempty(_count(kept, s), fully_masked)
    mean = xp.sum(xp.where(kept, z, 0), axis=-1, keepdims=True) / number
    spread = xp.sum(xp.where(kept, (z - mean) * (z - mean), 0), axis=-1, keepdims=True)
    p = xp.maximum(s - mean + xp.sqrt((1 - spread) / number), 0)
    return p * p


def _falling(s: Array) -> tuple[Any, Any]:
    """The scores in falling order, forbidden ones last, and their places 1, 2, … as numbers."""
    xp = namespace_of(s)
    return xp.flip(xp.sort(s, axis=-1), axis=-1), xp.astype(xp.arange(1, s.shape[-1] + 1), s.dtype)


def _count(kept: Array, s: Array) -> Array:
    xp = namespace_of(s)
    return xp.sum(xp.astype(kept, s.dtype), axis=-1, keepdims=True)
