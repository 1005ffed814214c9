"""Scores: how much each query has to do with each key."""

from __future__ import annotations

from typing import Any

from symattn.arrays.namespace import namespace_of


def dot_scores(q: Any, k: Any) -> Any:
    """S = Q Kᵀ, s_ij = Σ_l q_il k_jl.

    Shapes: q (…, n_q, d_k), k (…, n_k, d_k) → (…, n_q, n_k).
    Source: Vaswani et al., Attention Is All You Need (2017), §3.2.1.
    """
    return q @ k.mT


def scale_by_root(s: Any, q: Any) -> Any:
    """S / √d_k, d_k the width of the queries. Source: Vaswani et al. (2017), equation 1."""
    xp = namespace_of(s)
    return s / xp.sqrt(xp.asarray(q.shape[-1], dtype=q.dtype))


def scale_by(s: Any, factor: Any) -> Any:
    """c S for a given number c."""
    return s * namespace_of(s).asarray(factor, dtype=s.dtype)
