"""Sums of exponentials, and sinks."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn import Attention, Domain
from tests.faults.collection.entries import At
from tests.faults.collection.softmax import FAMILY, scores, softmax

Array = Any
right, wrong = FAMILY.right, FAMILY.wrong
_BOOLEAN = Attention(mask="boolean")
_HEADS = Attention(heads=3)
_SINK = Attention(heads=2, sink="given")
_SMALL = Domain(max_abs_score=30.0)
_ZERO_SINK = Attention(sink="zero")


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


@wrong(
    "normalize",
    "the softmax runs over the queries",
    "over the queries|query axis",
    near="by_log_softmax",
    source="labmlai/annotated_deep_learning_paper_implementations#146",
)
def over_queries(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    e = np.exp(s - s.max(axis=-2, keepdims=True))
    return (e / e.sum(axis=-2, keepdims=True)) @ v


@wrong(
    "normalize",
    "the softmax runs over the heads",
    "over the heads|head axis",
    spec=_HEADS,
    near="sink_as_column",
    source="FudanNLP/fastNLP#254",
)
def over_heads(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    e = np.exp(s - s.max(axis=0, keepdims=True))
    return (e / e.sum(axis=0, keepdims=True)) @ v


@wrong("normalize", "exponentials are not divided by their sum", "not divided|not normalised|sum", near="ones_column")
def not_divided(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    return np.exp(s - s.max(axis=-1, keepdims=True)) @ v


@wrong(
    "normalize",
    "one softmax over the whole array",
    "whole|all queries|every query|queries and keys together",
    near="by_log_softmax",
)
def over_everything(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    e = np.exp(s - s.max())
    return (e / e.sum()) @ v


@wrong(
    "normalize|mask",
    "divided by the sum of all keys, forbidden ones too",
    "forbidden|masked|denominator|sum|after the softmax",
    spec=_BOOLEAN,
    near="by_logaddexp",
)
def sum_over_forbidden(q: Array, k: Array, v: Array, mask: Array) -> Array:
    s = scores(q, k)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return (np.where(mask, e, 0) / e.sum(axis=-1, keepdims=True)) @ v


@wrong("normalize", "1e-3 added to the denominator", "denominator|eps|1e-3|0.001|added", near="reciprocal")
def epsilon_in_denominator(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e @ v / (e.sum(axis=-1, keepdims=True) + np.float32(1e-3))


@wrong("normalize", "weights divided by their L2 norm", "l2|norm|squares|root", near="reciprocal")
def by_length(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return (e / np.linalg.norm(e, axis=-1, keepdims=True)) @ v


@wrong("normalize", "softmax twice", "twice|softmax of", near="by_log_softmax")
def twice(q: Array, k: Array, v: Array) -> Array:
    return softmax(softmax(scores(q, k))) @ v


@wrong(
    "sink",
    "the sink multiplied by the scale",
    "sink",
    "scale",
    spec=_SINK,
    near="sink_as_column",
    source="ROCm/rocm-libraries#12229",
)
def sink_scaled(q: Array, k: Array, v: Array, sink: Array) -> Array:
    s = scores(q, k)
    b = sink.reshape(-1, 1, 1) / np.sqrt(q.shape[-1]).astype(q.dtype)
    m = np.maximum(s.max(axis=-1, keepdims=True), b)
    e = np.exp(s - m)
    return e @ v / (e.sum(axis=-1, keepdims=True) + np.exp(b - m))


@wrong("sink", "the sink is left out", "sink", "left out|ignored|missing|no sink", spec=_SINK, near="sink_as_column")
def sink_ignored(q: Array, k: Array, v: Array, sink: Array) -> Array:
    return softmax(scores(q, k)) @ v


@wrong(
    "sink",
    "e^sink is added without the maximum subtracted",
    "sink",
    "maximum|e^",
    spec=_SINK,
    near="sink_in_denominator",
)
def sink_without_maximum(q: Array, k: Array, v: Array, sink: Array) -> Array:
    s = scores(q, k)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e @ v / (e.sum(axis=-1, keepdims=True) + np.exp(sink).reshape(-1, 1, 1))


@wrong(
    "sink",
    "the sink itself is added, not its exponential",
    "sink",
    "exponential|itself|without e|e^",
    spec=_SINK,
    near="sink_in_denominator",
    at=At(n_k=4),
)
def sink_not_exponentiated(q: Array, k: Array, v: Array, sink: Array) -> Array:
    s = scores(q, k)
    m = s.max(axis=-1, keepdims=True)
    e = np.exp(s - m)
    return e @ v / (e.sum(axis=-1, keepdims=True) + sink.reshape(-1, 1, 1) * np.exp(-m))


@wrong(
    "sink",
    "the sinks of the heads in reverse",
    "sink",
    "head",
    spec=_SINK,
    near="sink_as_column",
    at=At(given=lambda made: {"sink": np.array([2.0, -1.0])}),
)
def sink_of_another_head(q: Array, k: Array, v: Array, sink: Array) -> Array:
    s = scores(q, k)
    b = sink[::-1, None, None]
    m = np.maximum(s.max(axis=-1, keepdims=True), b)
    e = np.exp(s - m)
    return e @ v / (e.sum(axis=-1, keepdims=True) + np.exp(b - m))


@wrong(
    "sink|normalize",
    "one more in the denominator after the maximum was subtracted",
    "denominator|1 +|added|sink|e^",
    spec=_ZERO_SINK,
    near="off_by_one",
)
def off_by_one_after_max(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e @ v / (1 + e.sum(axis=-1, keepdims=True))


@wrong(
    "normalize",
    "the maximum is that of each row, the sum runs over the queries",
    "quer",
    near="by_log_softmax",
)
def sum_over_queries(q: Array, k: Array, v: Array) -> Array:
    s = scores(q, k)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    with np.errstate(all="ignore"):
        return e / e.sum(axis=-2, keepdims=True) @ v


@wrong(
    "sink",
    "the sink stands behind the keys, and the first column is dropped",
    "sink",
    "key before|next key",
    spec=_SINK,
    near="sink_as_column",
)
def first_column_dropped(q: Array, k: Array, v: Array, sink: Array) -> Array:
    s = scores(q, k)
    column = np.broadcast_to(sink[:, None, None], (*s.shape[:-1], 1)).astype(s.dtype)
    return softmax(np.concatenate([s, column], axis=-1))[..., 1:] @ v
