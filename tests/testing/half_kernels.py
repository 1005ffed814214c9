"""Right kernels in half precision, by what they store, and inputs of many kinds."""

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import pytest

from symattn.arrays.formats import Format
from symattn.testing import AttentionFault, assert_close_to_exact

Array = np.ndarray
Shape = tuple[int, int, int]
Inputs = Callable[[np.random.Generator, Shape], tuple[Array, Array, Array]]


def normal(rng: np.random.Generator, shape: Shape) -> tuple[Array, Array, Array]:
    q, k, v = rng.standard_normal((3, *shape))
    return q, k, v


def heavy(rng: np.random.Generator, shape: Shape) -> tuple[Array, Array, Array]:
    q, k, v = rng.standard_t(2, (3, *shape)).clip(-40, 40)
    return q, k, v


def outliers(rng: np.random.Generator, shape: Shape) -> tuple[Array, Array, Array]:
    q, k, v = normal(rng, shape)
    q[..., :2] *= 8
    k[..., :2] *= 4
    return q, k, v


def repeated(rng: np.random.Generator, shape: Shape) -> tuple[Array, Array, Array]:
    which = rng.integers(0, min(8, shape[1]), shape[1])
    return tuple(a[:, which] for a in normal(rng, shape))  # type: ignore[return-value]


def near_zero(rng: np.random.Generator, shape: Shape) -> tuple[Array, Array, Array]:
    q, k, v = normal(rng, shape)
    return q * 1e-3, k, v


def same_sign(rng: np.random.Generator, shape: Shape) -> tuple[Array, Array, Array]:
    q, k, v = normal(rng, shape)
    return q, k, 1 + 0.01 * v


def both(rng: np.random.Generator, shape: Shape) -> tuple[Array, Array, Array]:
    q, k, v = near_zero(rng, shape)
    return q, k, 1 + 0.1 * v


def whole(rng: np.random.Generator, shape: Shape) -> tuple[Array, Array, Array]:
    q, k, v = rng.integers(-2, 3, (3, *shape)).astype(float)
    return q, k, v


def padded(rng: np.random.Generator, shape: Shape) -> tuple[Array, Array, Array]:
    q, k, v = normal(rng, shape)
    for a in (q, k, v):
        a[:, shape[1] // 2 :] = 0
    return q, k, v


def constant(rng: np.random.Generator, shape: Shape) -> tuple[Array, Array, Array]:
    q, k, v = normal(rng, shape)
    return q, k, np.broadcast_to(np.abs(v[:, :1]), v.shape)


def shared(rng: np.random.Generator, shape: Shape) -> tuple[Array, Array, Array]:
    """Every head is the first."""
    return tuple(np.broadcast_to(a[:1], a.shape) for a in normal(rng, shape))  # type: ignore[return-value]


def near_thirty(rng: np.random.Generator, shape: Shape) -> tuple[Array, Array, Array]:
    q, k, v = normal(rng, shape)
    return q, k, 30 + v


INPUTS = (normal, heavy, outliers, repeated, near_zero, same_sign, both, whole, padded, constant, shared, near_thirty)


def made(f: Format, inputs: Inputs, shape: Shape, seed: int = 0) -> tuple[Array, Array, Array]:
    """Inputs as float64 whose numbers are of the format."""
    return tuple(f.rounded(a) for a in inputs(np.random.default_rng(seed), shape))  # type: ignore[return-value]


def scores(q: Array, k: Array, causal: bool, f: Format | None = None) -> Array:
    s = (q.astype(np.float32) @ k.swapaxes(-1, -2).astype(np.float32)).astype(float)
    s = s if f is None else f.rounded(s)
    s = s * np.float32(1 / sqrt(q.shape[-1]))
    return masked(s if f is None else f.rounded(s), causal)


def masked(s: Array, causal: bool = True) -> Array:
    if not causal:
        return s
    return np.where(np.tri(*s.shape[-2:], s.shape[-1] - s.shape[-2], dtype=bool), s, -np.inf)


def online(s: Array, v: Array, f: Format, tile: int = 64) -> Array:
    """Weights stored relative to the largest score so far."""
    m, total, out = np.full((*s.shape[:-1], 1), -np.inf), 0.0, 0.0
    for at in range(0, s.shape[-1], tile):
        now = s[..., at : at + tile]
        new = np.maximum(m, now.max(-1, keepdims=True))
        e, kept = np.exp(now - new).astype(np.float32), np.exp(m - new)
        total = total * kept + e.sum(-1, keepdims=True)
        out = (out * kept + f.rounded(e) @ v[..., at : at + tile, :]).astype(np.float32)
        m = new
    return f.rounded(out / total)


def weights(s: Array) -> Array:
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def wide(q: Array, k: Array, v: Array, f: Format, causal: bool = True) -> Array:
    return f.rounded(weights(scores(q, k, causal)) @ v)


def tiles(q: Array, k: Array, v: Array, f: Format, causal: bool = True) -> Array:
    return online(scores(q, k, causal), v, f)


def eager(q: Array, k: Array, v: Array, f: Format, causal: bool = True) -> Array:
    return f.rounded(f.rounded(weights(scores(q, k, causal, f))) @ v)


def scaled_first(q: Array, k: Array, v: Array, f: Format, causal: bool = True) -> Array:
    return online(masked(f.rounded(q / sqrt(q.shape[-1])) @ k.swapaxes(-1, -2), causal), v, f)


def roots(q: Array, k: Array, v: Array, f: Format, causal: bool = True) -> Array:
    root = q.shape[-1] ** -0.25
    return online(masked(f.rounded(q * root) @ f.rounded(k * root).swapaxes(-1, -2), causal), v, f)


def cut_off(q: Array, k: Array, v: Array, f: Format, causal: bool = True) -> Array:
    """As matrix units take sums: 16 products at a time are added, and what is below 24 bits is cut off."""
    s = scores(q, k, causal)
    e, out = np.exp(s - s.max(-1, keepdims=True)), np.zeros((*s.shape[:-1], v.shape[-1]))
    for at in range(0, s.shape[-1], 16):
        significand, power = np.frexp(out + f.rounded(e[..., at : at + 16]) @ v[..., at : at + 16, :])
        out = np.ldexp(np.trunc(significand * 2.0**24), power - 24)
    return f.rounded(out / e.sum(-1, keepdims=True))


KERNELS = (wide, tiles, cut_off, eager, scaled_first, roots)


def refused(out: Array, contract: str | None, **given: Any) -> list[str]:
    """Why ``assert_close_to_exact`` refuses an output, where no contract is told, and where this one is."""
    found = []
    for told in {None, contract}:
        try:
            assert_close_to_exact(out, **given, contract=told)  # type: ignore[arg-type]
        except AttentionFault as fault:
            found.append(f"{told}: {fault}")
    return found


def words(*given: Any, **told: Any) -> str:
    """Return the words in which ``assert_close_to_exact`` refuses an output."""
    with pytest.raises(AttentionFault) as fault:
        assert_close_to_exact(*given, **told)
    return str(fault.value)
