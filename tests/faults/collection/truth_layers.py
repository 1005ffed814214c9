"""Norms, rotations and linear attention by loops, and the inputs that they are tried with."""

from math import exp, sqrt
from typing import Any

import numpy as np

from tests.faults.collection.entries import At

Array = Any
Given = dict[str, Array]
Sized = tuple[Array, float]  # an output, and how large the numbers were on the way


def norm_inputs(spec: Any, at: At, rng: np.random.Generator) -> Given:
    """Rows, a gain and a bias."""
    x = rng.standard_normal((*at.batch, at.n_q, at.d_k)) * at.spread
    return {"x": x, "gain": rng.integers(1, 7, at.d_k) / 4.0, "bias": rng.integers(-4, 5, at.d_k) / 2.0}


def rotation_inputs(spec: Any, at: At, rng: np.random.Generator) -> Given:
    """One array, or queries and keys; positions, and tables of cosines and sines for them."""
    x, q, k = rng.standard_normal((3, at.n_q, at.d_k)) * at.spread
    positions = np.cumsum(rng.integers(1, 4, at.n_q)) + 5
    theta = positions[:, None] * _rates(spec, at.d_k)
    return {"x": x, "q": q, "k": k, "positions": positions, "cos": np.cos(theta), "sin": np.sin(theta)}


def _rates(spec: Any, d: int) -> Array:
    r = spec.width or d
    return np.array([float(spec.base) ** (-2.0 * m / r) for m in range(r // 2)])


def rotation(spec: Any, given: Given) -> list[Sized]:
    """Each pair of columns rotated by its angle, number by number."""
    found = []
    for name in ("q", "k") if "q" in given else ("x",):
        x = np.asarray(given[name])
        n, d = x.shape
        positions = given.get("positions", spec.start + np.arange(n))
        theta = np.asarray(positions, dtype=np.float64)[:, None] * _rates(spec, d)
        cos, sin = given.get("cos", np.cos(theta)), given.get("sin", np.sin(theta))
        out, r = x.copy(), 2 * theta.shape[1]
        for m in range(r // 2):
            one, two = (m, m + r // 2) if spec.layout == "half" else (2 * m, 2 * m + 1)
            out[:, one] = x[:, one] * cos[:, m] - x[:, two] * sin[:, m]
            out[:, two] = x[:, two] * cos[:, m] + x[:, one] * sin[:, m]
        found.append((out, max(1.0, float(np.abs(x).max()))))
    return found


def linear_inputs(spec: Any, at: At, rng: np.random.Generator) -> Given:
    """As many queries as keys."""
    shapes = {"q": (at.n_k, at.d_k), "k": (at.n_k, at.d_k), "v": (at.n_k, at.d_v)}
    return {n: rng.standard_normal(shape) * at.spread for n, shape in shapes.items()}


def linear(spec: Any, given: Given) -> list[Sized]:
    """Each weight by itself, without gates."""
    q, k, v = (np.asarray(given[n]) for n in "qkv")
    if spec.feature == "elu":
        q, k = (np.array([[t + 1 if t > 0 else exp(t) for t in row] for row in a]) for a in (q, k))
    out, size = np.zeros_like(v), 1.0
    for i in range(len(q)):
        row = [float(q[i] @ k[j]) for j in range(i + 1 if spec.causal else len(k))]
        total = sum(row) if spec.normalised else 1.0
        out[i] = sum(a * v[j] for j, a in enumerate(row)) / total
        size = max(size, sum(abs(a) for a in row) / abs(total) * float(np.abs(v).max()))
    return [(out, size)]


def norm(spec: Any, given: Given) -> list[Sized]:
    """Layer norm, or RMS norm, row by row."""
    x, eps = np.asarray(given["x"]), float(spec.eps)
    gain = np.asarray(given.get("gain", np.ones(x.shape[-1]))) + float(spec.one_plus and "gain" in given)
    bias = np.asarray(given.get("bias", np.zeros(x.shape[-1])))
    out, size = np.empty_like(x), 1.0
    for row in np.ndindex(x.shape[:-1]):
        numbers = [float(t) for t in x[row]]
        mean = sum(numbers) / len(numbers) if type(spec).__name__ == "LayerNorm" else 0.0
        square = sum((t - mean) ** 2 for t in numbers) / len(numbers)
        root = sqrt(square + eps)
        out[row] = [(t - mean) / root * g + b for t, g, b in zip(numbers, gain, bias, strict=True)]
        reach = max(map(abs, numbers)) / root
        size = max(size, reach * float(np.abs(gain).max()) + float(np.abs(bias).max()))
    return [(out, size)]
