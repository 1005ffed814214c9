"""Dropout, and values."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn import Attention, Domain
from tests.faults.collection.calls import FAMILY, softmax, weights
from tests.faults.collection.entries import At

Array = Any
right, wrong = FAMILY.right, FAMILY.wrong
_DROP = Attention(dropout=0.25)
_DROP_HEADS = Attention(heads=2, dropout=0.5)
_SQUARE = Domain(square=True)


@right("weights that are kept grow by 1/(1 - p)", spec=_DROP)
def dropout_given(q: Array, k: Array, v: Array, dropout_mask: Array) -> Array:
    return np.where(dropout_mask, weights(q, k) / q.dtype.type(0.75), 0).astype(q.dtype) @ v


@right("the factor 1/(1 - p) at the very end", spec=_DROP)
def dropout_factor_last(q: Array, k: Array, v: Array, drop: Array) -> Array:
    return (weights(q, k) * drop) @ v * q.dtype.type(4 / 3)


@wrong("dropout", "kept weights are not scaled up", "dropout|kept|1 −|0.75|scaled", spec=_DROP, near="dropout_given")
def dropout_not_scaled(q: Array, k: Array, v: Array, drop: Array) -> Array:
    return np.where(drop, weights(q, k), 0) @ v


@wrong("dropout", "scaled by 1/p", "dropout|1/p|rate", spec=_DROP, near="dropout_given")
def dropout_scaled_by_rate(q: Array, k: Array, v: Array, drop: Array) -> Array:
    return np.where(drop, weights(q, k) / np.float32(0.25), 0) @ v


@wrong(
    "dropout",
    "the mask of what is kept taken for what is dropped",
    "inverted|dropped",
    spec=_DROP,
    near="dropout_given",
)
def dropout_inverted(q: Array, k: Array, v: Array, drop: Array) -> Array:
    return np.where(drop, 0, weights(q, k) / np.float32(0.75)) @ v


@wrong(
    "dropout",
    "scores are dropped, before the softmax",
    "before the softmax|scores|normalis",
    spec=_DROP_HEADS,
    near="dropout_factor_last",
)
def dropout_of_scores(q: Array, k: Array, v: Array, drop: Array) -> Array:
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)
    return softmax(np.where(drop, s, np.float32(-1e9))) @ v


@wrong("dropout", "dropout is left out", "dropout", "left out|ignored|missing", spec=_DROP, near="dropout_given")
def dropout_ignored(q: Array, k: Array, v: Array, drop: Array) -> Array:
    return weights(q, k) @ v


@wrong("dropout", "output columns are dropped, not weights", "dropout|output|kept", spec=_DROP, near="dropout_given")
def dropout_of_output(q: Array, k: Array, v: Array, drop: Array) -> Array:
    return np.where(drop[:, :1], weights(q, k) @ v / np.float32(0.75), 0)


@wrong(
    "values",
    "keys in the place of values",
    "keys are used as values|keys",
    near="other_names",
    domain=_SQUARE,
    at=At(d_v=4),
)
def keys_for_values(query: Array, key: Array, value: Array) -> Array:
    return weights(query, key) @ key


@wrong("values", "the values in reverse order", "order|reverse|values", near="shuffled")
def values_reversed(q: Array, k: Array, v: Array) -> Array:
    return weights(q, k) @ v[::-1]


@wrong("values", "keys are shuffled, values are not", "order|values|keys", near="shuffled")
def keys_shuffled(q: Array, k: Array, v: Array) -> Array:
    order = np.argsort(k[:, 0], kind="stable")
    return weights(q, k[order]) @ v


@wrong("values", "the first value is lost to an index that starts at 1", "first|value|column|key", near="own_buffer")
def values_from_one(q: Array, k: Array, v: Array) -> Array:
    p = weights(q, k)
    out = np.zeros((len(q), v.shape[1]), q.dtype)
    for j in range(1, len(k)):
        out += p[:, j : j + 1] * v[j]
    return out


@wrong(
    "values",
    "the output has the width of the keys: further columns of the values stay zero",
    "width|column|d_k",
    shows="d_v > d_k",
    near="own_buffer",
    at=At(d_k=2),
)
def values_of_key_width(q: Array, k: Array, v: Array) -> Array:
    d, out = q.shape[1], np.zeros((len(q), v.shape[1]), q.dtype)
    out[:, :d] = weights(q, k) @ v[:, :d]
    return out


@wrong("values", "the weights transposed", "transposed", near="own_buffer", domain=_SQUARE, at=At(n_q=7))
def weights_transposed(q: Array, k: Array, v: Array) -> Array:
    return weights(q, k).T @ v


@wrong("values|output|weights", "all zeros", "zero|0 times", near="own_buffer")
def zeros(q: Array, k: Array, v: Array) -> Array:
    return np.zeros((len(q), v.shape[1]), q.dtype)


@wrong(
    "scale|normalize|weights",  # a scale of 0 gives the same
    "the mean of all values",
    "mean|equal|uniform|scores|1/n",
    near="own_buffer",
)
def mean_of_values(q: Array, k: Array, v: Array) -> Array:
    return np.broadcast_to(v.mean(axis=0), (len(q), v.shape[1])).copy()


@wrong(
    "normalize|weights", "the value of the largest score alone", "largest|highest|max|one-hot|hard", near="own_buffer"
)
def hard_attention(q: Array, k: Array, v: Array) -> Array:
    return v[np.argmax(q @ k.T, axis=1)]


@wrong(
    "values|output",
    "the first key's value is added once more: a residual of the wrong array",
    "value|residual|added",
    near="own_buffer",
)
def value_added(q: Array, k: Array, v: Array) -> Array:
    return weights(q, k) @ v + v[0]
