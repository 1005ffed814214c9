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


def additive_scores(q: Any, k: Any, w: Any, u: Any, v: Any) -> Any:
    """s_ij = v · tanh(W q_i + U k_j).

    Shapes: q (…, n_q, d_q), k (…, n_k, d_k), w (d_q, l), u (d_k, l), v (l,) → (…, n_q, n_k).
    Source: Bahdanau, Cho, Bengio, Neural Machine Translation by Jointly Learning to Align and Translate (2015), A.1.2.
    """
    xp = namespace_of(q)
    return xp.sum(v * xp.tanh((q @ w)[..., :, None, :] + (k @ u)[..., None, :, :]), axis=-1)


def distance_scores(q: Any, k: Any) -> Any:
    """s_ij = −‖q_i − k_j‖² / 2. Shapes: q (…, n_q, d), k (…, n_k, d) → (…, n_q, n_k).

    Source: Tsai et al., Transformer Dissection (2019), with its Gaussian kernels.
    """
    xp = namespace_of(q)
    gap = q[..., :, None, :] - k[..., None, :, :]
    return -xp.sum(gap * gap, axis=-1) / 2
