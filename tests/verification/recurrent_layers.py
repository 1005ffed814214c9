"""Recurrences as the layers of public models compute them, in NumPy: norms of queries and keys, then tokens or chunks.

Each step may be replaced. Arrays are (…, n, d), gates and β (…, n), or gates (…, n, d_k).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
Norm = Callable[[Array], Array]
EPS = 1e-6


def l2(x: Array, eps: float = EPS) -> Array:
    """The norm of fla and of Transformers, as a product with the reciprocal of the root."""
    return x * (1 / np.sqrt((x * x).sum(-1, keepdims=True) + np.asarray(eps, x.dtype)))


def rms(x: Array) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.asarray(EPS, x.dtype))


def of_tokens(x: Array) -> Array:
    return x / np.sqrt((x * x).sum(-2, keepdims=True) + np.asarray(EPS, x.dtype))


def by_tokens(
    q: Array, k: Array, v: Array, g: Array | None, beta: Array, q_norm: Norm = l2, k_norm: Norm = l2
) -> Array:
    """Token by token, with sums over the features in the place of products."""
    q, k = q_norm(q), k_norm(k)
    q = q * np.asarray(q.shape[-1] ** -0.5, q.dtype)
    state, rows = 0 * (k[..., 0, :, None] * v[..., 0, None, :]), []
    for t in range(k.shape[-2]):
        if g is not None:
            decay = np.exp(g[..., t, :]) if g.ndim == k.ndim else np.exp(g[..., t, None])
            state = state * decay[..., None]
        remembered = (state * k[..., t, :, None]).sum(-2)
        correction = (v[..., t, :] - remembered) * beta[..., t, None]
        state = state + k[..., t, :, None] * correction[..., None, :]
        rows.append((state * q[..., t, :, None]).sum(-2))
    return np.stack(rows, axis=-2).astype(v.dtype)


def by_chunks(q: Array, k: Array, v: Array, g: Array, beta: Array, size: int = 64) -> Array:
    """In chunks, one gate a token: W and U by the inverse of the triangular system."""
    q, k = l2(q), l2(k)
    q = q * np.asarray(q.shape[-1] ** -0.5, q.dtype)
    state, parts = 0 * (k[..., 0, :, None] * v[..., 0, None, :]), []
    for lo in range(0, q.shape[-2], size):
        some = slice(lo, lo + size)
        queries, keys, values = (x[..., some, :] for x in (q, k, v))
        sums, betas = np.cumsum(g[..., some], -1), beta[..., some, None]
        decays = np.tril(np.exp(np.tril(sums[..., :, None] - sums[..., None, :])))
        scaled, grown = keys * betas, np.exp(sums)[..., None]
        lower = np.tril(scaled @ keys.swapaxes(-1, -2) * decays, -1)
        inverse = np.linalg.inv(np.eye(lower.shape[-1], dtype=q.dtype) + lower)
        written = inverse @ (values * betas) - inverse @ (scaled * grown) @ state
        inner = queries @ keys.swapaxes(-1, -2) * decays
        parts.append(queries * grown @ state + inner @ written)
        kept = keys * np.exp(sums[..., -1:] - sums)[..., None]
        state = state * grown[..., -1:, :] + kept.swapaxes(-1, -2) @ written
    return np.concatenate(parts, -2).astype(v.dtype)
