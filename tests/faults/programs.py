"""Wrong programs, each beside the right one that it differs from by one mistake, and what a program's record says."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.faults import rewrites
from tests.faults.written import written

Array = Any


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


def unscaled(q: Array, k: Array, v: Array) -> Array:
    return _attention(q @ k.T, v)


def common_maximum(q: Array, k: Array, v: Array) -> Array:
    s = _scores(q, k)
    with np.errstate(all="ignore"):
        e = np.exp(s - s.max())
        return e / e.sum(axis=-1, keepdims=True) @ v


def sees_the_next_key(q: Array, k: Array, v: Array) -> Array:
    return _attention(_causal(1, _scores(q, k)), v)


def _causal(by: int, s: Array) -> Array:
    open_ = np.tri(*s.shape, s.shape[1] - s.shape[0] + by, dtype=bool)
    return np.where(open_, s, _number(s, -np.inf))


def wrong(names: dict[str, Any], rights: Iterable[Program], text: str) -> tuple[Program, ...]:
    """Read wrong programs from a text (``tests.faults.written``): the mistake is the cause by which it is named.

    What the line ``at spec=...; precision=...`` does not say is as in the right program.
    """
    known = {p.function.__name__: p for p in rights}
    found = []
    for one in written(text, {name: p.function for name, p in known.items()}, names):
        told = dict(part.removeprefix("at ").split("=", 1) for part in one.parts if part)
        more = {"spec": known[one.right].spec} | {key: eval(value, names) for key, value in told.items()}
        found.append(Program(one.name.replace("_", " "), one.program, cause=one.why, step=one.step, **more))
    return tuple(found)


_FILL = {"float16": -6e4, "float32": -1e9, "float64": -1e30}  # in place of −∞
WRONG = wrong(
    globals(),
    [Program(f.__name__, f, spec) for f, spec in rewrites.MAKES.items()],
    """
scaled_by_width (plain), scale: scores are scaled by 1/d_k
scaled_twice (scale_in_both), scale: scores are scaled by 1/d_k
    root = _number(q, np.sqrt(q.shape[-1]))
    return _attention((q / root) @ (k / root).T, v)
unscaled (plain), scale: scores are not scaled
multiplied_by_root (plain), scale: scores are multiplied by √d_k
    return _attention(q @ k.T / _number(q, q.shape[-1] ** -0.5), v)
scaled_by_value_width (plain), scale: scores are scaled by 1/√d_v
    return _attention(q @ k.T / _number(q, np.sqrt(v.shape[-1])), v)
scaled_by_model_width (heads_of_tokens), scale: scores are scaled by 1/√d_model
    q, k, v = (np.stack(np.split(x @ w, heads, axis=-1)) for w in (w_q, w_k, w_v))
    s = q @ k.swapaxes(-1, -2) / _number(x, np.sqrt(x.shape[-1]))
    return _attention(s, v).transpose(1, 0, 2).reshape(len(x), -1)
softmax_over_queries (plain), normalize: the softmax runs over the queries
    return _softmax(_scores(q, k), axis=0) @ v
not_normalised (normalised_last), normalize: exponentials are not divided by their sum
    s = _scores(q, k)
    return np.exp(s - s.max(axis=-1, keepdims=True)) @ v
last_key_dropped (plain), mask: the last key is dropped
    return _attention(_scores(q, k[:-1]), v[:-1]) if len(k) > 1 else v * 0 + q[:, :1] * 0
padded_to_sixteen(q, k, v) (in_tiles), mask: zero keys that fill the last tile of 16 take part
    extra = -len(k) % 16
    k, v = (np.concatenate([a, np.zeros((extra, a.shape[1]), a.dtype)]) for a in (k, v))
    return _attention(_scores(q, k), v)
keys_as_values (plain), values: keys are used as values
    return _attention(_scores(q, k), k)
queries_as_keys (plain), score: queries are used as keys
    return _attention(_scores(q, q), v)
roles_exchanged (plain), score: queries and keys are exchanged
    return _attention(_scores(k, q), v)
no_maximum (plain), max: the largest score is not subtracted
    with np.errstate(all="ignore"):
        return rewrites.without_maximum(q, k, v)
common_maximum (plain), max: the maximum of the whole array is subtracted
sees_the_next_key (causal), mask: a query also sees the next key
does_not_see_itself (causal), mask: a query does not see its own key
    return np.nan_to_num(_attention(_causal(-1, _scores(q, k)), v))
other_corner (causal), mask: the causal mask starts at the other corner
    s = _scores(q, k)
    return _attention(np.where(np.tri(*s.shape, dtype=bool), s, _number(s, -np.inf)), v)
causal_transposed (causal), mask: the causal mask is transposed
    s = _scores(q, k)
    return _attention(np.where(np.triu(np.ones(s.shape, bool), s.shape[1] - s.shape[0]), s, _number(s, -np.inf)), v)
mask_ignored (masked), mask: the mask is ignored
    return _attention(_scores(q, k), v)
mask_inverted (masked), mask: the mask is inverted
    return np.nan_to_num(_attention(np.where(mask, _number(q, -np.inf), _scores(q, k)), v))
mask_inverted_with_nan (masked), mask: the mask is inverted
    return _attention(np.where(mask, _number(q, -np.inf), _scores(q, k)), v)
mask_inverted_with_fill (masked), mask: the mask is inverted
    return _attention(np.where(mask, _number(q, _FILL[q.dtype.name]), _scores(q, k)), v)
mask_inverted_by_sum (masked), mask: the mask is inverted
    return _attention(_scores(q, k) + mask * _number(q, _FILL[q.dtype.name]), v)
causal_inverted_with_fill (causal), mask: the mask is inverted
    s = _scores(q, k)
    lower = np.tri(*s.shape, s.shape[1] - s.shape[0], dtype=bool)
    return _attention(np.where(lower, _number(q, _FILL[q.dtype.name]), s), v)
does_not_see_itself_with_fill (causal), mask: a query does not see its own key
    s = _scores(q, k)
    earlier = np.tri(*s.shape, s.shape[1] - s.shape[0] - 1, dtype=bool)
    return _attention(np.where(earlier, s, _number(q, _FILL[q.dtype.name])), v)
does_not_see_itself_with_nan (causal), mask: a query does not see its own key
    s = _scores(q, k)
    return _attention(np.where(np.tri(*s.shape, s.shape[1] - s.shape[0] - 1, dtype=bool), s, _number(s, -np.inf)), v)
mask_added (masked), mask: a boolean mask is added as 0 and 1
    return _attention(_scores(q, k) + mask.astype(q.dtype), v)
mask_multiplied (masked), mask: forbidden scores become 0 (a mask multiplied)
    return _attention(_scores(q, k) * mask, v)
filled_with_little (masked), mask: (−1e-9 filled in)
    return _attention(np.where(mask, _scores(q, k), _number(q, -1e-9)), v)
filled_with_minus_ten (masked), mask: forbidden scores become −10
    return _attention(np.where(mask, _scores(q, k), _number(q, -10)), v)
masked_after (masked_then_renormalised), mask: masked after the softmax
    return (_softmax(_scores(q, k)) * mask) @ v
heads_merged_bare (heads_of_tokens), merge: heads are merged by a reshape
    q, k, v = (np.stack(np.split(x @ w, heads, axis=-1)) for w in (w_q, w_k, w_v))
    return _attention(q @ k.swapaxes(-1, -2) / _number(x, np.sqrt(q.shape[-1])), v).reshape(len(x), -1)
heads_split_bare (heads_of_tokens), split: heads are split by a reshape
    q, k, v = ((x @ w).reshape(heads, len(x), -1) for w in (w_q, w_k, w_v))
    out = _attention(q @ k.swapaxes(-1, -2) / _number(x, np.sqrt(q.shape[-1])), v)
    return out.transpose(1, 0, 2).reshape(len(x), -1)
softmax_over_heads (heads_of_tokens), normalize: the softmax runs over the heads
    q, k, v = (np.stack(np.split(x @ w, heads, axis=-1)) for w in (w_q, w_k, w_v))
    s = q @ k.swapaxes(-1, -2) / _number(x, np.sqrt(q.shape[-1]))
    return (_softmax(s, axis=0) @ v).transpose(1, 0, 2).reshape(len(x), -1)
""",
)
