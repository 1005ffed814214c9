"""Groups of heads, batches, merging."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn import Attention, Domain
from tests.faults.collection.entries import At
from tests.faults.collection.heads import FAMILY, attend, join, softmax, split

Array = Any
right, wrong = FAMILY.right, FAMILY.wrong
_GROUPS = Attention(heads=4, kv_heads=2)
_ONE_KEY_HEAD = Attention(heads=3, kv_heads=1)
_PLAIN = Attention()
_TWO = Attention(heads=2)


@right("W_V W_O is multiplied out first", spec=_PLAIN)
def fused_value_output(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array) -> Array:
    s = (x @ w_q) @ (x @ w_k).T * x.dtype.type(w_q.shape[1] ** -0.5)
    return softmax(s) @ x @ (w_v @ w_o)


@right("each key head repeated for its group of query heads", spec=_GROUPS)
def groups_repeated(q: Array, k: Array, v: Array) -> Array:
    r = q.shape[0] // k.shape[0]
    return attend(q, np.repeat(k, r, axis=0), np.repeat(v, r, axis=0))


@right("query heads in groups by a reshape, nothing repeated", spec=_GROUPS)
def groups_by_axis(q: Array, k: Array, v: Array) -> Array:
    h, n, d = q.shape
    g = k.shape[0]
    out = attend(q.reshape(g, h // g, n, d), k[:, None], v[:, None])
    return out.reshape(h, n, -1)


@right("all query heads stacked as rows before one head of keys", spec=_ONE_KEY_HEAD)
def one_key_head(q: Array, k: Array, v: Array) -> Array:
    h, n, d = q.shape
    return attend(q.reshape(h * n, d), k[0], v[0]).reshape(h, n, -1)


@right("query groups from tokens", spec=_GROUPS)
def groups_of_tokens(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int, kv_heads: int) -> Array:
    q, k, v = split(x @ w_q, heads), split(x @ w_k, kv_heads), split(x @ w_v, kv_heads)
    r = heads // kv_heads
    return join(attend(q, k.repeat(r, axis=0), v.repeat(r, axis=0))) @ w_o


@right("batch and heads in front", spec=_TWO, layout="bhnd", at=At(batch=(2,)))
def batch_heads(q: Array, k: Array, v: Array) -> Array:
    s = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(q.shape[3]).astype(q.dtype)
    return np.einsum("bhij,bhjd->bhid", softmax(s), v)


@right("heads after the tokens", spec=_TWO, layout="bnhd", at=At(batch=(2,)))
def batch_tokens_heads(q: Array, k: Array, v: Array) -> Array:
    s = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(q.shape[3]).astype(q.dtype)
    return np.einsum("bhij,bjhd->bihd", softmax(s), v)


@wrong(
    "merge",
    "heads merged by a bare reshape",
    "merged|reshape",
    spec=_TWO,
    near="multihead",
    source="jsbaan/transformer-from-scratch#6",
)
def merge_by_reshape(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    q, k, v = (split(x @ w, heads) for w in (w_q, w_k, w_v))
    return attend(q, k, v).reshape(len(x), -1) @ w_o


@wrong("merge", "heads merged in reverse order", "order|reverse", spec=_TWO, near="multihead")
def merged_in_reverse(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    q, k, v = (split(x @ w, heads) for w in (w_q, w_k, w_v))
    return np.concatenate(list(attend(q, k, v))[::-1], axis=-1) @ w_o


@wrong(
    "merge",
    "columns of the heads interleaved when merged",
    "interleaved|in turn|merged|order|reshape",
    spec=_TWO,
    near="multihead",
)
def merged_in_turn(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    q, k, v = (split(x @ w, heads) for w in (w_q, w_k, w_v))
    return attend(q, k, v).transpose(1, 2, 0).reshape(len(x), -1) @ w_o


@wrong(
    "output",
    "the output projection is left out",
    "output projection|w_o",
    "left out|missing|ignored",
    spec=_TWO,
    near="multihead",
    at=At(d_model=6),
)
def no_output_projection(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    q, k, v = (split(x @ w, heads) for w in (w_q, w_k, w_v))
    return join(attend(q, k, v))


@wrong("output", "the bias of the output once for each head", "bias|b_o", spec=_TWO, near="heads_in_a_loop")
def output_bias_for_each_head(
    x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, b_o: Array, heads: int
) -> Array:
    q, k, v = (split(x @ w, heads) for w in (w_q, w_k, w_v))
    parts = np.split(w_o, heads)
    return sum(o @ w + b_o for o, w in zip(attend(q, k, v), parts, strict=True))


@wrong(
    "score",
    "query head t reads key head t mod g",
    "group|key head|heads of keys|tile|mod",
    spec=_GROUPS,
    near="groups_repeated",
)
def groups_in_turn(q: Array, k: Array, v: Array) -> Array:
    r = q.shape[0] // k.shape[0]
    return attend(q, np.tile(k, (r, 1, 1)), np.tile(v, (r, 1, 1)))


@wrong(
    "score",
    "all query heads read key head 0",
    "first head|head 0|one head|group|key head",
    spec=_GROUPS,
    near="groups_by_axis",
)
def groups_of_the_first(q: Array, k: Array, v: Array) -> Array:
    return attend(q, k[:1], v[:1])


@wrong("values", "keys by groups, values in turn", "values", "group|head|turn", spec=_GROUPS, near="groups_repeated")
def values_in_turn(q: Array, k: Array, v: Array) -> Array:
    r = q.shape[0] // k.shape[0]
    return attend(q, np.repeat(k, r, axis=0), np.concatenate([v] * r))


@wrong(
    "merge",
    "rows viewed as (heads, batch): heads and batch items mixed",
    "batch",
    spec=_TWO,
    layout="bhnd",
    shows="batch > 1",
    near="batch_heads",
    at=At(batch=(3,)),
    source="gazelle93/Transformer-Various-Positional-Encoding#1",
)
def batch_and_heads_mixed(q: Array, k: Array, v: Array) -> Array:
    b, h, n, _ = q.shape
    rows = [a.swapaxes(0, 1).reshape(h * b, *a.shape[2:]) for a in (q, k, v)]
    return attend(*rows).reshape(b, h, n, -1)


@wrong(
    "split",
    "a (b, n, h, d) array is reshaped to (b, h, n, d)",
    "reshape|layout|axes",
    spec=_TWO,
    layout="bnhd",
    near="batch_tokens_heads",
    at=At(batch=(2,)),
    domain=Domain(square=True),
)
def reshaped_for_transposed(q: Array, k: Array, v: Array) -> Array:
    b, _, h, _ = q.shape
    q, k, v = (a.reshape(b, h, a.shape[1], -1) for a in (q, k, v))
    return attend(q, k, v).swapaxes(1, 2)


@wrong(
    "values",
    "only the first item of a batch gives values",
    "batch|first item|item 0",
    spec=_TWO,
    layout="bhnd",
    shows="batch > 1",
    near="batch_heads",
    at=At(batch=(2,)),
)
def values_of_first_item(q: Array, k: Array, v: Array) -> Array:
    return attend(q, k, np.broadcast_to(v[:1], v.shape))
