"""Right programs that look unlike the definition. None of them may be accused, in any precision.

Each takes NumPy arrays of one dtype and returns that dtype; ``MAKES`` says which specification they compute.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from symattn import Attention

Array = Any


def _root(q: Array) -> Array:
    return np.sqrt(np.asarray(q.shape[-1], dtype=q.dtype))


def softmax(s: Array) -> Array:
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def plain(q: Array, k: Array, v: Array) -> Array:
    return softmax(q @ k.T / _root(q)) @ v


def with_einsum(q: Array, k: Array, v: Array) -> Array:
    return np.einsum("ij,jd->id", softmax(np.einsum("id,jd->ij", q, k) / _root(q)), v)


def with_wide_sums(q: Array, k: Array, v: Array) -> Array:
    s = q.astype(np.float64) @ k.astype(np.float64).T / np.sqrt(q.shape[-1])
    return (softmax(s) @ v.astype(np.float64)).astype(q.dtype)


def in_tiles(q: Array, k: Array, v: Array, width: int = 3) -> Array:
    """The online softmax: the result so far is rescaled whenever the maximum grows."""
    m = np.full((len(q), 1), -np.inf, dtype=q.dtype)
    total, out = np.zeros_like(m), np.zeros((len(q), v.shape[-1]), dtype=q.dtype)
    for j in range(0, len(k), width):
        s = q @ k[j : j + width].T / _root(q)
        grown = np.maximum(m, s.max(axis=-1, keepdims=True))
        e, shrink = np.exp(s - grown), np.exp(m - grown)
        total = total * shrink + e.sum(axis=-1, keepdims=True)
        out = out * shrink + e @ v[j : j + width]
        m = grown
    return out / total


def one_key_at_a_time(q: Array, k: Array, v: Array) -> Array:
    """The online softmax in reverse order, a tile for each key, normalised after each of them."""
    m = np.full((len(q), 1), -np.inf, dtype=q.dtype)
    total, out = np.zeros_like(m), np.zeros((len(q), v.shape[-1]), dtype=q.dtype)
    for j in reversed(range(len(k))):
        s = q @ k[j][:, None] / _root(q)
        grown = np.maximum(m, s)
        e, shrink = np.exp(s - grown), np.exp(m - grown) * total
        total = shrink + e
        out = (out * shrink + e * v[j]) / total
        m = grown
    return out


def scale_in_queries(q: Array, k: Array, v: Array) -> Array:
    return softmax((q / _root(q)) @ k.T) @ v


def scale_in_both(q: Array, k: Array, v: Array) -> Array:
    quarter = q.dtype.type(q.shape[-1] ** -0.25)
    return softmax((q * quarter) @ (k * quarter).T) @ v


def base_two(q: Array, k: Array, v: Array) -> Array:
    factor = q.dtype.type(np.log2(np.e) / np.sqrt(q.shape[-1]))
    s = q @ k.T * factor
    e = np.exp2(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v


def normalised_last(q: Array, k: Array, v: Array) -> Array:
    s = q @ k.T / _root(q)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return (e @ v) * (1 / e.sum(axis=-1, keepdims=True))


def split_and_merged(q: Array, k: Array, v: Array) -> Array:
    """Two halves of the keys, each normalised by itself, merged by their log-sum-exp."""
    half = len(k) // 2
    if not half:
        return plain(q, k, v)
    outs, sums = zip(*(_part(q, k[part], v[part]) for part in (slice(half), slice(half, None))), strict=True)
    together = np.logaddexp(*sums)
    return sum(np.exp(lse - together) * out for out, lse in zip(outs, sums, strict=True))


def _part(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    s = q @ k.T / _root(q)
    m = s.max(axis=-1, keepdims=True)
    lse = np.log(np.exp(s - m).sum(axis=-1, keepdims=True)) + m
    return np.exp(s - lse) @ v, lse


def in_loops(q: Array, k: Array, v: Array) -> Array:
    """Every product and every sum in the arrays' own arithmetic."""
    out = np.zeros((len(q), v.shape[-1]), dtype=q.dtype)
    for i in range(len(q)):
        s = np.array([sum(a * b for a, b in zip(q[i], row, strict=True)) for row in k], dtype=q.dtype) / _root(q)
        e = np.exp(s - s.max())
        total = q.dtype.type(0)
        for weight, row in zip(e, v, strict=True):
            total, out[i] = total + weight, out[i] + weight * row
        out[i] /= total
    return out


def keys_backwards(q: Array, k: Array, v: Array) -> Array:
    return plain(q, k[::-1], v[::-1])


def without_maximum(q: Array, k: Array, v: Array) -> Array:
    """Right on scores that are promised to be small."""
    e = np.exp(q @ k.T / _root(q))
    return e / e.sum(axis=-1, keepdims=True) @ v


def causal(q: Array, k: Array, v: Array) -> Array:
    open_ = np.tri(len(q), len(k), len(k) - len(q), dtype=bool)
    s = q @ k.T / _root(q)
    return softmax(np.where(open_, s, np.asarray(-np.inf, dtype=s.dtype))) @ v


def causal_by_large_number(q: Array, k: Array, v: Array) -> Array:
    closed = np.triu(np.ones((len(q), len(k)), dtype=q.dtype), 1 + len(k) - len(q))
    large = q.dtype.type(max(-1e9, np.finfo(q.dtype).min / 2))
    return softmax(q @ k.T / _root(q) + closed * large) @ v


def causal_row_by_row(q: Array, k: Array, v: Array) -> Array:
    o = len(k) - len(q)
    return np.concatenate([plain(q[i : i + 1], k[: i + o + 1], v[: i + o + 1]) for i in range(len(q))])


def masked(q: Array, k: Array, v: Array, mask: Array) -> Array:
    s = q @ k.T / _root(q)
    return softmax(np.where(mask, s, np.asarray(-np.inf, dtype=s.dtype))) @ v


def masked_then_renormalised(q: Array, k: Array, v: Array, mask: Array) -> Array:
    """Forbidden keys are taken out after exponentiating; the maximum is that of the allowed scores."""
    s = q @ k.T / _root(q)
    m = np.max(s, axis=-1, keepdims=True, initial=-np.inf, where=mask)
    e = np.exp(np.minimum(s - m, 0)) * mask
    return e / e.sum(axis=-1, keepdims=True) @ v


def heads_of_tokens(x: Array, w_q: Array, w_k: Array, w_v: Array, heads: int) -> Array:
    q, k, v = (np.stack(np.split(x @ w, heads, axis=-1)) for w in (w_q, w_k, w_v))
    out = softmax(q @ k.swapaxes(-1, -2) / _root(q)) @ v
    return out.transpose(1, 0, 2).reshape(len(x), -1)


def heads_in_a_loop(x: Array, w_q: Array, w_k: Array, w_v: Array, heads: int) -> Array:
    parts = [np.split(w, heads, axis=1) for w in (w_q, w_k, w_v)]
    return np.concatenate([plain(x @ a, x @ b, x @ c) for a, b, c in zip(*parts, strict=True)], axis=1)


def projections_joined(x: Array, y: Array, w_q: Array, w_k: Array, w_v: Array) -> Array:
    """W_Q W_Kᵀ formed first."""
    s = x @ (w_q @ w_k.T) @ y.T / _root(w_q)
    return softmax(s) @ (y @ w_v)


MAKES: dict[Callable[..., Array], Attention] = {
    **dict.fromkeys(
        (
            plain, with_einsum, with_wide_sums, in_tiles, one_key_at_a_time, scale_in_queries, scale_in_both, base_two,
            normalised_last, split_and_merged, in_loops, keys_backwards, projections_joined,
        ),
        Attention(),
    ),
    **dict.fromkeys((causal, causal_by_large_number, causal_row_by_row), Attention(causal=True)),
    **dict.fromkeys((masked, masked_then_renormalised), Attention(mask="boolean")),
    heads_of_tokens: Attention(heads=2),
    heads_in_a_loop: Attention(heads=3),
}  # fmt: skip
