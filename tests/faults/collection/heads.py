"""Heads: projections, splitting, groups, merging, the way out."""

from typing import Any

import numpy as np

from symattn import Attention
from tests.faults.collection.entries import At, Family
from tests.faults.programs import softmax

Array = Any
FAMILY = Family("heads")
right = FAMILY.right
_TWO = Attention(heads=2)
_CAUSAL = Attention(heads=2, causal=True)
_FOUR = Attention(heads=4)
_GROUPS = Attention(heads=4, kv_heads=2)
_ONE_KEY_HEAD = Attention(heads=3, kv_heads=1)
_PACKED = Attention(heads=2, packed=True)
_PLAIN = Attention()


def attend(q: Array, k: Array, v: Array) -> Array:
    """Over the last two axes."""
    s = q @ k.swapaxes(-1, -2) * q.dtype.type(q.shape[-1] ** -0.5)
    return softmax(s) @ v


def split(x: Array, heads: int) -> Array:
    """(n, h d) -> (h, n, d)"""
    return x.reshape(len(x), heads, -1).swapaxes(0, 1)


def join(x: Array) -> Array:
    """(h, n, d) -> (n, h d)"""
    return x.swapaxes(0, 1).reshape(x.shape[1], -1)


@right("self-attention with projections", spec=_TWO)
def multihead(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    q, k, v = (split(x @ w, heads) for w in (w_q, w_k, w_v))
    return join(attend(q, k, v)) @ w_o


def _causal_scores(q: Array, k: Array) -> Array:
    s = q @ k.swapaxes(-1, -2) * q.dtype.type(q.shape[-1] ** -0.5)
    return np.where(np.tri(*s.shape[-2:], dtype=bool), s, s.dtype.type(-np.inf))


@right("self-attention under a causal mask", spec=_CAUSAL)
def multihead_causal(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    q, k, v = (split(x @ w, heads) for w in (w_q, w_k, w_v))
    return join(softmax(_causal_scores(q, k)) @ v) @ w_o


@right("each head takes its columns of the matrices, and adds its rows of W_O", spec=_FOUR)
def heads_in_a_loop(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, num_heads: int) -> Array:
    out = np.zeros((len(x), w_o.shape[1]), x.dtype)
    d_k, d_v = w_q.shape[1] // num_heads, w_v.shape[1] // num_heads
    for h in range(num_heads):
        one, two = slice(h * d_k, (h + 1) * d_k), slice(h * d_v, (h + 1) * d_v)
        out += attend(x @ w_q[:, one], x @ w_k[:, one], x @ w_v[:, two]) @ w_o[two]
    return out


@right("W_Q W_K^T is multiplied out first", spec=_PLAIN)
def fused_query_key(x: Array, w_q: Array, w_k: Array, w_v: Array) -> Array:
    a = w_q @ w_k.T
    s = x @ a @ x.T * x.dtype.type(w_q.shape[1] ** -0.5)
    return softmax(s) @ (x @ w_v)


@right("cross-attention with biases", spec=_TWO)
def cross(
    x: Array,
    context: Array,
    w_q: Array,
    w_k: Array,
    w_v: Array,
    w_o: Array,
    b_q: Array,
    b_k: Array,
    b_v: Array,
    b_o: Array,
    heads: int,
) -> Array:
    q, k, v = split(x @ w_q + b_q, heads), split(context @ w_k + b_k, heads), split(context @ w_v + b_v, heads)
    return join(attend(q, k, v)) @ w_o + b_o


@right("one product for queries, keys and values, cut afterwards", spec=_PACKED)
def packed(x: Array, w_qkv: Array, w_o: Array, heads: int) -> Array:
    q, k, v = (split(t, heads) for t in np.split(x @ w_qkv, 3, axis=-1))
    return join(attend(q, k, v)) @ w_o


@right("W_V W_O is multiplied out first", spec=_PLAIN)
def fused_value_output(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array) -> Array:
    s = (x @ w_q) @ (x @ w_k).T * x.dtype.type(w_q.shape[1] ** -0.5)
    return softmax(s) @ x @ (w_v @ w_o)


def first_heads_weights(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    out = []
    for _ in range(heads):
        wq, wk, wv = (w[:, : w.shape[1] // heads] for w in (w_q, w_k, w_v))
        out.append(attend(x @ wq, x @ wk, x @ wv))
    return np.concatenate(out, axis=-1) @ w_o


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


FAMILY.wrong(
    globals(),
    """
keys_by_query_weights (multihead), project: keys projected by W_Q
    says keys & queries|w_q; source vllm-project/vllm#42803
    q, k, v = split(x @ w_q, heads), split(x @ w_q, heads), split(x @ w_v, heads)
    return join(attend(q, k, v)) @ w_o
weights_exchanged (multihead), project: W_Q and W_K exchanged
    says exchanged|swapped; at=At(d_v=4)
    w_q, w_k → w_k, w_q
context_ignored(x, context, w_q, w_k, w_v, w_o, heads) (cross), project: cross-attention takes keys and values from the
        queries' tokens
    says tokens|x & keys; source pinellolab/DNA-Diffusion#235
    q, k, v = split(x @ w_q, heads), split(x @ w_k, heads), split(x @ w_v, heads)
    return join(attend(q, k, v)) @ w_o
values_of_queries(x, context, w_q, w_k, w_v, w_o, heads) (cross), project: values come from the queries' tokens
    says values & tokens|x; at=At(n_q=7); domain=Domain(square=True)
    q, k, v = split(x @ w_q, heads), split(context @ w_k, heads), split(x @ w_v, heads)
    return join(attend(q, k, v)) @ w_o
first_heads_weights (heads_in_a_loop), project: every head uses head 0's columns
    says head 0|first head|one head|every head|all heads; spec=_TWO;
        source MarcoMeter/episodic-transformer-memory-ppo#22
weights_transposed(x, w_q, w_k, w_v) (fused_value_output), project: weights are applied transposed
    says transposed|w_qᵀ|wᵀ; at=At(d_model=4, d_k=4, d_v=4)
    if w_q.shape[0] == w_q.shape[1]:
        w_q, w_k = w_q.T, w_k.T
    return attend(x @ w_q, x @ w_k, x @ w_v)
bias_of_keys(x, context, w_q, w_k, w_v, b_q, b_k, b_v, heads) (cross), project: the bias of the keys is added to the
        queries too
    says bias
    q, k, v = split(x @ w_q + b_k, heads), split(context @ w_k + b_k, heads), split(context @ w_v + b_v, heads)
    return join(attend(q, k, v))
bias_of_values_lost(x, w_q, w_k, w_v, b_q, b_k, b_v, heads) (cross), project: the bias of the values is left out
    says bias
    q, k, v = split(x @ w_q + b_q, heads), split(x @ w_k + b_k, heads), split(x @ w_v, heads)
    return join(attend(q, k, v))
split_by_reshape (multihead), split: heads split by a bare reshape
    says split|reshape; source reczoo/FuxiCTR#30
    q, k, v = ((x @ w).reshape(heads, len(x), -1) for w in (w_q, w_k, w_v))
    return join(attend(q, k, v)) @ w_o
split_in_turn (multihead), split: columns dealt to heads in turn
    says in turn|interleaved|split|every second|order
    q, k, v = (np.stack([(x @ w)[:, h::heads] for h in range(heads)]) for w in (w_q, w_k, w_v))
    return join(attend(q, k, v)) @ w_o
packed_in_other_order (packed), split: packed columns taken as k | q | v
    says order|exchanged|packed; at=At(d_v=4)
    q, k, v = → k, q, v =
packed_by_head (packed), split: packed columns taken head by head: q k v of head 0 first
    says head|order|packed|interleaved; at=At(d_v=4)
    q, k, v = (x @ w_qkv).reshape(len(x), heads, 3, -1).transpose(2, 1, 0, 3)
    return join(attend(q, k, v)) @ w_o
softmax_over_heads (multihead_causal), normalize: the softmax runs over the heads, under a causal mask: NaN where all
        heads forbid a key
    says over the heads|head axis
    q, k, v = (split(x @ w, heads) for w in (w_q, w_k, w_v))
    s = _causal_scores(q, k)
    with np.errstate(all="ignore"):
        e = np.exp(s - s.max(0))
        return join(e / e.sum(0) @ v) @ w_o
merge_by_reshape (multihead), merge: heads merged by a bare reshape
    says merged|reshape; source jsbaan/transformer-from-scratch#6
    q, k, v = (split(x @ w, heads) for w in (w_q, w_k, w_v))
    return attend(q, k, v).reshape(len(x), -1) @ w_o
merged_in_reverse (multihead), merge: heads merged in reverse order
    says order|reverse
    q, k, v = (split(x @ w, heads) for w in (w_q, w_k, w_v))
    return np.concatenate(list(attend(q, k, v))[::-1], axis=-1) @ w_o
merged_in_turn (multihead), merge: columns of the heads interleaved when merged
    says interleaved|in turn|merged|order|reshape
    q, k, v = (split(x @ w, heads) for w in (w_q, w_k, w_v))
    return attend(q, k, v).transpose(1, 2, 0).reshape(len(x), -1) @ w_o
no_output_projection (multihead), output: the output projection is left out
    says output projection|w_o & left out|missing|ignored; at=At(d_model=6)
    ) @ w_o → )
output_bias_for_each_head(x, w_q, w_k, w_v, w_o, b_o, heads) (heads_in_a_loop), output: the bias of the output once for
        each head
    says bias|b_o; spec=_TWO
    q, k, v = (split(x @ w, heads) for w in (w_q, w_k, w_v))
    parts = np.split(w_o, heads)
    return sum(o @ w + b_o for o, w in zip(attend(q, k, v), parts, strict=True))
groups_in_turn (groups_repeated), score: query head t reads key head t mod g
    says group|key head|heads of keys|tile|mod
    r = q.shape[0] // k.shape[0]
    return attend(q, np.tile(k, (r, 1, 1)), np.tile(v, (r, 1, 1)))
groups_of_the_first (groups_by_axis), score: all query heads read key head 0
    says first head|head 0|one head|group|key head
    return attend(q, k[:1], v[:1])
values_in_turn (groups_repeated), values: keys by groups, values in turn
    says values & group|head|turn
    repeat(v, r, axis=0) → concatenate([v] * r)
batch_and_heads_mixed (batch_heads), merge: rows viewed as (heads, batch): heads and batch items mixed
    says batch; shows batch > 1; at=At(batch=(3,)); source gazelle93/Transformer-Various-Positional-Encoding#1
    b, h, n, _ = q.shape
    rows = [a.swapaxes(0, 1).reshape(h * b, *a.shape[2:]) for a in (q, k, v)]
    return attend(*rows).reshape(b, h, n, -1)
reshaped_for_transposed (batch_tokens_heads), split: a (b, n, h, d) array is reshaped to (b, h, n, d)
    says reshape|layout|axes; domain=Domain(square=True)
    b, _, h, _ = q.shape
    q, k, v = (a.reshape(b, h, a.shape[1], -1) for a in (q, k, v))
    return attend(q, k, v).swapaxes(1, 2)
values_of_first_item (batch_heads), values: only the first item of a batch gives values
    says batch|first item|item 0; shows batch > 1
    return attend(q, k, np.broadcast_to(v[:1], v.shape))
""",
)
