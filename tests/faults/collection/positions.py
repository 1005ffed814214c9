"""Positions inside attention: rotations, slopes, buckets, biases."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn import Attention, Domain
from symattn.attention.positions.position_fields import Alibi, Buckets, Rotary
from tests.faults.collection.entries import At, Family

Array = Any
FAMILY = Family("positions")
right, wrong = FAMILY.right, FAMILY.wrong
_HALF = Attention(causal=True, position=Rotary())
_PAIRS = Attention(causal=True, position=Rotary(layout="interleaved"))
_PARTIAL = Attention(causal=True, position=Rotary(width=4))
_FAST = Attention(causal=True, position=Rotary(base=500000))
_AT_POSITIONS = Attention(causal=True, position=Rotary(given="positions"))
_TABLES = Attention(causal=True, position=Rotary(given="tables"))
_ALIBI = Attention(heads=4, causal=True, position=Alibi())
_ALIBI_SIX = Attention(heads=6, causal=True, position=Alibi())
_ALIBI_GIVEN = Attention(heads=3, causal=True, position=Alibi(slopes="given"))
_ALIBI_TWO_SIDED = Attention(heads=2, position=Alibi(two_sided=True))
_BUCKETS = Attention(heads=2, scale=1, position=Buckets())
_BIAS = Attention(heads=2, bias=True)
_SQUARE = Domain(square=True)
_WIDE = At(d_k=8)


def softmax(s: Array) -> Array:
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def causal_attention(q: Array, k: Array, v: Array, add: Array | float = 0.0) -> Array:
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype) + np.asarray(add, q.dtype)
    n_q, n_k = s.shape[-2:]
    return softmax(np.where(np.tri(n_q, n_k, n_k - n_q, dtype=bool), s, q.dtype.type(-np.inf))) @ v


def angles(positions: Array, d: int, base: float = 10000.0) -> Array:
    return np.asarray(positions, np.float64)[..., None] * base ** (-np.arange(0, d, 2) / d)


def rotate_half(x: Array, theta: Array) -> Array:
    cos, sin = np.cos(theta).astype(x.dtype), np.sin(theta).astype(x.dtype)
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def rotate_pairs(x: Array, theta: Array) -> Array:
    cos, sin = np.cos(theta).astype(x.dtype), np.sin(theta).astype(x.dtype)
    out = np.empty_like(x)
    out[..., ::2] = x[..., ::2] * cos - x[..., 1::2] * sin
    out[..., 1::2] = x[..., 1::2] * cos + x[..., ::2] * sin
    return out


def both(q: Array, k: Array) -> tuple[Array, Array]:
    """The queries stand at the end of the keys."""
    n = len(k)
    return np.arange(n - len(q), n), np.arange(n)


@right("half the columns with the other half", spec=_HALF)
def rope_half(q: Array, k: Array, v: Array) -> Array:
    at_q, at_k = both(q, k)
    return causal_attention(rotate_half(q, angles(at_q, q.shape[1])), rotate_half(k, angles(at_k, k.shape[1])), v)


@right("x cos + rotate_half(x) sin with tables of full width", spec=_HALF)
def rope_by_full_tables(q: Array, k: Array, v: Array) -> Array:
    inv = 1.0 / (10000.0 ** (np.arange(0, q.shape[1], 2) / q.shape[1]))
    full = np.concatenate([np.outer(np.arange(len(k)), inv)] * 2, axis=1)
    cos, sin = np.cos(full).astype(q.dtype), np.sin(full).astype(q.dtype)

    def turn(x: Array, rows: slice) -> Array:
        half = x.shape[1] // 2
        return x * cos[rows] + np.concatenate([-x[:, half:], x[:, :half]], axis=1) * sin[rows]

    return causal_attention(turn(q, slice(len(k) - len(q), None)), turn(k, slice(None)), v)


@right("neighbouring columns", spec=_PAIRS)
def rope_pairs(q: Array, k: Array, v: Array) -> Array:
    at_q, at_k = both(q, k)
    return causal_attention(rotate_pairs(q, angles(at_q, q.shape[1])), rotate_pairs(k, angles(at_k, k.shape[1])), v)


@right("neighbouring columns as complex numbers", spec=_PAIRS)
def rope_complex(q: Array, k: Array, v: Array) -> Array:
    def turn(x: Array, at: Array) -> Array:
        z = (x[:, ::2] + 1j * x[:, 1::2]) * np.exp(1j * angles(at, x.shape[1]))
        return np.stack([z.real, z.imag], axis=-1).reshape(x.shape).astype(x.dtype)

    at_q, at_k = both(q, k)
    return causal_attention(turn(q, at_q), turn(k, at_k), v)


@right("queries from 0 and keys from n_q - n_k: distances are what counts", spec=_HALF)
def rope_from_other_origin(q: Array, k: Array, v: Array) -> Array:
    at_q, at_k = both(q, k)
    first = at_q[0]
    return causal_attention(
        rotate_half(q, angles(at_q - first, q.shape[1])), rotate_half(k, angles(at_k - first, k.shape[1])), v
    )


@wrong(
    "position",
    "the other layout: pairs for halves",
    "2l|interleaved|layout|pairs|neighbour",
    spec=_HALF,
    near="rope_half",
    source="raiyanyahya/how-to-train-your-gpt#6",
)
def rope_other_layout(q: Array, k: Array, v: Array) -> Array:
    at_q, at_k = both(q, k)
    return causal_attention(rotate_pairs(q, angles(at_q, q.shape[1])), rotate_pairs(k, angles(at_k, k.shape[1])), v)


@wrong(
    "position",
    "half-split rotation with angles laid out in pairs",
    "angles|pairs|layout|2l|repeated",
    spec=_HALF,
    near="rope_by_full_tables",
)
def rope_tables_in_pairs(q: Array, k: Array, v: Array) -> Array:
    inv = 10000.0 ** (-np.arange(0, q.shape[1], 2) / q.shape[1])
    full = np.repeat(np.outer(np.arange(len(k)), inv), 2, axis=1)
    cos, sin = np.cos(full).astype(q.dtype), np.sin(full).astype(q.dtype)

    def turn(x: Array, rows: slice) -> Array:
        a, b = np.split(x, 2, axis=1)
        return x * cos[rows] + np.concatenate([-b, a], axis=1) * sin[rows]

    return causal_attention(turn(q, slice(len(k) - len(q), None)), turn(k, slice(None)), v)


@wrong(
    "position",
    "new queries are rotated from position 0",
    "position 0|from 0|start|queries|cache length|too",
    spec=_HALF,
    shows="n_q < n_k",
    near="rope_half",
    source="RobertCsordas/moeut#6",
)
def rope_queries_from_zero(q: Array, k: Array, v: Array) -> Array:
    d = q.shape[1]
    q, k = rotate_half(q, angles(np.arange(len(q)), d)), rotate_half(k, angles(np.arange(len(k)), d))
    return causal_attention(q, k, v)


@wrong(
    "position", "queries are one position too far", "one position|off by one|one place", spec=_HALF, near="rope_half"
)
def rope_one_on(q: Array, k: Array, v: Array) -> Array:
    at_q, at_k = both(q, k)
    return causal_attention(rotate_half(q, angles(at_q + 1, q.shape[1])), rotate_half(k, angles(at_k, k.shape[1])), v)


@wrong(
    "position",
    "only the queries are rotated",
    "keys are not|only the queries|queries alone|not rotated",
    spec=_HALF,
    near="rope_half",
)
def rope_queries_only(q: Array, k: Array, v: Array) -> Array:
    at_q, _ = both(q, k)
    return causal_attention(rotate_half(q, angles(at_q, q.shape[1])), k, v)


@wrong(
    "position",
    "queries and keys are rotated the opposite ways",
    "opposite|sign|direction|backwards",
    spec=_HALF,
    near="rope_half",
)
def rope_opposite(q: Array, k: Array, v: Array) -> Array:
    at_q, at_k = both(q, k)
    return causal_attention(rotate_half(q, angles(at_q, q.shape[1])), rotate_half(k, -angles(at_k, k.shape[1])), v)


@wrong(
    "position",
    "frequency exponent i/d in place of 2i/d",
    "frequenc|exponent|base",
    spec=_HALF,
    near="rope_half",
    source="rasbt/LLMs-from-scratch#410",
    at=_WIDE,
)
def rope_slow_frequencies(q: Array, k: Array, v: Array) -> Array:
    d = q.shape[1]
    inv = 10000.0 ** (-np.arange(d // 2) / d)
    at_q, at_k = both(q, k)
    return causal_attention(rotate_half(q, np.outer(at_q, inv)), rotate_half(k, np.outer(at_k, inv)), v)


@wrong(
    "position",
    "positions are left out",
    "left out|no position|not rotated|ignored",
    spec=_HALF,
    near="rope_half",
)
def rope_left_out(q: Array, k: Array, v: Array) -> Array:
    return causal_attention(q, k, v)


@wrong("position", "values are rotated as well", "values", spec=_HALF, near="rope_half", at=At(d_v=4), domain=_SQUARE)
def rope_of_values(q: Array, k: Array, v: Array) -> Array:
    at_q, at_k = both(q, k)
    rotated = rotate_half(v, angles(at_k, v.shape[1])) if v.shape[1] % 2 == 0 else v
    return causal_attention(rotate_half(q, angles(at_q, q.shape[1])), rotate_half(k, angles(at_k, k.shape[1])), rotated)


@wrong(
    "position",
    "positions counted in bfloat16",
    "bfloat16|rounded|position",
    spec=_HALF,
    shows="positions above 256",
    near="rope_half",
    at=At(n_q=3, n_k=300),
    domain=Domain(max_tokens=600),
    source="huggingface/transformers#29285",
)
def rope_positions_in_bfloat16(q: Array, k: Array, v: Array) -> Array:
    import ml_dtypes

    at_q, at_k = (p.astype(ml_dtypes.bfloat16).astype(np.float64) for p in both(q, k))
    return causal_attention(rotate_half(q, angles(at_q, q.shape[1])), rotate_half(k, angles(at_k, k.shape[1])), v)


_angles: dict[tuple[int, int], Array] = {}


@wrong(
    "position",
    "the table of the queries' angles is kept by their number, not by the length of the cache",
    "call|earlier|before|state|remember|kept|position",
    spec=_HALF,
    shows="a second call with as many queries and another cache",
    near="rope_half",
    at=At(before=At(n_k=9)),
    source="lucidrains/rotary-embedding-torch#11",
)
def rope_table_by_length(q: Array, k: Array, v: Array) -> Array:
    at_q, at_k = both(q, k)
    table = _angles.setdefault(q.shape, angles(at_q, q.shape[1]))
    return causal_attention(rotate_half(q, table), rotate_half(k, angles(at_k, k.shape[1])), v)


@wrong("position", "the frequencies are halved", "1/2 times|half|0.5", "angles|frequenc", spec=_HALF, near="rope_half")
def rope_at_half_speed(q: Array, k: Array, v: Array) -> Array:
    at_q, at_k = both(q, k)
    return causal_attention(
        rotate_half(q, angles(at_q / 2, q.shape[1])), rotate_half(k, angles(at_k / 2, k.shape[1])), v
    )


@wrong(
    "position", "both terms with the sine are subtracted", "sine|sin", "subtracted|sign", spec=_HALF, near="rope_half"
)
def rope_sines_subtracted(q: Array, k: Array, v: Array) -> Array:
    def turn(x: Array, at: Array) -> Array:
        (a, b), angle = np.split(x, 2, axis=1), angles(at, x.shape[1])
        c, s = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
        return np.concatenate([a * c - b * s, b * c - a * s], axis=1)

    at_q, at_k = both(q, k)
    return causal_attention(turn(q, at_q), turn(k, at_k), v)
