"""Weights that can be exactly 0."""

from __future__ import annotations

from typing import Any

from symattn.arrays.namespace import namespace_of


def sparsemax(s: Any) -> Any:
    """The weights nearest to the scores: argmin ‖p − s‖² over p ≥ 0 with Σ p = 1, p_j = max(s_j − τ, 0).

    τ = (Σ_{j ≤ k} z_j − 1) / k for the scores z in falling order, k the last place with 1 + k z_k > Σ_{j ≤ k} z_j.
    Shapes: (…, n_k) → (…, n_k). Source: Martins, Astudillo, From Softmax to Sparsemax (2016), algorithm 1.
    """
    xp = namespace_of(s)
    z = -xp.sort(-s, axis=-1)
    sums = xp.cumulative_sum(z, axis=-1)
    place = xp.astype(xp.arange(1, s.shape[-1] + 1), s.dtype)
    kept = 1 + place * z > sums
    number = xp.sum(xp.astype(kept, s.dtype), axis=-1, keepdims=True)
    tau = (xp.sum(xp.where(kept, z, 0), axis=-1, keepdims=True) - 1) / number
    return xp.maximum(s - tau, 0)
