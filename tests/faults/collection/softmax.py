"""The softmax: maximum, exponential, sum, sink."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn import Attention, Domain
from tests.faults.collection.entries import At, Family

Array = Any
FAMILY = Family("softmax")
right, wrong = FAMILY.right, FAMILY.wrong
_CAUSAL = Attention(causal=True)
_BOOLEAN = Attention(mask="boolean")
_SINK = Attention(heads=2, sink="given")
_ZERO_SINK = Attention(sink="zero")
_HEADS = Attention(heads=3)
_SMALL = Domain(max_abs_score=30.0)
_HUGE = At(spread=30.0)


def scores(q: Array, k: Array) -> Array:
    return np.matmul(q, k.swapaxes(-1, -2)) / np.sqrt(np.asarray(q.shape[-1], q.dtype))


def softmax(s: Array) -> Array:
    p = np.exp(s - np.max(s, axis=-1, keepdims=True))
    return p / np.sum(p, axis=-1, keepdims=True)


def causal_bias(s: Array) -> Array:
    n_q, n_k = s.shape[-2:]
    return np.where(np.tri(n_q, n_k, n_k - n_q, dtype=bool), 0, -np.inf).astype(s.dtype)


@right("no maximum is subtracted, scores are promised to be small", domain=_SMALL)
def bare_exponentials(q: Array, k: Array, v: Array) -> Array:
    e = np.exp(scores(q, k))
    return e @ v / e.sum(axis=-1, keepdims=True)


@right("log-softmax first, then the exponential")
def by_log_softmax(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    s = s - s.max(axis=-1, keepdims=True)
    return np.exp(s - np.log(np.exp(s).sum(axis=-1, keepdims=True))) @ v


@right("logaddexp over the keys", spec=_CAUSAL)
def by_logaddexp(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    s = s + causal_bias(s)
    lse = np.logaddexp.reduce(s, axis=-1, keepdims=True)
    return np.exp(s - lse) @ v


@right(
    "an upper bound of the scores by Cauchy and Schwarz in the place of the maximum", domain=Domain(max_abs_score=30.0)
)
def bound_for_maximum(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    e = np.exp(s - np.abs(s).max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True)) @ v


@right(
    "the first key's score in the place of the maximum, differences promised to be small",
    domain=Domain(max_abs_score=20.0),
)
def first_score_for_maximum(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    e = np.exp(s - s[:, :1])
    return (e / e.sum(axis=-1, keepdims=True)) @ v


@right("ones beside the values, so that one product gives numerator and denominator")
def ones_column(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    wide = p @ np.concatenate([v, np.ones((len(v), 1), v.dtype)], axis=1)
    return wide[:, :-1] / wide[:, -1:]


@right("the reciprocal of the sum is taken once a row")
def reciprocal(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    p = np.exp(s - s.max(axis=-1)[:, None])
    inverse = 1.0 / p.sum(axis=-1, keepdims=True)
    return (p * inverse) @ v


@right("sums with compensation after Kahan")
def kahan_sum(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    total, rest = np.zeros(len(q), q.dtype), np.zeros(len(q), q.dtype)
    for column in p.T:
        y = column - rest
        t = total + y
        rest = (t - total) - y
        total = t
    return (p @ v) / total[:, None]


@wrong(
    "max",
    "no maximum subtracted: overflow",
    "maximum|largest|overflow",
    shows="scores above 88",
    at=_HUGE,
    near="by_log_softmax",
)
def no_maximum(q: Array, k: Array, v: Array) -> Array:
    with np.errstate(all="ignore"):
        e = np.exp(scores(q, k))
        return e / e.sum(axis=-1, keepdims=True) @ v


@wrong(
    "max",
    "the maximum of the whole array",
    "maximum",
    shows="rows far below the largest score",
    near="by_log_softmax",
    at=At(spread=20.0),
)
def common_maximum(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    with np.errstate(all="ignore"):
        e = np.exp(s - s.max())
        return e / e.sum(axis=-1, keepdims=True) @ v


@wrong(
    "max",
    "a hard-coded 10 in place of the maximum",
    "10|maximum|overflow",
    shows="scores above 98",
    at=_HUGE,
    near="first_score_for_maximum",
    source="HabanaAI/vllm-fork#275",
)
def constant_for_maximum(q: Array, k: Array, v: Array) -> Array:
    with np.errstate(all="ignore"):
        e = np.exp(scores(q, k) - np.float32(10))
        return e / e.sum(axis=-1, keepdims=True) @ v


@wrong(
    "max",
    "the minimum is subtracted",
    "minimum|maximum|overflow",
    shows="a spread of scores above 88",
    at=_HUGE,
    near="by_log_softmax",
)
def minimum(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    with np.errstate(all="ignore"):
        e = np.exp(s - s.min(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True) @ v


@wrong(
    "max",
    "the maximum is at least 0, so that low rows underflow",
    "maximum|underflow|0",
    shows="a row of scores below -88",
    near="off_by_one",
    at=At(given=lambda made: {"q": abs(made["q"]) * 40, "k": -abs(made["k"]) * 40}),
)
def maximum_from_zero(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    m = np.zeros((len(q), 1), q.dtype)
    for j in range(s.shape[1]):
        m = np.maximum(m, s[:, j : j + 1])
    with np.errstate(all="ignore"):
        e = np.exp(s - m)
        return e @ v / e.sum(axis=-1, keepdims=True)


@wrong(
    "max",
    "the maximum of each column",
    "maximum|column|queries",
    shows="scores of different columns far apart",
    near="by_log_softmax",
    at=At(spread=20.0),
)
def maximum_of_columns(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    with np.errstate(all="ignore"):
        e = np.exp(s - s.max(axis=0, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True) @ v


@wrong(
    "exp",
    "exponents cut at -4",
    "exponent|clamp|cut|clip|−4|-4",
    shows="scores more than 4 below the maximum",
    near="by_log_softmax",
    at=At(spread=2.0),
)
def exponents_clipped(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    e = np.exp(np.clip(s - s.max(axis=-1, keepdims=True), -4, 0))
    return (e / e.sum(axis=-1, keepdims=True)) @ v


@wrong(
    "exp",
    "a cubic in place of the exponential",
    "exponential|approximat|polynomial|taylor|cubic|series",
    near="by_log_softmax",
)
def exponential_by_series(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    x = s - s.max(axis=-1, keepdims=True)
    half = x / 8
    e = (1 + half + half**2 / 2 + half**3 / 6) ** 8
    return (e / e.sum(axis=-1, keepdims=True)) @ v


@wrong("exp", "exponentials in float16", "float16|half|lower precision|precision", near="by_log_softmax")
def exponentials_in_half(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    e = np.exp((s - s.max(axis=-1, keepdims=True)).astype(np.float16)).astype(q.dtype)
    return (e / e.sum(axis=-1, keepdims=True)) @ v
