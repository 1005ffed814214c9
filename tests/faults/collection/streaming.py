"""Tiles, parts that are merged, running maxima, decoding."""

from typing import Any

import numpy as np

from symattn import Attention
from tests.faults.collection.entries import At, Family

Array = Any
FAMILY = Family("streaming", at=At(n_q=6, n_k=23, spread=1.5))
right = FAMILY.right
_CAUSAL = Attention(causal=True)
_LONG = At(n_q=6, n_k=23, spread=3.0)
_FALLING = At(
    n_q=6, n_k=23, given=lambda made: {"q": 0 * made["q"] + 8, "k": 20 - 2 * np.arange(23)[:, None] + 0 * made["k"]}
)


def root(q: Array) -> Array:
    return q.dtype.type(q.shape[-1] ** -0.5)


def part(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """The output of these keys alone, and the logarithm of the sum."""
    s = q @ k.T * root(q)
    m = s.max(axis=1, keepdims=True)
    e = np.exp(s - m)
    z = e.sum(axis=1, keepdims=True)
    return e @ v / z, m + np.log(z)


def pieces(n: int, width: int) -> list[slice]:
    return [slice(j, min(j + width, n)) for j in range(0, n, width)]


@right("online softmax in tiles of 5")
def online(q: Array, k: Array, v: Array) -> Array:
    m = np.full((len(q), 1), -np.inf, q.dtype)
    z, acc = np.zeros_like(m), np.zeros((len(q), v.shape[1]), q.dtype)
    for tile in pieces(len(k), 5):
        s = q @ k[tile].T * root(q)
        new = np.maximum(m, s.max(axis=1, keepdims=True))
        a, p = np.exp(m - new), np.exp(s - new)
        z, acc, m = z * a + p.sum(axis=1, keepdims=True), acc * a + p @ v[tile], new
    return acc / z


@right("tiles of queries outside, tiles of keys inside, as in FlashAttention-2")
def two_loops(q: Array, k: Array, v: Array) -> Array:
    return np.concatenate([online(q[rows], k, v) for rows in pieces(len(q), 4)])


FAMILY.others(
    globals(),
    """
online_backwards (online): tiles from the last to the first
    pieces(len(k), 5) → reversed(pieces(len(k), 8))
normalised_each_tile (online): normalised after each tile, as in FlashAttention-1
    len(k), 5 → len(k), 7
    z, acc, m = z * a → old = z * a; z = old
    , acc * a + p @ v[tile], new → ; acc, m = (acc * old + p @ v[tile]) / z, new
    return acc / z → return acc
lazy_rescale (online): rescaled only where the maximum grew by more than 8
    len(k), 5 → len(k), 4
    np.maximum(m, s.max(axis=1, keepdims=True)) → np.where((top := s.max(axis=1, keepdims=True)) > m + 8, top, m)
online_causal (online): causal tiles, the first one always seen
    at spec=_CAUSAL; at=At(n_q=9, n_k=13)
    len(k), 5 → len(k), 4
    s = q → seen = np.arange(tile.start, tile.stop) <= np.arange(len(q))[:, None] + len(k) - len(q); s = q
    * root(q) → * root(q); s = np.where(seen, s, q.dtype.type(-np.inf))
""",
)


@right("tiles of keys padded to 16, the padding hidden", at=At(n_q=6, n_k=23))
def padded_and_hidden(q: Array, k: Array, v: Array) -> Array:
    extra = -len(k) % 16
    kp, vp = (np.pad(a, ((0, extra), (0, 0))) for a in (k, v))
    s = q @ kp.T * root(q)
    s[:, len(k) :] = -np.inf
    p = np.exp(s - s.max(axis=1, keepdims=True))
    return p @ vp / p.sum(axis=1, keepdims=True)


@right("the queries in chunks of 32", at=At(n_q=40, n_k=23))
def chunks_of_queries(q: Array, k: Array, v: Array) -> Array:
    out = np.empty((len(q), v.shape[1]), q.dtype)
    for rows in pieces(len(q), 32):
        s = q[rows] @ k.T * root(q)
        p = np.exp(s - s.max(axis=1, keepdims=True))
        out[rows] = p @ v / p.sum(axis=1, keepdims=True)
    return out


def rescaled_the_wrong_way(q: Array, k: Array, v: Array) -> Array:
    m = (q @ k[:1].T) * root(q)
    z, acc = np.ones_like(m), v[:1] * np.ones_like(m)
    for j in range(1, len(k)):
        s = q @ k[j : j + 1].T * root(q)
        new = np.maximum(m, s)
        a, p = np.exp(np.minimum(new - m, 30)), np.exp(s - new)
        z, acc, m = z * a + p, acc * a + p * v[j], new
    return acc / z


def offset_forgotten(q: Array, k: Array, v: Array) -> Array:
    out = np.empty((len(q), v.shape[1]), q.dtype)
    for rows in pieces(len(q), 4):
        end = min(rows.stop, len(k))
        s = q[rows] @ k[:end].T * root(q)
        s = np.where(np.arange(end) <= np.arange(rows.start, rows.stop)[:, None], s, q.dtype.type(-np.inf))
        p = np.exp(s - s.max(axis=1, keepdims=True))
        out[rows] = p @ v[:end] / p.sum(axis=1, keepdims=True)
    return out


def rescaled_by_own_maximum(q: Array, k: Array, v: Array) -> Array:
    m = np.full((len(q), 1), -np.inf, q.dtype)
    z, acc = np.zeros_like(m), np.zeros((len(q), v.shape[1]), q.dtype)
    for tile in pieces(len(k), 16):
        s = q @ k[tile].T * root(q)
        new = s.max(axis=1, keepdims=True)
        with np.errstate(all="ignore"):
            a, p = np.exp(m - new), np.exp(s - new)
            z, acc, m = z * a + p.sum(axis=1, keepdims=True), acc * a + p @ v[tile], new
    with np.errstate(all="ignore"):
        return acc / z


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


def merged_by_maxima(q: Array, k: Array, v: Array) -> Array:
    outs, tops = [], []
    for t in pieces(len(k), 6):
        s = q @ k[t].T * root(q)
        outs.append(part(q, k[t], v[t])[0])
        tops.append(s.max(axis=1, keepdims=True))
    w = np.exp(np.stack(tops) - np.max(tops, axis=0))
    return (np.stack(outs) * w).sum(axis=0) / w.sum(axis=0)


def length_before_write(q: Array, k: Array, v: Array) -> Array:
    late, rows = len(k) - len(q), []
    for i in range(len(q)):
        valid = max(late + i, 1)
        s = k[:valid] @ q[i] * root(q)
        p = np.exp(s - s.max())
        rows.append(p @ v[:valid] / p.sum())
    return np.stack(rows)


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


FAMILY.wrong(
    globals(),
    """
accumulator_not_rescaled (online), merge|values: the accumulator is not rescaled when the maximum grows
    says rescal; shows the maximum grows after the first tile; at=_LONG
    acc * a → acc
nothing_rescaled (online), merge|normalize: neither sum nor accumulator are rescaled
    says rescal; shows the maximum grows after the first tile; at=_LONG
    z * a → z
    acc * a → acc
sum_not_rescaled (online), merge|normalize: the sum is not rescaled
    says rescal; shows the maximum grows after the first tile; at=_LONG
    len(k), 5 → len(k), 16
    z * a → z
maximum_of_tile (online), merge|normalize: each tile takes its own maximum, the running one is forgotten
    says rescal|maximum; at=_LONG
    len(k), 5 → len(k), 8
    np.maximum(m, s.max(axis=1, keepdims=True)) → s.max(axis=1, keepdims=True)
    z * a → z
    acc * a → acc
rescaled_the_wrong_way (online), merge: rescaled by e^(new - old), the wrong way round
    says rescal|wrong way|inverse; at=_LONG
last_tile_dropped (online), normalize|merge|mask: the last tile is dropped when it is not full
    says last|tile|dropped|left out; shows n_k % 8 != 0
    whole = max(len(k) // 8 * 8, min(len(k), 8))
    return online(q, k[:whole], v[:whole])
padding_takes_part (padded_and_hidden), mask: zero padding of the last tile of 16 takes part
    says padding|fill|zero keys; shows n_k % 16 != 0; source jax-ml/jax#27224
    extra = -len(k) % 16
    k, v = (np.pad(a, ((0, extra), (0, 0))) for a in (k, v))
    return online(q, k, v)
values_of_last_tile (online), values: the values of the tile before
    says values|tile; shows more than one tile
    len(k), 5 → len(k), 8
    p @ v[tile] → p @ v[max(tile.start - 8, 0) :][: tile.stop - tile.start]
offset_forgotten (online_causal), mask: the query's offset is forgotten in tiles of a causal mask
    says corner|top-left|offset|aligned|alignment; shows n_q != n_k; at=At(n_q=5, n_k=13)
rescaled_by_own_maximum (online), max: the maximum of a tile in the place of the largest so far: rescaling overflows
    says tile & overflow; shows a tile far below one before; at=_FALLING
parts_averaged (split_keys), merge: parts are averaged
    says averag|mean|mass|weight
    half = max(1, len(k) // 2)
    outs = [part(q, k[t], v[t])[0] for t in pieces(len(k), half)]
    return np.mean(outs, axis=0, dtype=q.dtype)
merged_with_other_base (merged_in_base_two), merge: log-sums in base 2 merged as if natural
    says base 2|base-2|log2|2^; at=_LONG; source sgl-project/sglang#35045
    half = max(1, len(k) // 2)
    outs, lses = zip(*(part(q, k[t], v[t]) for t in pieces(len(k), half)), strict=True)
    lse = np.stack(lses) * np.float32(np.log2(np.e))
    w = np.exp(lse - lse.max(axis=0))
    return (np.stack(outs) * w).sum(axis=0) / w.sum(axis=0)
merged_by_maxima (split_keys), merge: parts weighed by their maxima alone, not by their sums
    says maxim|sum
one_part_lost (split_keys), merge|mask: the third of three parts is lost
    says part|lost|last|dropped|keys; shows more than 16 keys
    outs, lses = zip(*(part(q, k[t], v[t]) for t in pieces(len(k), 8)[:2]), strict=True)
    lse = np.stack(lses)
    w = np.exp(lse - lse.max(axis=0))
    return (np.stack(outs) * w).sum(axis=0) / w.sum(axis=0)
length_before_write (decoding), cache|mask: the new token is counted after it attends: it does not see itself
    says own key|itself|off by one; source onnxruntime/mobius#365
empty_slots_seen (decoding), cache|mask: empty slots of a static cache are attended
    says slot|zero|padding|empty|fill; source huggingface/transformers#45940
ring_too_small (online), cache|mask: a ring of 32 slots forgets the oldest keys
    says 32|oldest|window|first keys|cache; shows n_k > 32; at=At(n_k=40)
    return part(q, k[-32:], v[-32:])[0]
value_in_other_slot (decoding), cache|values: the new value goes into the slot of the key before
    says value|slot|off by one|shifted; domain=Domain(max_tokens=40)
mask_of_first_part (split_causal), mask: the mask of the first part is taken for both: keys are counted from the part's
        first one
    says anew|first & keys|part|tile
    , t]) for t in tiles → , : t.stop - t.start]) for t in tiles
largest_so_far_forgotten (online), max: after each tile its own maximum is kept for the largest so far
    says tile & maximum|largest; shows a tile below the one before, and another one after it;
        at=At(n_q=6, n_k=43, spread=3.0)
    5 → 8
    , new → , s.max(axis=1, keepdims=True)
""",
)
