"""The definition by loops (``tests.attention.by_loops``): what decides which programs of the collection are wrong."""

from math import exp, sqrt
from typing import Any

import mpmath
import numpy as np

from symattn import Attention
from tests.attention import by_loops
from tests.attention.definition import Definition, by_batches, nested
from tests.faults.collection.entries import At

Array = Any
Given = dict[str, Array]
Sized = tuple[Array, float]  # an output, and how large the numbers were on the way


def attention(spec: Attention, given: Given) -> list[Sized]:
    """Return each output with how large the numbers were on the way: max |v| (1 + max |s|) of the first."""
    given = {n: np.nan_to_num(a) if n in ("k", "v") else np.asarray(a) for n, a in given.items()}  # NaN where forbidden
    with mpmath.workdps(25):
        batch, found = by_batches(Definition(spec, given), spec)
    reach = 1 + max((abs(float(s)) for one in found for s in one["scores"]), default=0.0)
    values = given["v"] if "v" in given else values_of(spec, given)
    size = reach * max(1.0, float(np.abs(values).max()))
    size *= float(np.abs(given["w_o"]).sum(axis=0).max()) if "w_o" in given else 1.0
    outputs = [np.array([one[name] for one in found], dtype=float) for name in ("output", "lse")]
    shaped = [a.reshape(*batch, *a.shape[1:]) for a in outputs]
    return [(shaped[0], size), (shaped[1], reach)][: 1 + spec.lse]


def values_of(spec: Attention, given: Given) -> Array:
    """Return the values that are made of tokens, of the first batch."""
    first = {n: nested(np.asarray(a[(0,) * (a.ndim - 2)] if n in "xy" else a)) for n, a in given.items()}
    return np.array(by_loops.heads_of(spec, first)[2], dtype=float)


# -- Norms, rotations and linear attention by loops, and the inputs that they are tried with ---------------------------
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


# -- Gradients of attention by loops: Σ_j dP_ij ∂P_ij/∂s_il, term by term ----------------------------------------------
def make(spec: Attention, at: At, rng: np.random.Generator) -> Given:
    """q, k, v and the gradient of the output."""
    h, g = ((spec.heads,), (spec.key_heads,)) if spec.heads > 1 else ((), ())
    shapes = {
        "q": (*h, at.n_q, at.d_k), "k": (*g, at.n_k, at.d_k), "v": (*g, at.n_k, at.d_v), "dout": (*h, at.n_q, at.d_v),
    }  # fmt: skip
    return {n: rng.standard_normal(shape) * at.spread for n, shape in shapes.items()}


def gradients(spec: Attention, given: Given) -> list[Sized]:
    """The gradients of q, k and v."""
    lists = {n: nested(a) for n, a in given.items() if n != "dout"} | {"n_q": given["q"].shape[-2]}
    q, k, v, above = (a if spec.heads > 1 else a[None] for a in (given[n] for n in ("q", "k", "v", "dout")))
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    reach, keys = 1.0, by_loops.heads_of(spec, lists)
    for h, i in np.ndindex(q.shape[:2]):
        g = h * len(k) // len(q)
        one = {name: by_loops.of_head(name, a, h) for name, a in lists.items()}
        weights, total, _ = by_loops.row(spec, one, h, keys[0][h], keys[1][g], i)
        p, dp = np.array(weights, dtype=float), v[g] @ above[h, i]
        for j in np.flatnonzero(p):
            s = float(mpmath.log(weights[j]) + total)
            slope = sum(dp[m] * p[m] * ((m == j) - p[j]) for m in range(len(p)))
            slope *= float(by_loops.scaled(spec, one, 1, q.shape[-1]))
            slope *= 1 - (s / float(spec.softcap)) ** 2 if spec.softcap else 1.0
            dq[h, i] += slope * k[g, j]
            dk[g, j] += slope * q[h, i]
            dv[g, j] += p[j] * above[h, i]
            reach = max(reach, 1 + abs(s))
    largest = float(np.abs(above).max() * np.abs(v).max())
    sizes = (np.abs(k).max(), np.abs(q).max() * len(q[0, ..., 0]), len(q[0, ..., 0]) / np.abs(v).max())
    return [
        (a.reshape(np.shape(given[n])), reach * largest * max(1.0, float(size)))
        for n, a, size in zip("qkv", (dq, dk, dv), sizes, strict=True)
    ]
