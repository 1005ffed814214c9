"""Values, dropout, and how a function behaves when it is called again, on views, in batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn import Attention, Domain
from tests.faults.collection.entries import At, Family

Array = Any
FAMILY = Family("calls")
right, wrong = FAMILY.right, FAMILY.wrong
_DROP = Attention(dropout=0.25)
_DROP_HEADS = Attention(heads=2, dropout=0.5)
_CAUSAL = Attention(causal=True)
_BOOLEAN = Attention(mask="boolean")
_PADDING = Attention(padding=True)
_LEAK = Domain(nonfinite_forbidden=True)
_SQUARE = Domain(square=True)


def softmax(s: Array) -> Array:
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def weights(q: Array, k: Array) -> Array:
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype))


def _nan_last(made: dict[str, Array]) -> dict[str, Array]:
    """The last value, which no query may see, is NaN."""
    v, keep = made["v"].copy(), np.ones(len(made["v"]), dtype=bool)
    v[-1], keep[-1] = np.nan, False
    return {"v": v, "keep": keep}


@right("a scratch buffer that is made anew for each shape")
def own_buffer(q: Array, k: Array, v: Array) -> Array:
    s = np.empty((len(q), len(k)), q.dtype)
    np.matmul(q, k.T, out=s)
    s /= np.sqrt(q.shape[-1]).astype(q.dtype)
    s -= s.max(axis=1, keepdims=True)
    np.exp(s, out=s)
    s /= s.sum(axis=1, keepdims=True)
    return s @ v


_masks: dict[tuple[int, int], Array] = {}


@right("masks are kept from call to call, by both lengths", spec=_CAUSAL, at=At(before=At(n_k=9)))
def mask_remembered(q: Array, k: Array, v: Array) -> Array:
    shape = len(q), len(k)
    if shape not in _masks:
        _masks[shape] = np.triu(np.full(shape, -np.inf, np.float32), shape[1] - shape[0] + 1)
    return softmax(q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype) + _masks[shape].astype(q.dtype)) @ v


@right("copies are made contiguous first")
def contiguous_first(q: Array, k: Array, v: Array) -> Array:
    q, k, v = (np.ascontiguousarray(a) for a in (q, k, v))
    s = np.frombuffer(q.tobytes(), q.dtype).reshape(q.shape) @ k.T
    return softmax(s / np.sqrt(q.shape[-1]).astype(q.dtype)) @ v


@right(
    "forbidden values may be NaN: they are set to zero before the product",
    spec=_PADDING,
    domain=_LEAK,
    at=At(given=_nan_last),
)
def forbidden_zeroed(q: Array, k: Array, v: Array, keep: Array) -> Array:
    k, v = (np.where(keep[:, None], a, a.dtype.type(0)) for a in (k, v))
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    return softmax(np.where(keep, s, q.dtype.type(-np.inf))) @ v


@right("keys in a random but fixed order")
def shuffled(q: Array, k: Array, v: Array) -> Array:
    order = np.random.default_rng(3).permutation(len(k))
    return weights(q, k[order]) @ v[order]


@right("output and weights are returned")
def with_weights(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    p = weights(q, k)
    return p @ v, p


@right("queries, keys, values in this order under other names")
def other_names(query: Array, key: Array, value: Array) -> Array:
    return weights(query, key) @ value


@wrong(
    "call",
    "the queries are scaled in place",
    "changes|mutates|in place|argument",
    shows="what the caller holds is changed",
    near="contiguous_first",
)
def queries_scaled_in_place(q: Array, k: Array, v: Array) -> Array:
    q /= np.sqrt(q.shape[-1]).astype(q.dtype)
    return softmax(q @ k.T) @ v


_table: dict[int, Array] = {}


@wrong(
    "call|mask",
    "the mask is kept from call to call, by the number of queries alone",
    "call|earlier|before|state|remember",
    spec=_CAUSAL,
    shows="another number of keys after the same number of queries",
    near="mask_remembered",
    at=At(before=At(n_k=9)),
)
def mask_remembered_by_rows(q: Array, k: Array, v: Array) -> Array:
    n_q, n_k = len(q), len(k)
    if n_q not in _table:
        _table[n_q] = np.triu(np.full((n_q, 512), -np.inf, np.float32), n_k - n_q + 1)
    return softmax(q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype) + _table[n_q][:, :n_k]) @ v


_last: dict[str, Array] = {}


@wrong(
    "call|cache",
    "keys are remembered from the first call of a shape",
    "call|earlier|before|state|remember|first",
    shows="a second call",
    near="own_buffer",
    at=At(before=At()),
)
def keys_remembered(q: Array, k: Array, v: Array) -> Array:
    name = f"{k.shape}{v.shape}{q.shape}"
    k = _last.setdefault(name, k.copy())
    return weights(q, k) @ v


_out: dict[tuple[int, ...], Array] = {}


@wrong(
    "call",
    "one output buffer for all calls of a shape",
    "overwr|buffer|earlier|returned",
    shows="a second call",
    near="own_buffer",
    at=At(before=At()),
)
def output_reused(q: Array, k: Array, v: Array) -> Array:
    out = _out.setdefault((len(q), v.shape[1]), np.empty((len(q), v.shape[1]), q.dtype))
    np.matmul(weights(q, k), v, out=out)
    return out


@wrong(
    "call",
    "memory is taken to be contiguous",
    "memory|strid|contiguous|view|gaps|transposed",
    shows="transposed views",
    near="contiguous_first",
    at=At(transposed=True),
)
def memory_taken_as_contiguous(q: Array, k: Array, v: Array) -> Array:
    order = "F" if k.flags.f_contiguous and not k.flags.c_contiguous else "C"
    k = np.asarray(k).ravel(order=order).reshape(k.shape)
    return weights(q, k) @ v


@wrong(
    "mask|values",
    "NaN behind the mask reaches the output: 0 times NaN",
    "nan",
    spec=_PADDING,
    domain=_LEAK,
    shows="NaN in forbidden values",
    near="forbidden_zeroed",
    at=At(given=_nan_last),
)
def forbidden_leaks(q: Array, k: Array, v: Array, keep: Array) -> Array:
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    return softmax(np.where(keep, s, q.dtype.type(-np.inf))) @ v


@wrong("output", "the result is float16", "float16|dtype|type", near="own_buffer")
def returned_in_half(q: Array, k: Array, v: Array) -> Array:
    return (weights(q, k) @ v).astype(np.float16)


@wrong("output", "the result is transposed", "shape|transposed", near="own_buffer")
def returned_transposed(q: Array, k: Array, v: Array) -> Array:
    return (weights(q, k) @ v).T


@wrong(
    "residual|output",
    "the queries are added to the output",
    "queries|residual|added",
    near="own_buffer",
    domain=_SQUARE,
    at=At(d_v=4),
)
def queries_added(q: Array, k: Array, v: Array) -> Array:
    out = weights(q, k) @ v
    return out + q if out.shape == q.shape else out


@wrong("call", "one query alone loses its axis", "shape|one query", shows="n_q = 1", near="own_buffer", at=At(n_q=1))
def squeezed(q: Array, k: Array, v: Array) -> Array:
    return np.squeeze(weights(q, k) @ v)


@wrong(
    "call",
    "cannot reshape where the width is above 8 and no multiple of it",
    "raises|error|multiple|8",
    shows="d_k > 8, d_k % 8 != 0",
    at=At(d_k=12),
    near="own_buffer",
)
def width_by_eights(q: Array, k: Array, v: Array) -> Array:
    blocks = [x.reshape(len(x), -1, min(8, x.shape[1])) for x in (q, k)]
    return softmax(np.einsum("icb,jcb->ij", *blocks) / np.sqrt(q.shape[1]).astype(q.dtype)) @ v
