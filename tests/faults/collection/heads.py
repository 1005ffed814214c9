"""Heads: projections, splitting, groups, merging, the way out."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn import Attention, Domain
from tests.faults.collection.entries import At, Family

Array = Any
FAMILY = Family("heads")
right, wrong = FAMILY.right, FAMILY.wrong
_TWO = Attention(heads=2)
_CAUSAL = Attention(heads=2, causal=True)
_FOUR = Attention(heads=4)
_GROUPS = Attention(heads=4, kv_heads=2)
_ONE_KEY_HEAD = Attention(heads=3, kv_heads=1)
_PACKED = Attention(heads=2, packed=True)
_PLAIN = Attention()


def softmax(s: Array) -> Array:
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


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


@wrong(
    "project",
    "keys projected by W_Q",
    "keys",
    "queries|w_q",
    spec=_TWO,
    near="multihead",
    source="vllm-project/vllm#42803",
)
def keys_by_query_weights(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    q, k, v = split(x @ w_q, heads), split(x @ w_q, heads), split(x @ w_v, heads)
    return join(attend(q, k, v)) @ w_o


@wrong("project", "W_Q and W_K exchanged", "exchanged|swapped", spec=_TWO, near="multihead", at=At(d_v=4))
def weights_exchanged(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    q, k, v = (split(x @ w, heads) for w in (w_k, w_q, w_v))
    return join(attend(q, k, v)) @ w_o


@wrong(
    "project",
    "cross-attention takes keys and values from the queries' tokens",
    "tokens|x",
    "keys",
    spec=_TWO,
    near="cross",
    source="pinellolab/DNA-Diffusion#235",
)
def context_ignored(x: Array, context: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    q, k, v = split(x @ w_q, heads), split(x @ w_k, heads), split(x @ w_v, heads)
    return join(attend(q, k, v)) @ w_o


@wrong(
    "project",
    "values come from the queries' tokens",
    "values",
    "tokens|x",
    spec=_TWO,
    near="cross",
    domain=Domain(square=True),
    at=At(n_q=7),
)
def values_of_queries(x: Array, context: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    q, k, v = split(x @ w_q, heads), split(context @ w_k, heads), split(x @ w_v, heads)
    return join(attend(q, k, v)) @ w_o


@wrong(
    "project",
    "every head uses head 0's columns",
    "head 0|first head|one head|every head|all heads",
    spec=_TWO,
    near="heads_in_a_loop",
    source="MarcoMeter/episodic-transformer-memory-ppo#22",
)
def first_heads_weights(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    out = []
    for _ in range(heads):
        wq, wk, wv = (w[:, : w.shape[1] // heads] for w in (w_q, w_k, w_v))
        out.append(attend(x @ wq, x @ wk, x @ wv))
    return np.concatenate(out, axis=-1) @ w_o


@wrong(
    "project",
    "weights are applied transposed",
    "transposed|w_qᵀ|wᵀ",
    spec=_PLAIN,
    near="fused_value_output",
    at=At(d_model=4, d_k=4, d_v=4),
)
def weights_transposed(x: Array, w_q: Array, w_k: Array, w_v: Array) -> Array:
    if w_q.shape[0] == w_q.shape[1]:
        w_q, w_k = w_q.T, w_k.T
    return attend(x @ w_q, x @ w_k, x @ w_v)


@wrong("project", "the bias of the keys is added to the queries too", "bias", spec=_TWO, near="cross")
def bias_of_keys(
    x: Array, context: Array, w_q: Array, w_k: Array, w_v: Array, b_q: Array, b_k: Array, b_v: Array, heads: int
) -> Array:
    q, k, v = split(x @ w_q + b_k, heads), split(context @ w_k + b_k, heads), split(context @ w_v + b_v, heads)
    return join(attend(q, k, v))


@wrong("project", "the bias of the values is left out", "bias", spec=_TWO, near="cross")
def bias_of_values_lost(
    x: Array, w_q: Array, w_k: Array, w_v: Array, b_q: Array, b_k: Array, b_v: Array, heads: int
) -> Array:
    q, k, v = split(x @ w_q + b_q, heads), split(x @ w_k + b_k, heads), split(x @ w_v, heads)
    return join(attend(q, k, v))


@wrong(
    "split", "heads split by a bare reshape", "split|reshape", spec=_TWO, near="multihead", source="reczoo/FuxiCTR#30"
)
def split_by_reshape(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    q, k, v = ((x @ w).reshape(heads, len(x), -1) for w in (w_q, w_k, w_v))
    return join(attend(q, k, v)) @ w_o


@wrong(
    "split",
    "columns dealt to heads in turn",
    "in turn|interleaved|split|every second|order",
    spec=_TWO,
    near="multihead",
)
def split_in_turn(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    q, k, v = (np.stack([(x @ w)[:, h::heads] for h in range(heads)]) for w in (w_q, w_k, w_v))
    return join(attend(q, k, v)) @ w_o


@wrong(
    "split", "packed columns taken as k | q | v", "order|exchanged|packed", spec=_PACKED, near="packed", at=At(d_v=4)
)
def packed_in_other_order(x: Array, w_qkv: Array, w_o: Array, heads: int) -> Array:
    k, q, v = (split(t, heads) for t in np.split(x @ w_qkv, 3, axis=-1))
    return join(attend(q, k, v)) @ w_o


@wrong(
    "split",
    "packed columns taken head by head: q k v of head 0 first",
    "head|order|packed|interleaved",
    spec=_PACKED,
    near="packed",
    at=At(d_v=4),
)
def packed_by_head(x: Array, w_qkv: Array, w_o: Array, heads: int) -> Array:
    q, k, v = (x @ w_qkv).reshape(len(x), heads, 3, -1).transpose(2, 1, 0, 3)
    return join(attend(q, k, v)) @ w_o


@wrong(
    "normalize",
    "the softmax runs over the heads, under a causal mask: NaN where all heads forbid a key",
    "over the heads|head axis",
    spec=_CAUSAL,
    near="multihead_causal",
)
def softmax_over_heads(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    q, k, v = (split(x @ w, heads) for w in (w_q, w_k, w_v))
    s = _causal_scores(q, k)
    with np.errstate(all="ignore"):
        e = np.exp(s - s.max(0))
        return join(e / e.sum(0) @ v) @ w_o
