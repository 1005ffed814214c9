"""Masks: causal ones, given ones, windows, documents, padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn import Attention, Domain
from tests.faults.collection.entries import At, Family

Array = Any
FAMILY = Family("masking")
right, wrong = FAMILY.right, FAMILY.wrong
_CAUSAL = Attention(causal=True)
_TOP_LEFT = Attention(causal=True, alignment="top-left")
_BOOLEAN = Attention(mask="boolean")
_ADDITIVE = Attention(mask="additive")
_PADDED = Attention(padding=True)
_WINDOW = Attention(causal=True, window=3)
_DOCUMENTS = Attention(causal=True, documents=True)
_EMPTY_ROWS = Domain(fully_masked_rows=True)


def scores(q: Array, k: Array) -> Array:
    return q @ k.swapaxes(-1, -2) * q.dtype.type(q.shape[-1] ** -0.5)


def softmax(s: Array) -> Array:
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def last_keys(n_q: int, n_k: int, more: int = 0) -> Array:
    """Key j for query i iff j <= i + n_k - n_q + more."""
    return np.arange(n_k)[None, :] <= np.arange(n_q)[:, None] + (n_k - n_q + more)


@right("where and -inf", spec=_CAUSAL)
def causal(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    return softmax(np.where(last_keys(*s.shape), s, q.dtype.type(-np.inf))) @ v


@right("exponentials multiplied by the mask before they are summed", spec=_CAUSAL)
def causal_by_product(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    open_ = last_keys(*s.shape)
    m = np.where(open_, s, -np.inf).max(axis=-1, keepdims=True).astype(q.dtype)
    e = np.exp(np.minimum(s - m, 0)) * open_.astype(q.dtype)
    return e @ v / e.sum(axis=-1, keepdims=True)


@right("each query by itself, on the keys that it may see", spec=_CAUSAL)
def causal_row_by_row(q: Array, k: Array, v: Array) -> Array:
    late = len(k) - len(q)
    return np.concatenate([softmax(scores(q[i : i + 1], k[: i + late + 1])) @ v[: i + late + 1] for i in range(len(q))])


@right("tiles that lie behind the diagonal are skipped", spec=_CAUSAL, at=At(n_q=9, n_k=11))
def causal_tiles_skipped(q: Array, k: Array, v: Array) -> Array:
    late, width = len(k) - len(q), 4
    out = np.empty((len(q), v.shape[1]), q.dtype)
    for start in range(0, len(q), width):
        rows = slice(start, min(start + width, len(q)))
        end = rows.stop + late
        s = scores(q[rows], k[:end])
        allowed = np.arange(end) <= (np.arange(rows.start, rows.stop) + late)[:, None]
        out[rows] = softmax(np.where(allowed, s, q.dtype.type(-np.inf))) @ v[:end]
    return out


@right("the first query sees the first key alone, wherever they lie", spec=_TOP_LEFT)
def causal_top_left(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    return softmax(np.where(np.tri(len(q), len(k), dtype=bool), s, q.dtype.type(-np.inf))) @ v


@wrong(
    "mask",
    "the causal mask lets the next key in",
    "next key|off by one|one key too many",
    spec=_CAUSAL,
    shows="n_k > 1",
    near="causal",
)
def one_ahead(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    n_q, n_k = s.shape
    return softmax(np.where(np.tri(n_q, n_k, n_k - n_q + 1, dtype=bool), s, q.dtype.type(-np.inf))) @ v


@wrong(
    "mask",
    "strictly lower triangle: a token does not see itself",
    "own key|itself|off by one",
    spec=_CAUSAL,
    near="causal",
)
def not_itself(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    hidden = ~last_keys(len(q), len(k), -1)
    s = np.where(hidden, q.dtype.type(-1e9), s)
    return softmax(s) @ v


@wrong("mask", "the upper triangle is kept", "transposed|later keys|upper", spec=_CAUSAL, near="causal")
def upper_triangle(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    n_q, n_k = s.shape
    return softmax(np.where(np.triu(np.ones_like(s), n_k - n_q) > 0, s, q.dtype.type(-np.inf))) @ v


@wrong(
    "mask",
    "aligned at the top left",
    "corner|top-left|top left|alignment|aligned",
    spec=_CAUSAL,
    shows="n_q != n_k",
    near="causal",
)
def top_left(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    s[~np.tril(np.ones(s.shape, bool))] = -np.inf
    return softmax(s) @ v


@wrong(
    "mask",
    "the offset between queries and keys has the other sign",
    "n_q − n_k|other sign|wrong place",
    spec=_CAUSAL,
    shows="n_q != n_k",
    near="causal",
)
def offset_turned(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    n_q, n_k = s.shape
    s[~np.tri(n_q, n_k, n_q - n_k, dtype=bool)] = -np.inf
    with np.errstate(all="ignore"):
        return softmax(s) @ v


@wrong("mask", "no causal mask at all", "ignored|left out|no mask|missing", spec=_CAUSAL, near="causal")
def no_causal(q: Array, k: Array, v: Array, causal: bool = False) -> Array:
    return softmax(scores(q, k)) @ v


@wrong(
    "mask",
    "no mask when the length divides into tiles of 16",
    "16|multiple|divides",
    spec=_CAUSAL,
    shows="n_k % 16 == 0",
    near="causal_tiles_skipped",
    at=At(n_q=16, n_k=16),
    source="bledden/triton-msl#7",
)
def mask_only_on_rest(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    if s.shape[1] % 16:
        s = np.where(last_keys(*s.shape), s, q.dtype.type(-np.inf))
    return softmax(s) @ v


@wrong(
    "mask",
    "a tile that the diagonal crosses counts as open",
    "tile|block",
    spec=_CAUSAL,
    shows="n > 1",
    near="causal_tiles_skipped",
    at=At(n_q=9, n_k=9),
    domain=Domain(square=True),
)
def diagonal_tiles_open(q: Array, k: Array, v: Array) -> Array:
    width = 4
    s = scores(q, k)
    tile_q, tile_k = np.arange(len(q)) // width, np.arange(len(k)) // width
    return softmax(np.where(tile_k[None, :] <= tile_q[:, None], s, q.dtype.type(-np.inf))) @ v
