"""Gradients of attention by loops: Σ_j dP_ij ∂P_ij/∂s_il, term by term."""

from typing import Any

import mpmath
import numpy as np

from symattn import Attention
from tests.attention import by_loops
from tests.attention.pieces import nested
from tests.faults.collection.entries import At
from tests.faults.collection.truth_layers import Given, Sized

Array = Any


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
