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


def causal(q: Array, k: Array, v: Array) -> Array:
    open_ = np.tri(len(q), len(k), len(k) - len(q), dtype=bool)
    s = q @ k.T / _root(q)
    return softmax(np.where(open_, s, np.asarray(-np.inf, dtype=s.dtype))) @ v


def masked(q: Array, k: Array, v: Array, mask: Array) -> Array:
    s = q @ k.T / _root(q)
    return softmax(np.where(mask, s, np.asarray(-np.inf, dtype=s.dtype))) @ v


MAKES: dict[Callable[..., Array], Attention] = {
    **dict.fromkeys((plain, in_loops), Attention()),
    causal: Attention(causal=True),
    masked: Attention(mask="boolean"),
}
