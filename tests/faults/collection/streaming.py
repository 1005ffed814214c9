"""Tiles, parts that are merged, running maxima, decoding."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn import Attention
from tests.faults.collection.entries import At, Family

Array = Any
FAMILY = Family("streaming", at=At(n_q=6, n_k=23, spread=1.5))
right, wrong = FAMILY.right, FAMILY.wrong
_CAUSAL = Attention(causal=True)
_LONG = At(n_q=6, n_k=23, spread=3.0)


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


@right("tiles from the last to the first")
def online_backwards(q: Array, k: Array, v: Array) -> Array:
    m = np.full((len(q), 1), -np.inf, q.dtype)
    z, acc = np.zeros_like(m), np.zeros((len(q), v.shape[1]), q.dtype)
    for tile in reversed(pieces(len(k), 8)):
        s = q @ k[tile].T * root(q)
        new = np.maximum(m, s.max(axis=1, keepdims=True))
        a, p = np.exp(m - new), np.exp(s - new)
        z, acc, m = z * a + p.sum(axis=1, keepdims=True), acc * a + p @ v[tile], new
    return acc / z


@right("normalised after each tile, as in FlashAttention-1")
def normalised_each_tile(q: Array, k: Array, v: Array) -> Array:
    m = np.full((len(q), 1), -np.inf, q.dtype)
    z, out = np.zeros_like(m), np.zeros((len(q), v.shape[1]), q.dtype)
    for tile in pieces(len(k), 7):
        s = q @ k[tile].T * root(q)
        new = np.maximum(m, s.max(axis=1, keepdims=True))
        old, p = z * np.exp(m - new), np.exp(s - new)
        z = old + p.sum(axis=1, keepdims=True)
        out, m = (out * old + p @ v[tile]) / z, new
    return out


@right("rescaled only where the maximum grew by more than 8")
def lazy_rescale(q: Array, k: Array, v: Array) -> Array:
    m = None
    z, acc = np.zeros((len(q), 1), q.dtype), np.zeros((len(q), v.shape[1]), q.dtype)
    for tile in pieces(len(k), 4):
        s = q @ k[tile].T * root(q)
        top = s.max(axis=1, keepdims=True)
        if m is None:
            m = top
        new = np.where(top > m + 8, top, m)
        a, p = np.exp(m - new), np.exp(s - new)
        z, acc, m = z * a + p.sum(axis=1, keepdims=True), acc * a + p @ v[tile], new
    return acc / z


@right("tiles of keys padded to 16, the padding hidden", at=At(n_q=6, n_k=23))
def padded_and_hidden(q: Array, k: Array, v: Array) -> Array:
    extra = -len(k) % 16
    kp, vp = (np.pad(a, ((0, extra), (0, 0))) for a in (k, v))
    s = q @ kp.T * root(q)
    s[:, len(k) :] = -np.inf
    p = np.exp(s - s.max(axis=1, keepdims=True))
    return p @ vp / p.sum(axis=1, keepdims=True)


@right("causal tiles, the first one always seen", spec=_CAUSAL, at=At(n_q=9, n_k=13))
def online_causal(q: Array, k: Array, v: Array) -> Array:
    late = len(k) - len(q)
    m = np.full((len(q), 1), -np.inf, q.dtype)
    z, acc = np.zeros_like(m), np.zeros((len(q), v.shape[1]), q.dtype)
    for tile in pieces(len(k), 4):
        j = np.arange(tile.start, tile.stop)
        s = np.where(j <= np.arange(len(q))[:, None] + late, q @ k[tile].T * root(q), q.dtype.type(-np.inf))
        new = np.maximum(m, s.max(axis=1, keepdims=True))
        a, p = np.exp(m - new), np.exp(s - new)
        z, acc, m = z * a + p.sum(axis=1, keepdims=True), acc * a + p @ v[tile], new
    return acc / z


@right("the queries in chunks of 32", at=At(n_q=40, n_k=23))
def chunks_of_queries(q: Array, k: Array, v: Array) -> Array:
    out = np.empty((len(q), v.shape[1]), q.dtype)
    for rows in pieces(len(q), 32):
        s = q[rows] @ k.T * root(q)
        p = np.exp(s - s.max(axis=1, keepdims=True))
        out[rows] = p @ v / p.sum(axis=1, keepdims=True)
    return out


@wrong(
    "merge|values",
    "the accumulator is not rescaled when the maximum grows",
    "rescal",
    near="online",
    shows="the maximum grows after the first tile",
    at=_LONG,
)
def accumulator_not_rescaled(q: Array, k: Array, v: Array) -> Array:
    m = np.full((len(q), 1), -np.inf, q.dtype)
    z, acc = np.zeros_like(m), np.zeros((len(q), v.shape[1]), q.dtype)
    for tile in pieces(len(k), 5):
        s = q @ k[tile].T * root(q)
        new = np.maximum(m, s.max(axis=1, keepdims=True))
        p = np.exp(s - new)
        z, acc, m = z * np.exp(m - new) + p.sum(axis=1, keepdims=True), acc + p @ v[tile], new
    return acc / z


@wrong(
    "merge|normalize",
    "neither sum nor accumulator are rescaled",
    "rescal",
    near="online",
    shows="the maximum grows after the first tile",
    at=_LONG,
)
def nothing_rescaled(q: Array, k: Array, v: Array) -> Array:
    m = np.full((len(q), 1), -np.inf, q.dtype)
    z, acc = np.zeros_like(m), np.zeros((len(q), v.shape[1]), q.dtype)
    for tile in pieces(len(k), 5):
        s = q @ k[tile].T * root(q)
        m = np.maximum(m, s.max(axis=1, keepdims=True))
        p = np.exp(s - m)
        z, acc = z + p.sum(axis=1, keepdims=True), acc + p @ v[tile]
    return acc / z


@wrong(
    "merge|normalize",
    "the sum is not rescaled",
    "rescal",
    near="online",
    shows="the maximum grows after the first tile",
    at=_LONG,
)
def sum_not_rescaled(q: Array, k: Array, v: Array) -> Array:
    m = np.full((len(q), 1), -np.inf, q.dtype)
    z, acc = np.zeros_like(m), np.zeros((len(q), v.shape[1]), q.dtype)
    for tile in pieces(len(k), 16):
        s = q @ k[tile].T * root(q)
        new = np.maximum(m, s.max(axis=1, keepdims=True))
        p = np.exp(s - new)
        z, acc, m = z + p.sum(axis=1, keepdims=True), acc * np.exp(m - new) + p @ v[tile], new
    return acc / z


@wrong(
    "merge|normalize",
    "each tile takes its own maximum, the running one is forgotten",
    "rescal|maximum",
    near="online",
    at=_LONG,
)
def maximum_of_tile(q: Array, k: Array, v: Array) -> Array:
    z, acc = np.zeros((len(q), 1), q.dtype), np.zeros((len(q), v.shape[1]), q.dtype)
    for tile in pieces(len(k), 8):
        s = q @ k[tile].T * root(q)
        p = np.exp(s - s.max(axis=1, keepdims=True))
        z, acc = z + p.sum(axis=1, keepdims=True), acc + p @ v[tile]
    return acc / z


@wrong("merge", "rescaled by e^(new - old), the wrong way round", "rescal|wrong way|inverse", near="online", at=_LONG)
def rescaled_the_wrong_way(q: Array, k: Array, v: Array) -> Array:
    m = (q @ k[:1].T) * root(q)
    z, acc = np.ones_like(m), v[:1] * np.ones_like(m)
    for j in range(1, len(k)):
        s = q @ k[j : j + 1].T * root(q)
        new = np.maximum(m, s)
        a, p = np.exp(np.minimum(new - m, 30)), np.exp(s - new)
        z, acc, m = z * a + p, acc * a + p * v[j], new
    return acc / z


@wrong(
    "normalize|merge|mask",  # its output is that of a mask which forbids these keys
    "the last tile is dropped when it is not full",
    "last|tile|dropped|left out",
    near="online",
    shows="n_k % 8 != 0",
)
def last_tile_dropped(q: Array, k: Array, v: Array) -> Array:
    whole = max(len(k) // 8 * 8, min(len(k), 8))
    return online(q, k[:whole], v[:whole])


@wrong(
    "mask",
    "zero padding of the last tile of 16 takes part",
    "padding|fill|zero keys",
    near="padded_and_hidden",
    shows="n_k % 16 != 0",
    source="jax-ml/jax#27224",
)
def padding_takes_part(q: Array, k: Array, v: Array) -> Array:
    extra = -len(k) % 16
    k, v = (np.pad(a, ((0, extra), (0, 0))) for a in (k, v))
    return online(q, k, v)


@wrong("values", "the values of the tile before", "values|tile", near="online", shows="more than one tile")
def values_of_last_tile(q: Array, k: Array, v: Array) -> Array:
    m = np.full((len(q), 1), -np.inf, q.dtype)
    z, acc = np.zeros_like(m), np.zeros((len(q), v.shape[1]), q.dtype)
    tiles = pieces(len(k), 8)
    for n, tile in enumerate(tiles):
        s = q @ k[tile].T * root(q)
        new = np.maximum(m, s.max(axis=1, keepdims=True))
        a, p = np.exp(m - new), np.exp(s - new)
        mine = v[tiles[max(n - 1, 0)]][: tile.stop - tile.start]
        z, acc, m = z * a + p.sum(axis=1, keepdims=True), acc * a + p @ mine, new
    return acc / z


@wrong(
    "mask",
    "the query's offset is forgotten in tiles of a causal mask",
    "corner|top-left|offset|aligned|alignment",
    spec=_CAUSAL,
    near="online_causal",
    shows="n_q != n_k",
    at=At(n_q=5, n_k=13),
)
def offset_forgotten(q: Array, k: Array, v: Array) -> Array:
    out = np.empty((len(q), v.shape[1]), q.dtype)
    for rows in pieces(len(q), 4):
        end = min(rows.stop, len(k))
        s = q[rows] @ k[:end].T * root(q)
        s = np.where(np.arange(end) <= np.arange(rows.start, rows.stop)[:, None], s, q.dtype.type(-np.inf))
        p = np.exp(s - s.max(axis=1, keepdims=True))
        out[rows] = p @ v[:end] / p.sum(axis=1, keepdims=True)
    return out


@wrong(
    "max",
    "the maximum of a tile in the place of the largest so far: rescaling overflows",
    "tile",
    "overflow",
    near="online",
    shows="a tile far below one before",
    at=At(
        n_q=6, n_k=23, given=lambda made: {"q": 0 * made["q"] + 8, "k": 20 - 2 * np.arange(23)[:, None] + 0 * made["k"]}
    ),
)
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
