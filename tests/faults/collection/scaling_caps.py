"""Scores, and the cap."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from symattn import Attention, Domain
from tests.faults.collection.entries import At
from tests.faults.collection.scaling import FAMILY, softmax

Array = Any
right, wrong = FAMILY.right, FAMILY.wrong
_CAP = Attention(softcap=5)
_CAP_CAUSAL = Attention(softcap=5, causal=True)
_WIDE = At(spread=2.0)


@right("cap by a hyperbolic tangent", spec=_CAP, at=_WIDE)
def capped(q: Array, k: Array, v: Array, softcap: float) -> Array:
    s = q @ k.T * q.dtype.type(q.shape[-1] ** -0.5)
    return softmax(np.tanh(s / q.dtype.type(softcap)) * q.dtype.type(softcap)) @ v


@right("cap by a logistic function, tanh x = 2 / (1 + e^(-2x)) - 1", spec=_CAP_CAUSAL, at=_WIDE)
def capped_by_logistic(q: Array, k: Array, v: Array, softcap: float) -> Array:
    c = q.dtype.type(softcap)
    s = q @ k.T / q.dtype.type(math.sqrt(q.shape[-1]))
    s = c * (2 / (1 + np.exp(-2 * s / c)) - 1)
    n_q, n_k = s.shape
    s = np.where(np.tri(n_q, n_k, n_k - n_q, dtype=bool), s, -np.inf).astype(q.dtype)
    return softmax(s) @ v


@right("capped and causal, the cap before the mask", spec=_CAP_CAUSAL, at=_WIDE)
def capped_then_masked(q: Array, k: Array, v: Array) -> Array:
    s = 5 * np.tanh(q @ k.T / np.float32(5 * math.sqrt(q.shape[-1])))
    rows, cols = np.indices(s.shape)
    s[cols > rows + s.shape[1] - s.shape[0]] = -np.inf
    return softmax(s) @ v


@wrong(
    "score", "scores of queries with queries", "q qᵀ|queries are used as keys", near="plain", domain=Domain(square=True)
)
def queries_twice(q: Array, k: Array, v: Array) -> Array:
    return softmax(q @ q.T / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v


@wrong("score", "K Q^T for Q K^T", "k qᵀ|exchanged|transposed", near="plain", domain=Domain(square=True))
def scores_transposed(q: Array, k: Array, v: Array) -> Array:
    return softmax(k @ q.T / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v


@wrong(
    "score",
    "scores formed in float16 before scaling",
    "float16|half|overflow|65504",
    shows="|q.k| > 65504, and by rounding",
    near="plain",
    at=At(spread=200.0),
    source="stanford-crfm/mistral#67",
)
def scores_in_half(q: Array, k: Array, v: Array) -> Array:
    s = (q.astype(np.float16) @ k.T.astype(np.float16)).astype(q.dtype)
    return softmax(s / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v


@wrong(
    "score",
    "only the first 64 components take part",
    "64|first columns|truncated|columns",
    shows="d_k > 64",
    near="plain",
    at=At(d_k=70),
)
def one_tile_of_the_head(q: Array, k: Array, v: Array) -> Array:
    block = 64
    s = q[:, :block] @ k[:, :block].T
    return softmax(s / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v


@wrong(
    "score",
    "the last odd component is dropped by a loop over pairs",
    "odd|last column|last component|pairs",
    shows="d_k odd",
    near="plain",
    at=At(d_k=5),
)
def pairs_of_columns(q: Array, k: Array, v: Array) -> Array:
    s = np.zeros((len(q), len(k)), q.dtype)
    for c in range(0, q.shape[1] - 1, 2):
        s += q[:, c : c + 2] @ k[:, c : c + 2].T
    return softmax(s / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v


@wrong(
    "softcap",
    "the cap comes before the scale",
    "cap",
    "before",
    spec=_CAP,
    at=_WIDE,
    near="capped",
    source="huggingface/trl#5691",
)
def cap_before_scale(q: Array, k: Array, v: Array) -> Array:
    s = 5 * np.tanh(q @ k.T / np.float32(5))
    return softmax(s / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v


@wrong(
    "softcap",
    "the cap comes after the mask: -inf becomes -cap",
    "cap",
    "after",
    shows="some key forbidden",
    spec=_CAP_CAUSAL,
    at=_WIDE,
    near="capped_then_masked",
    source="onnx/onnx#7865",
)
def cap_after_mask(q: Array, k: Array, v: Array, softcap: float) -> Array:
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    n_q, n_k = s.shape
    s = np.where(np.tri(n_q, n_k, n_k - n_q, dtype=bool), s, -np.inf).astype(q.dtype)
    s = np.tanh(s / q.dtype.type(softcap)) * q.dtype.type(softcap)
    return softmax(s) @ v


@wrong("softcap", "the cap is not multiplied back", "cap", "not multiplied|without|tanh(s/c)", spec=_CAP, near="capped")
def cap_not_multiplied_back(q: Array, k: Array, v: Array, softcap: float) -> Array:
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    return softmax(np.tanh(s / q.dtype.type(softcap))) @ v


@wrong("softcap", "scores are cut at the cap, no tanh", "cap", "clip|cut|clamp", spec=_CAP, at=_WIDE, near="capped")
def cap_by_clipping(q: Array, k: Array, v: Array, softcap: float) -> Array:
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    return softmax(np.clip(s, -softcap, softcap)) @ v


@wrong(
    "softcap",
    "the cap is left out",
    "cap",
    "left out|ignored|missing|no cap|not capped",
    spec=_CAP,
    at=_WIDE,
    near="capped",
)
def cap_left_out(q: Array, k: Array, v: Array, softcap: float = 0.0) -> Array:
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    return softmax(s) @ v
