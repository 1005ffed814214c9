"""Rotary embeddings alone, wrong and right, as programs."""

import ml_dtypes  # noqa: F401, used in the text
import numpy as np

from symattn import Rotary
from tests.faults.programs import Program, wrong


def _frequencies(d, dtype, base=10000.0, times=2):
    exponents = np.arange(0, d // 2).astype(dtype) * dtype.type(times) / dtype.type(d)
    return (dtype.type(base) ** -exponents).astype(dtype)


def _angles(x, positions, **told):
    return positions[:, None].astype(x.dtype) * _frequencies(x.shape[-1], x.dtype, **told)


def _half(x, cos, sin):
    f = x.shape[-1] // 2
    a, b = x[..., :f], x[..., f:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def _rotated(x):
    f = x.shape[-1] // 2
    return np.concatenate([-x[..., f:], x[..., :f]], axis=-1)


def half(x, positions):
    angles = _angles(x, positions)
    return _half(x, np.cos(angles), np.sin(angles))


def by_tables(q, k, cos, sin):
    return q * cos + _rotated(q) * sin, k * cos + _rotated(k) * sin


def from_zero(x):
    return half(np.swapaxes(x, 1, 2), np.arange(x.shape[1])).swapaxes(1, 2)


def interleaved(x, positions):
    angles = _angles(x, positions)
    c, s, a, b = np.cos(angles), np.sin(angles), x[..., ::2], x[..., 1::2]
    return np.stack([a * c - b * s, b * c + a * s], axis=-1).reshape(x.shape)


def partly(x, positions):
    return np.concatenate([half(x[..., :4], positions), x[..., 4:]], axis=-1)


RIGHT = (
    Program("half", half, Rotary()),
    Program("tables", by_tables, Rotary()),
    Program("from zero", from_zero, Rotary()),
    Program("interleaved", interleaved, Rotary(layout="interleaved")),
    Program("partly", partly, Rotary(width=4)),
)
WRONG = wrong(
    globals(),
    RIGHT,
    """
turns_neighbours (half), position: neighbouring columns 2l and 2l + 1 are rotated together, not column l with l + r/2
    return interleaved(x, positions)
turns_halves (interleaved), position: column l is rotated with l + r/2, not with its neighbour
    return half(x, positions)
one_over_d (half), position: the exponents of the frequencies are l/r, not 2l/r
    _angles(x, positions) → _angles(x, positions, times=1)
in_bfloat16 (half), position: positions are rounded to bfloat16
    return half(x, positions.astype(ml_dtypes.bfloat16).astype(np.float32))
other_way (by_tables), position: the rotation is the other way round: angles have the other sign
    return q * cos - _rotated(q) * sin, k * cos - _rotated(k) * sin
laid_apart (half), position: halves are exchanged with angles that are laid out for neighbours
    angles = np.repeat(_angles(x, positions), 2, axis=-1)
    return x * np.cos(angles) + _rotated(x) * np.sin(angles)
of_all_columns (partly), position: the frequencies are those of all columns, not of the ones that are rotated
    angles = _angles(x, positions)[:, :2]
    return np.concatenate([_half(x[..., :4], np.cos(angles), np.sin(angles)), x[..., 4:]], axis=-1)
base (half), position: the base of the frequencies is 10000, not 500000
    at spec=Rotary(base=500000)
    return half(x, positions)
from_one (half), position: positions are one too large
    at precision="float64"
    return half(x, positions + 1)
""",
)
