"""The way back through scores and products: from the gradient by them to those by queries, keys and parameters."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.norms import unit
from symattn.attention.sizes import same


def summed_like(g: Array, x: Array) -> Array:
    """The gradient by an array that was broadcast: g summed over the axes that x lacks, or has with the length 1."""
    xp, extra = namespace_of(g), g.ndim - x.ndim
    wide = [extra + k for k, n in enumerate(x.shape) if same(n, 1) and not same(g.shape[extra + k], 1)]
    g = xp.sum(g, axis=tuple(wide), keepdims=True) if wide else g
    return xp.sum(g, axis=tuple(range(extra))) if extra else g


def product_gradients(a: Array, b: Array, g: Array) -> tuple[Any, Any]:
    """(dA, dB) of A B: G Bᵀ and Aᵀ G, each summed over the axes that its matrix was broadcast along.

    Shapes: a (…, n, k), b (…, k, m), g (…, n, m).
    """
    return summed_like(g @ b.mT, a), summed_like(a.mT @ g, b)


def project_gradients(x: Array, w: Array, g: Array) -> tuple[Any, Any, Any]:
    """(dX, dW, db) = (G Wᵀ, Xᵀ G, Σ G) of X W + b, dW and db summed over batches and tokens.

    Shapes: x (…, n, d_model), w (d_model, d), g (…, n, d).
    """
    return g @ w.mT, summed_like(x.mT @ g, w), namespace_of(g).sum(g, axis=tuple(range(g.ndim - 1)))


def unit_gradient(x: Array, g: Array) -> Array:
    """dX = (G − u (u · G)) / ‖x‖ of u = x / ‖x‖: what of G is at right angles to x. Shapes: (…, d)."""
    xp = namespace_of(x)
    u = unit(x)
    across = g - u * xp.sum(u * g, axis=-1, keepdims=True)
    return across / xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))


def dot_gradients(q: Array, k: Array, ds: Array) -> tuple[Any, Any]:
    """(dQ, dK) = (dS K, dSᵀ Q) of S = Q Kᵀ; the scale is in dS. Shapes: q (…, n_q, d), k (…, n_k, d), ds (…, n_q, n_k).

    Source: Dao et al., FlashAttention (2022), appendix B.2.
    """
    return summed_like(ds @ k, q), summed_like(ds.mT @ q, k)


def general_gradients(q: Array, k: Array, w: Array, ds: Array) -> tuple[Any, Any, Any]:
    """(dQ, dK, dW) = (dS K Wᵀ, dSᵀ Q W, Qᵀ dS K) of S = Q W Kᵀ, dW summed over batches (and heads that share W)."""
    dh, dk = dot_gradients(q @ w, k, ds)
    dq, dw = product_gradients(q, w, dh)
    return dq, dk, dw


def additive_gradients(q: Array, k: Array, w: Array, u: Array, v: Array, ds: Array) -> tuple[Any, Any, Any, Any, Any]:
    """(dQ, dK, dW, dU, dv) of s_ij = v · h_ij, h_ij = tanh(W q_i + U k_j): with e_ij = ds_ij v ⊙ (1 − h_ij²)

    dv = Σ_ij ds_ij h_ij, dQ and dW from Σ_j e_ij, dK and dU from Σ_i e_ij. Shapes: as ``additive_scores``.
    Source: the chain rule, as in Bahdanau, Cho, Bengio (2015), A.1.2.
    """
    xp = namespace_of(q)
    h = xp.tanh((q @ w)[..., :, None, :] + (k @ u)[..., None, :, :])
    dv = xp.sum(ds[..., None] * h, axis=(-3, -2))
    e = ds[..., None] * v[..., None, None, :] * (1 - h * h)
    dq, dw = product_gradients(q, w, xp.sum(e, axis=-2))
    dk, du = product_gradients(k, u, xp.sum(e, axis=-3))
    return dq, dk, dw, du, summed_like(dv, v)


def cosine_gradients(q: Array, k: Array, ds: Array) -> tuple[Any, Any]:
    """(dQ, dK) of cosines: through the dot products of vectors of length 1. Shapes: as ``dot_gradients``."""
    dq, dk = dot_gradients(unit(q), unit(k), ds)
    return unit_gradient(q, dq), unit_gradient(k, dk)


def distance_gradients(q: Array, k: Array, ds: Array) -> tuple[Any, Any]:
    """(dQ, dK) of s_ij = −‖q_i − k_j‖²/2: dq_i = Σ_j ds_ij (k_j − q_i), dk_j = Σ_i ds_ij (q_i − k_j)."""
    xp = namespace_of(q)
    dq = ds @ k - xp.sum(ds, axis=-1)[..., None] * q
    dk = ds.mT @ q - xp.sum(ds, axis=-2)[..., None] * k
    return summed_like(dq, q), summed_like(dk, k)


def softcap_gradient(y: Array, cap: object, g: Array) -> Array:
    """dS = dY ⊙ (1 − (y/c)²), from the capped scores y = c tanh(s/c). Source: Gemma Team, Gemma 2 (2024), §2."""
    t = y / namespace_of(y).asarray(cap, dtype=y.dtype)
    return g * (1 - t * t)
