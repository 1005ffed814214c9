"""Formats: what may be stored and summed in half precision, and what may not."""

from typing import Any

import ml_dtypes
import numpy as np

from symattn import Attention, Domain
from tests.faults.collection.entries import At, Family
from tests.faults.programs import softmax

Array = Any
FAMILY = Family("precisions")
right = FAMILY.right
_BF16 = ml_dtypes.bfloat16
_CAUSAL = Attention(causal=True)


def attend(q: Array, k: Array, v: Array) -> Array:
    return softmax(q @ k.T / np.sqrt(np.asarray(q.shape[-1], q.dtype))) @ v


@right("float64 throughout", precision="float64")
def double(q: Array, k: Array, v: Array) -> Array:
    return attend(q, k, v)


@right("float32 arrays computed in float64, rounded at the end")
def wider_inside(q: Array, k: Array, v: Array) -> Array:
    return attend(*(a.astype(np.float64) for a in (q, k, v))).astype(q.dtype)


@right("float32 arrays, float64 returned")
def wider_returned(q: Array, k: Array, v: Array) -> Array:
    return attend(*(a.astype(np.float64) for a in (q, k, v)))


@right("float16 in and out, float32 between", precision="float16")
def half_with_float_sums(q: Array, k: Array, v: Array) -> Array:
    return attend(*(a.astype(np.float32) for a in (q, k, v))).astype(np.float16)


@right("bfloat16 in and out, float32 between", precision="bfloat16")
def bfloat_with_float_sums(q: Array, k: Array, v: Array) -> Array:
    return attend(*(a.astype(np.float32) for a in (q, k, v))).astype(_BF16)


@right("weights stored as float16 before they meet the values", precision="float16")
def half_weights(q: Array, k: Array, v: Array) -> Array:
    q, k = q.astype(np.float32), k.astype(np.float32)
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(np.float32)
    p = softmax(s).astype(np.float16)
    return (p.astype(np.float32) @ v.astype(np.float32)).astype(np.float16)


@right("exponentials stored as bfloat16, divided by their float32 sum at the end", precision="bfloat16")
def bfloat_exponentials(q: Array, k: Array, v: Array) -> Array:
    q, k = q.astype(np.float32), k.astype(np.float32)
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(np.float32)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    out = e.astype(_BF16).astype(np.float32) @ v.astype(np.float32)
    return (out / e.sum(axis=-1, keepdims=True)).astype(_BF16)


@right("scores stored as bfloat16, the softmax in float32", precision="bfloat16")
def bfloat_scores(q: Array, k: Array, v: Array) -> Array:
    s = (q.astype(np.float32) @ k.astype(np.float32).T).astype(_BF16)
    s = s.astype(np.float32) / np.sqrt(q.shape[-1]).astype(np.float32)
    return (softmax(s) @ v.astype(np.float32)).astype(_BF16)


@right("tiles of bfloat16 with float32 accumulators", precision="bfloat16", at=At(n_k=21))
def bfloat_tiles(q: Array, k: Array, v: Array) -> Array:
    q, k, v = (a.astype(np.float32) for a in (q, k, v))
    m = np.full((len(q), 1), -np.inf, np.float32)
    z, acc = np.zeros_like(m), np.zeros((len(q), v.shape[1]), np.float32)
    for j in range(0, len(k), 8):
        s = q @ k[j : j + 8].T * np.float32(q.shape[1] ** -0.5)
        new = np.maximum(m, s.max(axis=1, keepdims=True))
        a, p = np.exp(m - new), np.exp(s - new)
        z = z * a + p.sum(axis=1, keepdims=True)
        acc = acc * a + p.astype(_BF16).astype(np.float32) @ v[j : j + 8]
        m = new
    return (acc / z).astype(_BF16)


@right("float16 throughout, scores promised to be small", precision="float16", domain=Domain(max_abs_score=20.0))
def half_throughout(q: Array, k: Array, v: Array) -> Array:
    return attend(q, k, v)


def inputs_in_half(q: Array, k: Array, v: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        s = (q.astype(np.float16).astype(np.float32) @ k.astype(np.float16).astype(np.float32).T) / np.float32(
            np.sqrt(q.shape[-1])
        )
        return softmax(s) @ v


def values_summed_in_half(q: Array, k: Array, v: Array) -> Array:
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    p = softmax(s).astype(np.float16)
    with np.errstate(over="ignore", invalid="ignore"):
        acc = np.zeros((len(q), v.shape[1]), np.float16)
        for j in range(len(k)):
            acc += p[:, j : j + 1] * v[j].astype(np.float16)
    return acc.astype(q.dtype)


def half_causal_one_ahead(q: Array, k: Array, v: Array) -> Array:
    q, k, v = (a.astype(np.float32) for a in (q, k, v))
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(np.float32)
    late = len(k) - len(q)
    s += np.triu(np.full(s.shape, -1e4, np.float32), late + 2)
    return (softmax(s) @ v).astype(np.float16)


FAMILY.wrong(
    globals(),
    """
weights_in_bfloat (wider_inside), values: weights rounded to bfloat16 in float32 code
    says bfloat16|weights|precision|rounded|half
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    p = softmax(s).astype(_BF16).astype(q.dtype)
    return p @ v
inputs_in_half (wider_inside), score: queries and keys rounded to float16 in float32 code
    says float16|half|precision|rounded
values_summed_in_half (half_weights), values: the sum over values accumulated in float16
    says float16|half|precision|accumul; precision="float32"
denominator_in_bfloat (wider_inside), normalize: the sum of the exponentials stored as bfloat16
    says sum|bfloat16|precision|denominator|rounded
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    z = e.sum(axis=-1, keepdims=True).astype(_BF16).astype(q.dtype)
    return e @ v / z
float_scores_of_double (double), score: float64 arrays multiplied in float32
    says float32|precision|rounded|single
    s = (q.astype(np.float32) @ k.astype(np.float32).T).astype(np.float64) / np.sqrt(q.shape[-1])
    return softmax(s) @ v
float_exponentials_of_double (double), exp: exponentials of float64 scores in float32
    says exp|float32|precision|rounded|single
    s = q @ k.T / np.sqrt(q.shape[-1])
    e = np.exp((s - s.max(axis=-1, keepdims=True)).astype(np.float32)).astype(np.float64)
    return e / e.sum(axis=-1, keepdims=True) @ v
scale_in_bfloat (wider_inside), scale: the scale rounded to bfloat16
    says scale; at=At(d_k=6)
    s = q @ k.T * np.asarray(q.shape[-1] ** -0.5, _BF16).astype(q.dtype)
    return softmax(s) @ v
scale_with_two_digits (double), scale: 1/sqrt(d) written as 0.35 for d = 8
    says scale; shows d_k = 8; at=At(d_k=8)
    f = {4: 0.5, 8: 0.35, 16: 0.25, 64: 0.125}.get(q.shape[-1], q.shape[-1] ** -0.5)
    s = q @ k.T * f
    return softmax(s) @ v
half_scores_overflow (half_with_float_sums), score: float16 scores overflow before they are scaled
    says overflow|65504|float16|inf|half; shows |q.k| > 65504; at=At(spread=300.0); source stanford-crfm/mistral#67
    with np.errstate(over="ignore", invalid="ignore"):
        s = (q.astype(np.float32) @ k.astype(np.float32).T).astype(np.float16)
        s = s.astype(np.float32) / np.sqrt(q.shape[-1]).astype(np.float32)
        return (softmax(s) @ v.astype(np.float32)).astype(np.float16)
bfloat_unscaled (bfloat_scores), scale: no scale in bfloat16
    says not scaled|unscaled
    s = q.astype(np.float32) @ k.astype(np.float32).T
    return (softmax(s) @ v.astype(np.float32)).astype(_BF16)
half_causal_one_ahead (half_with_float_sums), mask: the causal mask lets the next key in, in float16
    says next key|off by one; spec=_CAUSAL
""",
)
