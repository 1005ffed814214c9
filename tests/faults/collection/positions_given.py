"""Rotations of a part, with other bases, by given tables and positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn import Attention, Domain
from symattn.attention.positions.position_fields import Rotary
from tests.faults.collection.entries import At
from tests.faults.collection.positions import FAMILY, angles, both, causal_attention, rope_half, rotate_half

Array = Any
right, wrong = FAMILY.right, FAMILY.wrong
_AT_POSITIONS = Attention(causal=True, position=Rotary(given="positions"))
_FAST = Attention(causal=True, position=Rotary(base=500000))
_PARTIAL = Attention(causal=True, position=Rotary(width=4))
_SQUARE = Domain(square=True)
_TABLES = Attention(causal=True, position=Rotary(given="tables"))
_WIDE = At(d_k=8)


@right("the first four columns alone", spec=_PARTIAL, at=_WIDE)
def rope_partial(q: Array, k: Array, v: Array) -> Array:
    at_q, at_k = both(q, k)
    rotated = [
        np.concatenate([rotate_half(x[:, :4], angles(p, 4)), x[:, 4:]], axis=1) for x, p in ((q, at_q), (k, at_k))
    ]
    return causal_attention(rotated[0], rotated[1], v)


@right("positions are given", spec=_AT_POSITIONS, domain=_SQUARE)
def rope_at_positions(q: Array, k: Array, v: Array, position_ids: Array) -> Array:
    theta = angles(position_ids, q.shape[1])
    return causal_attention(rotate_half(q, theta[len(k) - len(q) :]), rotate_half(k, theta), v)


@right("tables are given", spec=_TABLES, domain=_SQUARE)
def rope_by_tables(q: Array, k: Array, v: Array, cos: Array, sin: Array) -> Array:
    def turn(x: Array) -> Array:
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    return causal_attention(turn(q), turn(k), v)


@right("base 500000", spec=_FAST)
def rope_other_base(q: Array, k: Array, v: Array) -> Array:
    at_q, at_k = both(q, k)
    d = q.shape[1]
    return causal_attention(rotate_half(q, angles(at_q, d, 5e5)), rotate_half(k, angles(at_k, d, 5e5)), v)


@wrong(
    "position",
    "frequencies of the whole head where a part is rotated",
    "frequenc|width|base",
    spec=_PARTIAL,
    at=_WIDE,
    near="rope_partial",
    source="pie-project/pie#603",
)
def rope_partial_frequencies(q: Array, k: Array, v: Array) -> Array:
    inv = 10000.0 ** (-np.arange(0, 4, 2) / q.shape[1])

    def turn(x: Array, at: Array) -> Array:
        return np.concatenate([rotate_half(x[:, :4], np.outer(at, inv)), x[:, 4:]], axis=1)

    at_q, at_k = both(q, k)
    return causal_attention(turn(q, at_q), turn(k, at_k), v)


@wrong(
    "position",
    "all columns are rotated where four are",
    "all columns|every column|width|partial|first",
    spec=_PARTIAL,
    at=_WIDE,
    near="rope_partial",
)
def rope_whole_for_part(q: Array, k: Array, v: Array) -> Array:
    return rope_half(q, k, v)


@wrong("position", "base 10000 for 500000", "base", spec=_FAST, near="rope_other_base")
def rope_usual_base(q: Array, k: Array, v: Array) -> Array:
    return rope_half(q, k, v)


@wrong(
    "position",
    "positions are 0, 1, 2, ... where others are given",
    "given|ignored|position",
    spec=_AT_POSITIONS,
    domain=_SQUARE,
    near="rope_at_positions",
)
def rope_positions_ignored(q: Array, k: Array, v: Array, position_ids: Array) -> Array:
    return rope_half(q, k, v)


@wrong(
    "position",
    "sine and cosine exchanged",
    "sine|cosine|sin|exchanged",
    spec=_TABLES,
    domain=_SQUARE,
    near="rope_by_tables",
)
def rope_tables_exchanged(q: Array, k: Array, v: Array, cos: Array, sin: Array) -> Array:
    def turn(x: Array) -> Array:
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate([a * sin - b * cos, b * sin + a * cos], axis=-1)

    return causal_attention(turn(q), turn(k), v)
