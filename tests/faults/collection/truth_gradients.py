"""Gradients of attention by loops: Σ_j dP_ij ∂P_ij/∂s_il, term by term."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn import Attention
from tests.faults.collection import truth
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
    q, k, v = truth.prepared(spec, given)
    above = np.asarray(given["dout"], dtype=np.float64).reshape(*q.shape[:-1], v.shape[-1])
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    reach = 1.0
    for index, i, row in truth.rows(spec, given, q, k, v):
        key = truth.key_head(index, q, k)
        p = truth.weights(spec, given, index, i, row)
        dp = v[key] @ above[index][i]
        for j in np.flatnonzero(np.isfinite(row)):
            slope = sum(dp[m] * p[m] * ((m == j) - p[j]) for m in range(len(row)))
            slope *= truth.factor(spec, given, index[-1], q.shape[-1])
            slope *= 1 - (row[j] / float(spec.softcap)) ** 2 if spec.softcap else 1.0
            dq[index][i] += slope * k[key][j]
            dk[key][j] += slope * q[index][i]
            dv[key][j] += p[j] * above[index][i]
            reach = max(reach, 1 + abs(row[j]))
    largest = float(np.abs(above).max() * np.abs(v).max())
    sizes = (np.abs(k).max(), np.abs(q).max() * len(q[0, ..., 0]), len(q[0, ..., 0]) / np.abs(v).max())
    return [
        (a.reshape(np.shape(given[n])), reach * largest * max(1.0, float(size)))
        for n, a, size in zip("qkv", (dq, dk, dv), sizes, strict=True)
    ]
