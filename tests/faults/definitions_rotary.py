"""Rotary embeddings alone, wrong and right, as programs."""

import numpy as np

from symattn import Rotary
from tests.faults.programs import Program, wrong


def _angles(x, positions):
    d = x.shape[-1]
    exponents = np.arange(0, d // 2).astype(x.dtype) * x.dtype.type(2) / x.dtype.type(d)
    return positions[:, None].astype(x.dtype) * (x.dtype.type(10000) ** -exponents).astype(x.dtype)


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


def from_zero(x):
    return half(np.swapaxes(x, 1, 2), np.arange(x.shape[1])).swapaxes(1, 2)


def interleaved(x, positions):
    angles = _angles(x, positions)
    c, s, a, b = np.cos(angles), np.sin(angles), x[..., ::2], x[..., 1::2]
    return np.stack([a * c - b * s, b * c + a * s], axis=-1).reshape(x.shape)


RIGHT = (
    Program("half", half, Rotary()),
    Program("from zero", from_zero, Rotary()),
    Program("interleaved", interleaved, Rotary(layout="interleaved")),
)
WRONG = wrong(
    globals(),
    RIGHT,
    """
turns_halves (interleaved), position: column l is rotated with l + r/2, not with its neighbour
    return half(x, positions)
laid_apart (half), position: halves are exchanged with angles that are laid out for neighbours
    angles = np.repeat(_angles(x, positions), 2, axis=-1)
    return x * np.cos(angles) + _rotated(x) * np.sin(angles)
base (half), position: the base of the frequencies is 10000, not 500000
    at spec=Rotary(base=500000)
    return half(x, positions)
""",
)
