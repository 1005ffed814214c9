"""Scores of queries against keys, scaling and capping of scores, and weighted sums of values."""

from __future__ import annotations

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.norms import unit
from symattn.document.errors import InputError


def dot_scores(q: Array, k: Array) -> Array:
    """S = Q Kᵀ, s_ij = Σ_l q_il k_jl.

    Shapes: q (…, n_q, d_k), k (…, n_k, d_k) → (…, n_q, n_k).
    Source: Vaswani et al., Attention Is All You Need (2017), §3.2.1.
    """
    return q @ k.mT


def weighted_values(a: Array, v: Array) -> Array:
    """O = A V, o_i = Σ_j a_ij v_j. Shapes: a (…, n_q, n_k), v (…, n_k, d_v) → (…, n_q, d_v)."""
    return a @ v


def general_scores(q: Array, k: Array, w: Array) -> Array:
    """S = Q W Kᵀ, s_ij = q_i · W k_j: queries and keys may differ in width.

    Shapes: q (…, n_q, d_q), k (…, n_k, d_k), w (d_q, d_k), or (h, d_q, d_k), one for each head → (…, n_q, n_k).
    Source: Luong, Pham, Manning, Effective Approaches to Attention-based Neural Machine Translation (2015), §3.1,
    "general".
    """
    return dot_scores(q @ w, k)


def cosine_scores(q: Array, k: Array) -> Array:
    """s_ij = cos(q_i, k_j) = q_i · k_j / (‖q_i‖ ‖k_j‖); undefined for a vector of zeros.

    Shapes: q (…, n_q, d), k (…, n_k, d) → (…, n_q, n_k). Source: Liu et al., Swin Transformer V2 (2022), equation 2,
    where τ is a scale; Henry et al., Query-Key Normalization for Transformers (2020), §3.
    """
    return dot_scores(unit(q), unit(k))


def truncate(x: Array, width: int) -> Array:
    """Keep the first ``width`` columns of queries or keys, the only ones that scores then depend on.

    Shapes: (…, n, d) → (…, n, width). Raises InputError if there are fewer columns.
    Source: Singhania et al., Loki: Low-rank Keys for Efficient Sparse Attention (2024), of vectors in the basis of
    their principal components.
    """
    if width > x.shape[-1]:
        raise InputError(f"truncate: {width} columns of vectors that have {x.shape[-1]}")
    return x[..., :width]


def scale_by_root(s: Array, q: Array, terms: int = 1) -> Array:
    """S / √d_k, d_k the width of the queries; S / √(t d_k) if scores are sums of t products of queries and keys.

    Source: Vaswani et al. (2017), equation 1; the terms: He et al., DeBERTa (2021), equation 4.
    """
    xp = namespace_of(s)
    # The width becomes an array first, so that exact kinds take an exact root of it.
    return s / xp.sqrt(xp.asarray(q.shape[-1] * terms, dtype=q.dtype))


def scale_by_width(s: Array, q: Array) -> Array:
    """S / d_k, d_k the width of the queries. Shapes: s (…, n_q, n_k), q (…, n_q, d_k).

    Source: Yang et al., Tensor Programs V: Tuning Large Neural Networks via Zero-Shot Hyperparameter Transfer (2022),
    definition 4.1.
    """
    return s / namespace_of(s).asarray(q.shape[-1], dtype=q.dtype)


def scale_by(s: Array, factor: object) -> Array:
    """c S for a number c."""
    return s * namespace_of(s).asarray(factor, dtype=s.dtype)


def per_head(t: Array) -> Array:
    """Add axes to one number per head, so that it broadcasts to scores: (…, h) → (…, h, 1, 1)."""
    return t[..., :, None, None]


def scale_by_heads(s: Array, t: Array) -> Array:
    """t_h S_h, one factor for each head. Shapes: s (…, h, n_q, n_k), t (h,).

    Source: Liu et al., Swin Transformer V2 (2022), §3.2, where t = 1/τ is learned for each head.
    """
    return s * per_head(t)


def additive_scores(q: Array, k: Array, w: Array, u: Array, v: Array) -> Array:
    """s_ij = v · tanh(W q_i + U k_j).

    Shapes: q (…, n_q, d_q), k (…, n_k, d_k), w (d_q, l), u (d_k, l), v (l,) → (…, n_q, n_k); w, u and v may
    have an axis of heads in front.
    Source: Bahdanau, Cho, Bengio, Neural Machine Translation by Jointly Learning to Align and Translate (2015), A.1.2.
    """
    xp = namespace_of(q)
    return xp.sum(
        v[..., None, None, :] * xp.tanh((q @ w)[..., :, None, :] + (k @ u)[..., None, :, :]),
        axis=-1,
    )


def distance_scores(q: Array, k: Array) -> Array:
    """s_ij = −‖q_i − k_j‖² / 2. Shapes: q (…, n_q, d), k (…, n_k, d) → (…, n_q, n_k).

    Source: Tsai et al., Transformer Dissection (2019), with its Gaussian kernels.
    """
    xp = namespace_of(q)
    # ‖q‖² − 2 q·k + ‖k‖² would cancel in floats where q and k are close.
    gap = q[..., :, None, :] - k[..., None, :, :]
    return -xp.sum(gap * gap, axis=-1) / 2


def softcap(s: Array, cap: object) -> Array:
    """c tanh(s / c): scores between −c and c. Applied before masks. Source: Gemma Team, Gemma 2 (2024), §2."""
    xp = namespace_of(s)
    c = xp.asarray(cap, dtype=s.dtype)
    return c * xp.tanh(s / c)
