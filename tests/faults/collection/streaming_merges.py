"""Parts that are merged, and decoding."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn import Attention, Domain
from tests.faults.collection.entries import At
from tests.faults.collection.streaming import FAMILY, part, pieces, root

Array = Any
right, wrong = FAMILY.right, FAMILY.wrong
_CAUSAL = Attention(causal=True)
_LONG = At(n_q=6, n_k=23, spread=3.0)


@right("three parts, merged by their log-sums")
def split_keys(q: Array, k: Array, v: Array) -> Array:
    width = max(1, -(-len(k) // 3))
    outs, lses = zip(*(part(q, k[t], v[t]) for t in pieces(len(k), width)), strict=True)
    lse = np.stack(lses)
    w = np.exp(lse - lse.max(axis=0))
    return (np.stack(outs) * w).sum(axis=0) / w.sum(axis=0)


@right("parts merged two by two, base-2 logarithms throughout")
def merged_in_base_two(q: Array, k: Array, v: Array) -> Array:
    log2e = q.dtype.type(np.log2(np.e))

    def one(t: slice) -> tuple[Array, Array]:
        s = q @ k[t].T * (root(q) * log2e)
        m = s.max(axis=1, keepdims=True)
        p = np.exp2(s - m)
        return p @ v[t] / p.sum(axis=1, keepdims=True), m + np.log2(p.sum(axis=1, keepdims=True))

    out: Array = None
    lse: Array = None
    for t in pieces(len(k), 6):
        o, here = one(t)
        if out is None:
            out, lse = o, here
            continue
        both = np.logaddexp2(lse, here)
        out, lse = out * np.exp2(lse - both) + o * np.exp2(here - both), both
    return out


@right("tokens one at a time, keys kept in a buffer that grows", spec=_CAUSAL, at=At(n_q=4, n_k=9))
def decoding(q: Array, k: Array, v: Array) -> Array:
    late = len(k) - len(q)
    keys, values, rows = list(k[:late]), list(v[:late]), []
    for i in range(len(q)):
        keys.append(k[late + i])
        values.append(v[late + i])
        s = np.stack(keys) @ q[i] * root(q)
        p = np.exp(s - s.max())
        rows.append(p @ np.stack(values) / p.sum())
    return np.stack(rows)


@wrong("merge", "parts are averaged", "averag|mean|mass|weight", near="split_keys")
def parts_averaged(q: Array, k: Array, v: Array) -> Array:
    half = max(1, len(k) // 2)
    outs = [part(q, k[t], v[t])[0] for t in pieces(len(k), half)]
    return np.mean(outs, axis=0, dtype=q.dtype)


@wrong(
    "merge",
    "log-sums in base 2 merged as if natural",
    "base 2|base-2|log2|2^",
    near="merged_in_base_two",
    source="sgl-project/sglang#35045",
    at=_LONG,
)
def merged_with_other_base(q: Array, k: Array, v: Array) -> Array:
    half = max(1, len(k) // 2)
    outs, lses = zip(*(part(q, k[t], v[t]) for t in pieces(len(k), half)), strict=True)
    lse = np.stack(lses) * np.float32(np.log2(np.e))
    w = np.exp(lse - lse.max(axis=0))
    return (np.stack(outs) * w).sum(axis=0) / w.sum(axis=0)


@wrong("merge", "parts weighed by their maxima alone, not by their sums", "maxim|sum", near="split_keys")
def merged_by_maxima(q: Array, k: Array, v: Array) -> Array:
    outs, tops = [], []
    for t in pieces(len(k), 6):
        s = q @ k[t].T * root(q)
        outs.append(part(q, k[t], v[t])[0])
        tops.append(s.max(axis=1, keepdims=True))
    w = np.exp(np.stack(tops) - np.max(tops, axis=0))
    return (np.stack(outs) * w).sum(axis=0) / w.sum(axis=0)


@wrong(
    "merge|mask",  # its output is that of a mask which forbids these keys
    "the third of three parts is lost",
    "part|lost|last|dropped|keys",
    near="split_keys",
    shows="more than 16 keys",
)
def one_part_lost(q: Array, k: Array, v: Array) -> Array:
    outs, lses = zip(*(part(q, k[t], v[t]) for t in pieces(len(k), 8)[:2]), strict=True)
    lse = np.stack(lses)
    w = np.exp(lse - lse.max(axis=0))
    return (np.stack(outs) * w).sum(axis=0) / w.sum(axis=0)


@wrong(
    "cache|mask",
    "the new token is counted after it attends: it does not see itself",
    "own key|itself|off by one",
    spec=_CAUSAL,
    near="decoding",
    source="onnxruntime/mobius#365",
    at=At(n_q=4, n_k=9),
)
def length_before_write(q: Array, k: Array, v: Array) -> Array:
    late, rows = len(k) - len(q), []
    for i in range(len(q)):
        valid = max(late + i, 1)
        s = k[:valid] @ q[i] * root(q)
        p = np.exp(s - s.max())
        rows.append(p @ v[:valid] / p.sum())
    return np.stack(rows)


@wrong(
    "cache|mask",
    "empty slots of a static cache are attended",
    "slot|zero|padding|empty|fill",
    spec=_CAUSAL,
    near="decoding",
    source="huggingface/transformers#45940",
    at=At(n_q=4, n_k=9),
)
def empty_slots_seen(q: Array, k: Array, v: Array) -> Array:
    late, size = len(k) - len(q), 1 << (len(k) - 1).bit_length()
    keys, values = np.zeros((size, k.shape[1]), k.dtype), np.zeros((size, v.shape[1]), v.dtype)
    keys[:late], values[:late] = k[:late], v[:late]
    rows = []
    for i in range(len(q)):
        keys[late + i], values[late + i] = k[late + i], v[late + i]
        s = keys @ q[i] * root(q)
        p = np.exp(s - s.max())
        rows.append(p @ values / p.sum())
    return np.stack(rows)


@wrong(
    "cache|mask",  # nothing but keys and values is given, and a mask could forbid the first keys as well
    "a ring of 32 slots forgets the oldest keys",
    "32|oldest|window|first keys|cache",
    near="online",
    shows="n_k > 32",
    at=At(n_k=40),
)
def ring_too_small(q: Array, k: Array, v: Array) -> Array:
    return part(q, k[-32:], v[-32:])[0]


@wrong(
    "cache|values",  # of the cache nothing is seen but that weights meet other values
    "the new value goes into the slot of the key before",
    "value|slot|off by one|shifted",
    spec=_CAUSAL,
    near="decoding",
    at=At(n_q=4, n_k=9),
    domain=Domain(max_tokens=40),
)
def value_in_other_slot(q: Array, k: Array, v: Array) -> Array:
    late, values, rows = len(k) - len(q), v.copy(), []
    for i in range(len(q)):
        if late + i:
            values[late + i - 1] = v[late + i]
        s = k[: late + i + 1] @ q[i] * root(q)
        p = np.exp(s - s.max())
        rows.append(p @ values[: late + i + 1] / p.sum())
    return np.stack(rows)


def _masked_part(q: Array, k: Array, v: Array, hidden: Array) -> tuple[Array, Array]:
    """The output of these keys alone, and the logarithm of the sum; −10³⁸ where all are hidden."""
    s = np.where(hidden, q.dtype.type(-np.inf), q @ k.T * root(q))
    m = np.maximum(s.max(axis=1, keepdims=True), q.dtype.type(-1e38))
    e = np.exp(s - m)
    z = e.sum(axis=1, keepdims=True)
    return np.where(z > 0, e @ v / np.where(z > 0, z, 1), 0), m + np.log(np.where(z > 0, z, 1))


def _merged(outs: list[Array], lses: list[Array]) -> Array:
    w = np.exp(np.stack(lses) - np.max(lses, axis=0))
    return (np.stack(outs) * w).sum(axis=0) / w.sum(axis=0)


def _later(q: Array, k: Array) -> Array:
    return ~np.tri(len(q), len(k), len(k) - len(q), dtype=bool)


@right("two parts under a causal mask, which is cut as the keys are", spec=_CAUSAL)
def split_causal(q: Array, k: Array, v: Array) -> Array:
    tiles = pieces(len(k), -(-len(k) // 2))
    parts = [_masked_part(q, k[t], v[t], _later(q, k)[:, t]) for t in tiles]
    return _merged(*([*x] for x in zip(*parts, strict=True)))


@wrong(
    "mask",
    "the mask of the first part is taken for both: keys are counted from the part's first one",
    "anew|first",
    "keys|part|tile",
    spec=_CAUSAL,
    near="split_causal",
)
def mask_of_first_part(q: Array, k: Array, v: Array) -> Array:
    tiles = pieces(len(k), -(-len(k) // 2))
    parts = [_masked_part(q, k[t], v[t], _later(q, k)[:, : t.stop - t.start]) for t in tiles]
    return _merged(*([*x] for x in zip(*parts, strict=True)))


@wrong(
    "max",
    "after each tile its own maximum is kept for the largest so far",
    "tile",
    "maximum|largest",
    near="streaming.online",
    shows="a tile below the one before, and another one after it",
    at=At(n_q=6, n_k=43, spread=3.0),
)
def largest_so_far_forgotten(q: Array, k: Array, v: Array) -> Array:
    m = np.full((len(q), 1), -np.inf, q.dtype)
    z, acc = np.zeros_like(m), np.zeros((len(q), v.shape[1]), q.dtype)
    for tile in pieces(len(k), 8):
        s = q @ k[tile].T * root(q)
        new = np.maximum(m, s.max(axis=1, keepdims=True))
        a, p = np.exp(m - new), np.exp(s - new)
        z, acc, m = z * a + p.sum(axis=1, keepdims=True), acc * a + p @ v[tile], s.max(axis=1, keepdims=True)
    return acc / z
