"""Wrong programs, each a right one with one mistake, and the neighbour that does it right; and their record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from symattn import Attention
from tests.faults import rewrites

Array = Any


@dataclass(frozen=True)
class Wrong:
    """A program with a mistake: the step and the words by which it must be named, and its right neighbour."""

    program: Callable[..., Array]
    step: str
    cause: str
    right: Callable[..., Array]
    spec: Attention = field(default_factory=Attention)


@dataclass(frozen=True)
class Program:
    """A program, what it is to compute, and for a wrong one the cause, and the step where a family has several."""

    name: str
    function: Callable[..., Any]
    spec: Any
    cause: str | None = None
    precision: str = "float32"
    step: str = ""


def _softmax(s: Array, axis: int = -1) -> Array:
    with np.errstate(all="ignore"):
        e = np.exp(s - s.max(axis=axis, keepdims=True))
        return e / e.sum(axis=axis, keepdims=True)


def _attention(s: Array, v: Array) -> Array:
    return _softmax(s) @ v


def _number(like: Array, x: float) -> Array:
    return np.asarray(x, dtype=like.dtype)


def _scores(q: Array, k: Array) -> Array:
    return q @ k.T / _number(q, np.sqrt(q.shape[-1]))


def scaled_by_width(q: Array, k: Array, v: Array) -> Array:
    return _attention(q @ k.T / _number(q, q.shape[-1]), v)


def scaled_twice(q: Array, k: Array, v: Array) -> Array:
    root = _number(q, np.sqrt(q.shape[-1]))
    return _attention((q / root) @ (k / root).T, v)


def unscaled(q: Array, k: Array, v: Array) -> Array:
    return _attention(q @ k.T, v)


def multiplied_by_root(q: Array, k: Array, v: Array) -> Array:
    return _attention(q @ k.T / _number(q, q.shape[-1] ** -0.5), v)


def scaled_by_value_width(q: Array, k: Array, v: Array) -> Array:
    return _attention(q @ k.T / _number(q, np.sqrt(v.shape[-1])), v)


def scaled_by_model_width(x: Array, w_q: Array, w_k: Array, w_v: Array, heads: int) -> Array:
    q, k, v = (np.stack(np.split(x @ w, heads, axis=-1)) for w in (w_q, w_k, w_v))
    s = q @ k.swapaxes(-1, -2) / _number(x, np.sqrt(x.shape[-1]))
    return _attention(s, v).transpose(1, 0, 2).reshape(len(x), -1)


def softmax_over_queries(q: Array, k: Array, v: Array) -> Array:
    return _softmax(_scores(q, k), axis=0) @ v


def not_normalised(q: Array, k: Array, v: Array) -> Array:
    s = _scores(q, k)
    return np.exp(s - s.max(axis=-1, keepdims=True)) @ v


def last_key_dropped(q: Array, k: Array, v: Array) -> Array:
    return _attention(_scores(q, k[:-1]), v[:-1]) if len(k) > 1 else v * 0 + q[:, :1] * 0


def keys_as_values(q: Array, k: Array, v: Array) -> Array:
    return _attention(_scores(q, k), k)


def queries_as_keys(q: Array, k: Array, v: Array) -> Array:
    return _attention(_scores(q, q), v)


def roles_exchanged(q: Array, k: Array, v: Array) -> Array:
    return _attention(_scores(k, q), v)


def no_maximum(q: Array, k: Array, v: Array) -> Array:
    with np.errstate(all="ignore"):
        return rewrites.without_maximum(q, k, v)


def _causal(by: int, s: Array) -> Array:
    open_ = np.tri(*s.shape, s.shape[1] - s.shape[0] + by, dtype=bool)
    return np.where(open_, s, _number(s, -np.inf))


def common_maximum(q: Array, k: Array, v: Array) -> Array:
    s = _scores(q, k)
    with np.errstate(all="ignore"):
        e = np.exp(s - s.max())
        return e / e.sum(axis=-1, keepdims=True) @ v


def sees_the_next_key(q: Array, k: Array, v: Array) -> Array:
    return _attention(_causal(1, _scores(q, k)), v)


def does_not_see_itself(q: Array, k: Array, v: Array) -> Array:
    return np.nan_to_num(_attention(_causal(-1, _scores(q, k)), v))


def other_corner(q: Array, k: Array, v: Array) -> Array:
    s = _scores(q, k)
    return _attention(np.where(np.tri(*s.shape, dtype=bool), s, _number(s, -np.inf)), v)


def causal_transposed(q: Array, k: Array, v: Array) -> Array:
    s = _scores(q, k)
    return _attention(np.where(np.triu(np.ones(s.shape, bool), s.shape[1] - s.shape[0]), s, _number(s, -np.inf)), v)


def mask_ignored(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return _attention(_scores(q, k), v)


def mask_inverted(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return np.nan_to_num(_attention(np.where(mask, _number(q, -np.inf), _scores(q, k)), v))


def mask_inverted_with_nan(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return _attention(np.where(mask, _number(q, -np.inf), _scores(q, k)), v)


def mask_inverted_with_fill(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return _attention(np.where(mask, _number(q, _FILL[q.dtype.name]), _scores(q, k)), v)


def mask_inverted_by_sum(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return _attention(_scores(q, k) + mask * _number(q, _FILL[q.dtype.name]), v)


def causal_inverted_with_fill(q: Array, k: Array, v: Array) -> Array:
    s = _scores(q, k)
    lower = np.tri(*s.shape, s.shape[1] - s.shape[0], dtype=bool)
    return _attention(np.where(lower, _number(q, _FILL[q.dtype.name]), s), v)


def does_not_see_itself_with_fill(q: Array, k: Array, v: Array) -> Array:
    s = _scores(q, k)
    earlier = np.tri(*s.shape, s.shape[1] - s.shape[0] - 1, dtype=bool)
    return _attention(np.where(earlier, s, _number(q, _FILL[q.dtype.name])), v)


def does_not_see_itself_with_nan(q: Array, k: Array, v: Array) -> Array:
    s = _scores(q, k)
    return _attention(np.where(np.tri(*s.shape, s.shape[1] - s.shape[0] - 1, dtype=bool), s, _number(s, -np.inf)), v)


def mask_added(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return _attention(_scores(q, k) + mask.astype(q.dtype), v)


def mask_multiplied(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return _attention(_scores(q, k) * mask, v)


def filled_with_little(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return _attention(np.where(mask, _scores(q, k), _number(q, -1e-9)), v)


def filled_with_minus_ten(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return _attention(np.where(mask, _scores(q, k), _number(q, -10)), v)


def masked_after(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return (_softmax(_scores(q, k)) * mask) @ v


def heads_merged_bare(x: Array, w_q: Array, w_k: Array, w_v: Array, heads: int) -> Array:
    q, k, v = (np.stack(np.split(x @ w, heads, axis=-1)) for w in (w_q, w_k, w_v))
    return _attention(q @ k.swapaxes(-1, -2) / _number(x, np.sqrt(q.shape[-1])), v).reshape(len(x), -1)


def heads_split_bare(x: Array, w_q: Array, w_k: Array, w_v: Array, heads: int) -> Array:
    q, k, v = ((x @ w).reshape(heads, len(x), -1) for w in (w_q, w_k, w_v))
    out = _attention(q @ k.swapaxes(-1, -2) / _number(x, np.sqrt(q.shape[-1])), v)
    return out.transpose(1, 0, 2).reshape(len(x), -1)


def softmax_over_heads(x: Array, w_q: Array, w_k: Array, w_v: Array, heads: int) -> Array:
    q, k, v = (np.stack(np.split(x @ w, heads, axis=-1)) for w in (w_q, w_k, w_v))
    s = q @ k.swapaxes(-1, -2) / _number(x, np.sqrt(q.shape[-1]))
    return (_softmax(s, axis=0) @ v).transpose(1, 0, 2).reshape(len(x), -1)


def padded_to_sixteen(q: Array, k: Array, v: Array) -> Array:
    extra = -len(k) % 16
    k, v = (np.concatenate([a, np.zeros((extra, a.shape[1]), a.dtype)]) for a in (k, v))
    return _attention(_scores(q, k), v)


_FILL = {"float16": -6e4, "float32": -1e9, "float64": -1e30}  # in place of −∞
_MASKED = Attention(mask="boolean")
_CAUSAL = Attention(causal=True)
_HEADS = Attention(heads=2)

WRONG: tuple[Wrong, ...] = (
    Wrong(scaled_by_width, "scale", "scores are scaled by 1/d_k", rewrites.plain),
    Wrong(scaled_twice, "scale", "scores are scaled by 1/d_k", rewrites.scale_in_both),
    Wrong(unscaled, "scale", "scores are not scaled", rewrites.plain),
    Wrong(multiplied_by_root, "scale", "scores are multiplied by √d_k", rewrites.plain),
    Wrong(scaled_by_value_width, "scale", "scores are scaled by 1/√d_v", rewrites.plain),
    Wrong(scaled_by_model_width, "scale", "scores are scaled by 1/√d_model", rewrites.heads_of_tokens, _HEADS),
    Wrong(softmax_over_queries, "normalize", "the softmax runs over the queries", rewrites.plain),
    Wrong(not_normalised, "normalize", "exponentials are not divided by their sum", rewrites.normalised_last),
    Wrong(last_key_dropped, "mask", "the last key is dropped", rewrites.plain),
    Wrong(padded_to_sixteen, "mask", "zero keys that fill the last tile of 16 take part", rewrites.in_tiles),
    Wrong(keys_as_values, "values", "keys are used as values", rewrites.plain),
    Wrong(queries_as_keys, "score", "queries are used as keys", rewrites.plain),
    Wrong(roles_exchanged, "score", "queries and keys are exchanged", rewrites.plain),
    Wrong(no_maximum, "max", "the largest score is not subtracted", rewrites.plain),
    Wrong(common_maximum, "max", "the maximum of the whole array is subtracted", rewrites.plain),
    Wrong(sees_the_next_key, "mask", "a query also sees the next key", rewrites.causal, _CAUSAL),
    Wrong(does_not_see_itself, "mask", "a query does not see its own key", rewrites.causal, _CAUSAL),
    Wrong(other_corner, "mask", "the causal mask starts at the other corner", rewrites.causal, _CAUSAL),
    Wrong(causal_transposed, "mask", "the causal mask is transposed", rewrites.causal, _CAUSAL),
    Wrong(mask_ignored, "mask", "the mask is ignored", rewrites.masked, _MASKED),
    Wrong(mask_inverted, "mask", "the mask is inverted", rewrites.masked, _MASKED),
    Wrong(mask_inverted_with_nan, "mask", "the mask is inverted", rewrites.masked, _MASKED),
    Wrong(mask_inverted_with_fill, "mask", "the mask is inverted", rewrites.masked, _MASKED),
    Wrong(mask_inverted_by_sum, "mask", "the mask is inverted", rewrites.masked, _MASKED),
    Wrong(causal_inverted_with_fill, "mask", "the mask is inverted", rewrites.causal, _CAUSAL),
    Wrong(does_not_see_itself_with_fill, "mask", "a query does not see its own key", rewrites.causal, _CAUSAL),
    Wrong(does_not_see_itself_with_nan, "mask", "a query does not see its own key", rewrites.causal, _CAUSAL),
    Wrong(mask_added, "mask", "a boolean mask is added as 0 and 1", rewrites.masked, _MASKED),
    Wrong(mask_multiplied, "mask", "forbidden scores become 0 (a mask multiplied)", rewrites.masked, _MASKED),
    Wrong(filled_with_little, "mask", "(−1e-9 filled in)", rewrites.masked, _MASKED),
    Wrong(filled_with_minus_ten, "mask", "forbidden scores become −10", rewrites.masked, _MASKED),
    Wrong(masked_after, "mask", "masked after the softmax", rewrites.masked_then_renormalised, _MASKED),
    Wrong(heads_merged_bare, "merge", "heads are merged by a reshape", rewrites.heads_of_tokens, _HEADS),
    Wrong(heads_split_bare, "split", "heads are split by a reshape", rewrites.heads_of_tokens, _HEADS),
    Wrong(softmax_over_heads, "normalize", "the softmax runs over the heads", rewrites.heads_of_tokens, _HEADS),
)
