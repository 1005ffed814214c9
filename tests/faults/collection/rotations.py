"""Rotations alone: f(x), f(x, positions), f(q, k, positions), f(x, cos, sin)."""

from typing import Any

import numpy as np

from symattn import Rotary
from tests.faults.collection.entries import At, Family

Array = Any
FAMILY = Family("rotations", spec=Rotary(), at=At(n_q=4, d_k=6))
right = FAMILY.right
_PAIRS = Rotary(layout="interleaved")
_PART = Rotary(width=4)


def tables(positions: Array, r: int, x: Array, base: float = 10000.0) -> tuple[Array, Array]:
    """Cosines and sines (n, r/2)."""
    theta = np.asarray(positions, np.float64)[..., None] * base ** (-np.arange(0, r, 2) / r)
    return np.cos(theta).astype(x.dtype), np.sin(theta).astype(x.dtype)


def halves(x: Array, cos: Array, sin: Array) -> Array:
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def neighbours(x: Array, cos: Array, sin: Array) -> Array:
    a, b = x[..., ::2], x[..., 1::2]
    return np.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(x.shape)


@right("halves, at given positions")
def at_positions(x: Array, positions: Array) -> Array:
    return halves(x, *tables(positions, x.shape[-1], x))


@right("halves, from position 0 on")
def from_zero(x: Array) -> Array:
    return halves(x, *tables(np.arange(x.shape[-2]), x.shape[-1], x))


@right("queries and keys")
def queries_and_keys(q: Array, k: Array, positions: Array) -> tuple[Array, Array]:
    found = tables(positions, q.shape[-1], q)
    return halves(q, *found), halves(k, *found)


@right("by tables that are given")
def by_tables(x: Array, cos: Array, sin: Array) -> Array:
    wide = [np.concatenate([t, t], axis=-1) if t.shape[-1] < x.shape[-1] else t for t in (cos, sin)]
    a, b = np.split(x, 2, axis=-1)
    return x * wide[0] + np.concatenate([-b, a], axis=-1) * wide[1]


@right("neighbours as complex numbers", spec=_PAIRS)
def complex_numbers(x: Array, positions: Array) -> Array:
    cos, sin = tables(positions, x.shape[-1], x)
    z = (x[..., ::2] + 1j * x[..., 1::2]) * (cos + 1j * sin)
    return np.stack([z.real, z.imag], axis=-1).reshape(x.shape).astype(x.dtype)


@right("the first four columns", spec=_PART)
def part(x: Array, positions: Array) -> Array:
    return np.concatenate([halves(x[..., :4], *tables(positions, 4, x)), x[..., 4:]], axis=-1)


FAMILY.wrong(
    globals(),
    """
other_layout (at_positions), position: neighbours where halves are meant
    says 2l|interleaved|layout|pairs|neighbour
    halves → neighbours
backwards (at_positions), position: the sines' sign
    says sign|backwards|direction|−sin
    cos, sin = tables(positions, x.shape[-1], x)
    return halves(x, cos, -sin)
slow (at_positions), position: frequency exponent i/d in place of 2i/d
    says frequenc|exponent|base; source rasbt/LLMs-from-scratch#410
    d = x.shape[-1]
    theta = np.asarray(positions, np.float64)[..., None] * 10000.0 ** (-np.arange(d // 2) / d)
    return halves(x, np.cos(theta).astype(x.dtype), np.sin(theta).astype(x.dtype))
ignored (at_positions), position: positions are ignored
    says position & ignored|from 0|0, 1|left out|counted
    return from_zero(x)
from_one (from_zero), position: positions count from 1
    says one|1|start|off by
    return halves(x, *tables(np.arange(1, x.shape[-2] + 1), x.shape[-1], x))
keys_not_rotated (queries_and_keys), position: keys are not rotated
    says key
    return halves(q, *tables(positions, q.shape[-1], q)), k
part_frequencies (part), position: frequencies of the whole width where a part is rotated
    says frequenc|width|base; source pie-project/pie#603
    cos, sin = tables(positions, x.shape[-1], x)
    return np.concatenate([halves(x[..., :4], cos[..., :2], sin[..., :2]), x[..., 4:]], axis=-1)
tables_exchanged (by_tables), position: sine and cosine exchanged
    says exchanged|sine|cosine
    return by_tables(x, sin, cos)
bfloat_positions (at_positions), position: positions in bfloat16
    says bfloat16|rounded; shows positions above 256;
        at=At(n_q=4, d_k=6, given=lambda made: {"positions": made["positions"] + 1000});
        source huggingface/transformers#29285
    import ml_dtypes
    return at_positions(x, positions.astype(ml_dtypes.bfloat16).astype(np.float64))
one_half (at_positions), position: the second half of the pair is not rotated
    says half|pair|second|column
    cos, sin = tables(positions, x.shape[-1], x)
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b], axis=-1)
""",
)
