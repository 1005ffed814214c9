"""The softmax: maximum, exponential, sum, sink."""

from typing import Any

import numpy as np

from symattn import Attention, Domain
from tests.faults.collection.entries import At, Family

Array = Any
FAMILY = Family("softmax")
right = FAMILY.right
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


@right("a sink beside the scores as one more column, dropped after the softmax", spec=_SINK)
def sink_as_column(q: Array, k: Array, v: Array, sink: Array) -> Array:
    s = scores(q, k)
    column = np.broadcast_to(sink[:, None, None], (*s.shape[:-1], 1)).astype(s.dtype)
    return softmax(np.concatenate([s, column], axis=-1))[..., :-1] @ v


@right("the sink in the denominator, under the maximum of the keys", spec=_SINK, domain=_SMALL)
def sink_in_denominator(q: Array, k: Array, v: Array, sinks: Array) -> Array:
    s = scores(q, k)
    m = s.max(axis=-1, keepdims=True)
    e = np.exp(s - m)
    return e @ v / (e.sum(axis=-1, keepdims=True) + np.exp(sinks.reshape(-1, 1, 1) - m))


@right("one more in the denominator, e^(-m) after the maximum", spec=_ZERO_SINK)
def off_by_one(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    m = np.maximum(s.max(axis=-1, keepdims=True), 0)
    e = np.exp(s - m)
    return e @ v / (e.sum(axis=-1, keepdims=True) + np.exp(-m))


def minimum(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    with np.errstate(all="ignore"):
        e = np.exp(s - s.min(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True) @ v


def maximum_from_zero(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    m = np.zeros((len(q), 1), q.dtype)
    for j in range(s.shape[1]):
        m = np.maximum(m, s[:, j : j + 1])
    with np.errstate(all="ignore"):
        e = np.exp(s - m)
        return e @ v / e.sum(axis=-1, keepdims=True)


FAMILY.wrong(
    globals(),
    """
no_maximum (by_log_softmax), max: no maximum subtracted: overflow
    says maximum|largest|overflow; shows scores above 88; at=_HUGE
    with np.errstate(all="ignore"):
        e = np.exp(scores(q, k))
        return e / e.sum(axis=-1, keepdims=True) @ v
common_maximum (by_log_softmax), max: the maximum of the whole array
    says maximum; shows rows far below the largest score; at=At(spread=20.0)
    s = scores(q, k)
    with np.errstate(all="ignore"):
        e = np.exp(s - s.max())
        return e / e.sum(axis=-1, keepdims=True) @ v
constant_for_maximum (first_score_for_maximum), max: a hard-coded 10 in place of the maximum
    says 10|maximum|overflow; shows scores above 98; at=_HUGE; domain=Domain(); source HabanaAI/vllm-fork#275
    with np.errstate(all="ignore"):
        e = np.exp(scores(q, k) - np.float32(10))
        return e / e.sum(axis=-1, keepdims=True) @ v
minimum (by_log_softmax), max: the minimum is subtracted
    says minimum|maximum|overflow; shows a spread of scores above 88; at=_HUGE
maximum_from_zero (off_by_one), max: the maximum is at least 0, so that low rows underflow
    says maximum|underflow|0; shows a row of scores below -88;
        at=At(given=lambda made: {"q": abs(made["q"]) * 40, "k": -abs(made["k"]) * 40}); spec=Attention()
maximum_of_columns (by_log_softmax), max: the maximum of each column
    says maximum|column|queries; shows scores of different columns far apart; at=At(spread=20.0)
    s = scores(q, k)
    with np.errstate(all="ignore"):
        e = np.exp(s - s.max(axis=0, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True) @ v
exponents_clipped (by_log_softmax), exp: exponents cut at -4
    says exponent|clamp|cut|clip|−4|-4; shows scores more than 4 below the maximum; at=At(spread=2.0)
    s = scores(q, k)
    e = np.exp(np.clip(s - s.max(axis=-1, keepdims=True), -4, 0))
    return (e / e.sum(axis=-1, keepdims=True)) @ v
exponential_by_series (by_log_softmax), exp: a cubic in place of the exponential
    says exponential|approximat|polynomial|taylor|cubic|series
    s = scores(q, k)
    x = s - s.max(axis=-1, keepdims=True)
    half = x / 8
    e = (1 + half + half**2 / 2 + half**3 / 6) ** 8
    return (e / e.sum(axis=-1, keepdims=True)) @ v
exponentials_in_half (by_log_softmax), exp: exponentials in float16
    says float16|half|lower precision|precision
    s = scores(q, k)
    e = np.exp((s - s.max(axis=-1, keepdims=True)).astype(np.float16)).astype(q.dtype)
    return (e / e.sum(axis=-1, keepdims=True)) @ v
over_queries (by_log_softmax), normalize: the softmax runs over the queries
    says over the queries|query axis; source labmlai/annotated_deep_learning_paper_implementations#146
    s = scores(q, k)
    e = np.exp(s - s.max(axis=-2, keepdims=True))
    return (e / e.sum(axis=-2, keepdims=True)) @ v
over_heads(q, k, v) (sink_as_column), normalize: the softmax runs over the heads
    says over the heads|head axis; spec=_HEADS; source FudanNLP/fastNLP#254
    s = scores(q, k)
    e = np.exp(s - s.max(axis=0, keepdims=True))
    return (e / e.sum(axis=0, keepdims=True)) @ v
not_divided (ones_column), normalize: exponentials are not divided by their sum
    says not divided|not normalised|sum
    s = scores(q, k)
    return np.exp(s - s.max(axis=-1, keepdims=True)) @ v
over_everything (by_log_softmax), normalize: one softmax over the whole array
    says whole|all queries|every query|queries and keys together
    s = scores(q, k)
    e = np.exp(s - s.max())
    return (e / e.sum()) @ v
sum_over_forbidden(q, k, v, mask) (by_logaddexp), normalize|mask: divided by the sum of all keys, forbidden ones too
    says forbidden|masked|denominator|sum|after the softmax; spec=_BOOLEAN
    s = scores(q, k)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return (np.where(mask, e, 0) / e.sum(axis=-1, keepdims=True)) @ v
epsilon_in_denominator (reciprocal), normalize: 1e-3 added to the denominator
    says denominator|eps|1e-3|0.001|added
    s = scores(q, k)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e @ v / (e.sum(axis=-1, keepdims=True) + np.float32(1e-3))
by_length (reciprocal), normalize: weights divided by their L2 norm
    says l2|norm|squares|root
    s = scores(q, k)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return (e / np.linalg.norm(e, axis=-1, keepdims=True)) @ v
twice (by_log_softmax), normalize: softmax twice
    says twice|softmax of
    return softmax(softmax(scores(q, k))) @ v
sink_scaled (sink_as_column), sink: the sink multiplied by the scale
    says sink & scale; source ROCm/rocm-libraries#12229
    s = scores(q, k)
    b = sink.reshape(-1, 1, 1) / np.sqrt(q.shape[-1]).astype(q.dtype)
    m = np.maximum(s.max(axis=-1, keepdims=True), b)
    e = np.exp(s - m)
    return e @ v / (e.sum(axis=-1, keepdims=True) + np.exp(b - m))
sink_ignored (sink_as_column), sink: the sink is left out
    says sink & left out|ignored|missing|no sink
    return softmax(scores(q, k)) @ v
sink_without_maximum(q, k, v, sink) (sink_in_denominator), sink: e^sink is added without the maximum subtracted
    says sink & maximum|e^; domain=Domain()
    s = scores(q, k)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e @ v / (e.sum(axis=-1, keepdims=True) + np.exp(sink).reshape(-1, 1, 1))
sink_not_exponentiated(q, k, v, sink) (sink_in_denominator), sink: the sink itself is added, not its exponential
    says sink & exponential|itself|without e|e^; at=At(n_k=4); domain=Domain()
    s = scores(q, k)
    m = s.max(axis=-1, keepdims=True)
    e = np.exp(s - m)
    return e @ v / (e.sum(axis=-1, keepdims=True) + sink.reshape(-1, 1, 1) * np.exp(-m))
sink_of_another_head (sink_as_column), sink: the sinks of the heads in reverse
    says sink & head; at=At(given=lambda made: {"sink": np.array([2.0, -1.0])})
    s = scores(q, k)
    b = sink[::-1, None, None]
    m = np.maximum(s.max(axis=-1, keepdims=True), b)
    e = np.exp(s - m)
    return e @ v / (e.sum(axis=-1, keepdims=True) + np.exp(b - m))
off_by_one_after_max (off_by_one), sink|normalize: one more in the denominator after the maximum was subtracted
    says denominator|1 +|added|sink|e^
    s = scores(q, k)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e @ v / (1 + e.sum(axis=-1, keepdims=True))
sum_over_queries (by_log_softmax), normalize: the maximum is that of each row, the sum runs over the queries
    says quer
    s = scores(q, k)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    with np.errstate(all="ignore"):
        return e / e.sum(axis=-2, keepdims=True) @ v
first_column_dropped (sink_as_column), sink: the sink stands behind the keys, and the first column is dropped
    says sink & key before|next key
    , :-1] @ v → , 1:] @ v
""",
)
