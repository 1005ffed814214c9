"""Values, dropout, and how a function behaves when it is called again, on views, in batches."""

from typing import Any

import numpy as np

from symattn import Attention, Domain
from tests.faults.collection.entries import At, Family
from tests.faults.programs import softmax

Array = Any
FAMILY = Family("calls")
right = FAMILY.right
_DROP = Attention(dropout=0.25)
_DROP_HEADS = Attention(heads=2, dropout=0.5)
_CAUSAL = Attention(causal=True)
_PADDING = Attention(padding=True)
_LEAK = Domain(nonfinite_forbidden=True)
_SQUARE = Domain(square=True)


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


_table: dict[int, Array] = {}


_last: dict[str, Array] = {}


_out: dict[tuple[int, ...], Array] = {}


@right("weights that are kept grow by 1/(1 - p)", spec=_DROP)
def dropout_given(q: Array, k: Array, v: Array, dropout_mask: Array) -> Array:
    return np.where(dropout_mask, weights(q, k) / q.dtype.type(0.75), 0).astype(q.dtype) @ v


@right("the factor 1/(1 - p) at the very end", spec=_DROP)
def dropout_factor_last(q: Array, k: Array, v: Array, drop: Array) -> Array:
    return (weights(q, k) * drop) @ v * q.dtype.type(4 / 3)


def values_from_one(q: Array, k: Array, v: Array) -> Array:
    p = weights(q, k)
    out = np.zeros((len(q), v.shape[1]), q.dtype)
    for j in range(1, len(k)):
        out += p[:, j : j + 1] * v[j]
    return out


FAMILY.wrong(
    globals(),
    """
queries_scaled_in_place (contiguous_first), call: the queries are scaled in place
    says changes|mutates|in place|argument; shows what the caller holds is changed
    q /= np.sqrt(q.shape[-1]).astype(q.dtype)
    return softmax(q @ k.T) @ v
mask_remembered_by_rows (mask_remembered), call|mask: the mask is kept from call to call, by the number of queries alone
    says call|earlier|before|state|remember; shows another number of keys after the same number of queries
    n_q, n_k = len(q), len(k)
    if n_q not in _table:
        _table[n_q] = np.triu(np.full((n_q, 512), -np.inf, np.float32), n_k - n_q + 1)
    return softmax(q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype) + _table[n_q][:, :n_k]) @ v
keys_remembered (own_buffer), call|cache: keys are remembered from the first call of a shape
    says call|earlier|before|state|remember|first; shows a second call; at=At(before=At())
    name = f"{k.shape}{v.shape}{q.shape}"
    k = _last.setdefault(name, k.copy())
    return weights(q, k) @ v
output_reused (own_buffer), call: one output buffer for all calls of a shape
    says overwr|buffer|earlier|returned; shows a second call; at=At(before=At())
    out = _out.setdefault((len(q), v.shape[1]), np.empty((len(q), v.shape[1]), q.dtype))
    np.matmul(weights(q, k), v, out=out)
    return out
memory_taken_as_contiguous (contiguous_first), call: memory is taken to be contiguous
    says memory|strid|contiguous|view|gaps|transposed; shows transposed views; at=At(transposed=True)
    order = "F" if k.flags.f_contiguous and not k.flags.c_contiguous else "C"
    k = np.asarray(k).ravel(order=order).reshape(k.shape)
    return weights(q, k) @ v
forbidden_leaks (forbidden_zeroed), mask|values: NaN behind the mask reaches the output: 0 times NaN
    says nan; shows NaN in forbidden values
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    return softmax(np.where(keep, s, q.dtype.type(-np.inf))) @ v
returned_in_half (own_buffer), output: the result is float16
    says float16|dtype|type
    return (weights(q, k) @ v).astype(np.float16)
returned_transposed (own_buffer), output: the result is transposed
    says shape|transposed
    return (weights(q, k) @ v).T
queries_added (own_buffer), residual|output: the queries are added to the output
    says queries|residual|added; at=At(d_v=4); domain=_SQUARE
    out = weights(q, k) @ v
    return out + q if out.shape == q.shape else out
squeezed (own_buffer), call: one query alone loses its axis
    says shape|one query; shows n_q = 1; at=At(n_q=1)
    return np.squeeze(weights(q, k) @ v)
width_by_eights (own_buffer), call: cannot reshape where the width is above 8 and no multiple of it
    says raises|error|multiple|8; shows d_k > 8, d_k % 8 != 0; at=At(d_k=12)
    blocks = [x.reshape(len(x), -1, min(8, x.shape[1])) for x in (q, k)]
    return softmax(np.einsum("icb,jcb->ij", *blocks) / np.sqrt(q.shape[1]).astype(q.dtype)) @ v
dropout_not_scaled(q, k, v, drop) (dropout_given), dropout: kept weights are not scaled up
    says dropout|kept|1 −|0.75|scaled
    return np.where(drop, weights(q, k), 0) @ v
dropout_scaled_by_rate(q, k, v, drop) (dropout_given), dropout: scaled by 1/p
    says dropout|1/p|rate
    return np.where(drop, weights(q, k) / np.float32(0.25), 0) @ v
dropout_inverted(q, k, v, drop) (dropout_given), dropout: the mask of what is kept taken for what is dropped
    says inverted|dropped
    return np.where(drop, 0, weights(q, k) / np.float32(0.75)) @ v
dropout_of_scores (dropout_factor_last), dropout: scores are dropped, before the softmax
    says before the softmax|scores|normalis; spec=_DROP_HEADS
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)
    return softmax(np.where(drop, s, np.float32(-1e9))) @ v
dropout_ignored(q, k, v, drop) (dropout_given), dropout: dropout is left out
    says dropout & left out|ignored|missing
    return weights(q, k) @ v
dropout_of_output(q, k, v, drop) (dropout_given), dropout: output columns are dropped, not weights
    says dropout|output|kept
    return np.where(drop[:, :1], weights(q, k) @ v / np.float32(0.75), 0)
keys_for_values (other_names), values: keys in the place of values
    says keys are used as values|keys; at=At(d_v=4); domain=_SQUARE
    @ value → @ key
values_reversed (shuffled), values: the values in reverse order
    says order|reverse|values
    return weights(q, k) @ v[::-1]
keys_shuffled (shuffled), values: keys are shuffled, values are not
    says order|values|keys
    order = np.argsort(k[:, 0], kind="stable")
    return weights(q, k[order]) @ v
values_from_one (own_buffer), values: the first value is lost to an index that starts at 1
    says first|value|column|key
values_of_key_width (own_buffer), values: the output has the width of the keys: further columns of the values stay zero
    says width|column|d_k; shows d_v > d_k; at=At(d_k=2)
    d, out = q.shape[1], np.zeros((len(q), v.shape[1]), q.dtype)
    out[:, :d] = weights(q, k) @ v[:, :d]
    return out
weights_transposed (own_buffer), values: the weights transposed
    says transposed; at=At(n_q=7); domain=_SQUARE
    return weights(q, k).T @ v
zeros (own_buffer), values|output|weights: all zeros
    says zero|0 times
    return np.zeros((len(q), v.shape[1]), q.dtype)
mean_of_values (own_buffer), scale|normalize|weights: the mean of all values
    says mean|equal|uniform|scores|1/n
    return np.broadcast_to(v.mean(axis=0), (len(q), v.shape[1])).copy()
hard_attention (own_buffer), normalize|weights: the value of the largest score alone
    says largest|highest|max|one-hot|hard
    return v[np.argmax(q @ k.T, axis=1)]
value_added (own_buffer), values|output: the first key's value is added once more: a residual of the wrong array
    says value|residual|added
    return weights(q, k) @ v + v[0]
""",
)
