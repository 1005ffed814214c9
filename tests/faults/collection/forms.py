"""Forms of calls: axes in other orders, lengths for masks, offsets, objects that can be called."""

import functools
import math
from typing import Any

import numpy as np

from symattn import Attention, Rotary
from tests.faults.collection.entries import At, Family
from tests.faults.programs import softmax

Array = Any
FAMILY = Family("forms")
right = FAMILY.right
_TWO = Attention(heads=2)
_FOUR_CAUSAL = Attention(heads=4, causal=True)
_PADDED = Attention(padding=True)
_PADDED_HEADS = Attention(heads=2, padding=True)
_BOOLEAN = Attention(heads=2, mask="boolean")
_CAUSAL = Attention(causal=True)
_ROPE = Attention(causal=True, position=Rotary())


def scores(q: Array, k: Array) -> Array:
    return q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)


def _trailing(made: dict[str, Array]) -> dict[str, Array]:
    """Padding at the end alone."""
    return {"keep": np.arange(made["keep"].shape[-1]) < made["keep"].shape[-1] - 2}


@right("batch, heads, tokens, columns, unpacked", spec=_TWO, layout="bhnd", at=At(batch=(2,)))
def unpacked(query: Array, key: Array, value: Array) -> Array:
    b, h, n, d = query.shape
    out = np.zeros((b, h, n, value.shape[-1]), query.dtype)
    for i in range(b):
        for j in range(h):
            out[i, j] = softmax(query[i, j] @ key[i, j].T / math.sqrt(d)) @ value[i, j]
    return out


@right("batch, tokens, heads, columns, unpacked and causal", spec=_FOUR_CAUSAL, layout="bnhd", at=At(batch=(2,)))
def tokens_before_heads(q: Array, k: Array, v: Array) -> Array:
    _, n_q, _, d = q.shape
    n_k = k.shape[1]
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * np.float32(d**-0.5)
    s = np.where(np.tri(n_q, n_k, n_k - n_q, dtype=bool), s, np.float32(-np.inf))
    return np.einsum("bhqk,bkhd->bqhd", softmax(s), v)


@right("tokens of a batch", spec=_TWO, layout="bhnd", at=At(batch=(2,)))
def batch_of_tokens(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, n_heads: int) -> Array:
    b, n, _ = x.shape
    q, k, v = ((x @ w).reshape(b, n, n_heads, -1).transpose(0, 2, 1, 3) for w in (w_q, w_k, w_v))
    return (softmax(scores(q, k)) @ v).transpose(0, 2, 1, 3).reshape(b, n, -1) @ w_o


@right("heads side by side in the columns", spec=_TWO, layout="flat")
def heads_in_columns(q: Array, k: Array, v: Array, num_heads: int) -> Array:
    qs, ks, vs = (np.split(a, num_heads, axis=-1) for a in (q, k, v))
    return np.concatenate([softmax(scores(a, b)) @ c for a, b, c in zip(qs, ks, vs, strict=True)], axis=-1)


@right(
    "the number of valid keys in place of a mask",
    spec=_PADDED,
    at=At(given=_trailing),
    form=lambda g: {"valid_len": int(g["keep"].sum())},
)
def by_length(q: Array, k: Array, v: Array, valid_len: int) -> Array:
    s = scores(q, k)
    s[:, int(valid_len) :] = -np.inf
    return softmax(s) @ v


@right(
    "key_padding_mask as torch has it: True is padding", spec=_PADDED, form=lambda g: {"key_padding_mask": ~g["keep"]}
)
def padding_is_true(q: Array, k: Array, v: Array, key_padding_mask: Array) -> Array:
    """Attention in which keys with ``key_padding_mask`` True are ignored."""
    s = np.where(key_padding_mask[..., None, :], np.float32(-np.inf), scores(q, k))
    return softmax(s) @ v


@right(
    "a mask with axes for batch and heads",
    spec=_BOOLEAN,
    form=lambda g: {"attention_mask": g["mask"][None, None]},
    layout="bhnd",
)
def mask_with_axes(q: Array, k: Array, v: Array, attention_mask: Array) -> Array:
    b, _, n, _ = q.shape
    assert attention_mask.ndim == 4
    s = np.where(attention_mask, scores(q, k), np.finfo(np.float32).min)
    return (softmax(s) @ v).reshape(b, -1, n, v.shape[-1])


@right(
    "the number of tokens before the first query", spec=_ROPE, form=lambda g: {"start_pos": len(g["k"]) - len(g["q"])}
)
def with_start(q: Array, k: Array, v: Array, start_pos: int) -> Array:
    def turn(x: Array, first: int) -> Array:
        d = x.shape[1]
        theta = np.outer(np.arange(first, first + len(x)), 10000.0 ** (-np.arange(0, d, 2) / d))
        cos, sin = np.cos(theta).astype(x.dtype), np.sin(theta).astype(x.dtype)
        a, b = x[:, : d // 2], x[:, d // 2 :]
        return np.hstack([a * cos - b * sin, b * cos + a * sin])

    s = scores(turn(q, start_pos), turn(k, 0))
    s = np.where(np.arange(len(k)) <= np.arange(len(q))[:, None] + start_pos, s, np.float32(-np.inf))
    return softmax(s) @ v


class _Attention:
    """An object that keeps its scale."""

    __name__ = "object_with_scale"

    def __init__(self, width: int | None = None) -> None:
        self.width = width

    def __call__(self, q: Array, k: Array, v: Array) -> Array:
        return softmax(q @ k.T / np.sqrt(self.width or q.shape[-1]).astype(q.dtype)) @ v


right("an object that can be called")(_Attention())


def _with_options(q: Array, k: Array, v: Array, *, causal: bool, factor: float | None = None) -> Array:
    s = q @ k.T * q.dtype.type(factor or q.shape[-1] ** -0.5)
    if causal:
        s = np.where(np.tri(len(q), len(k), len(k) - len(q), dtype=bool), s, np.float32(-np.inf))
    return softmax(s) @ v


_partial = functools.partial(_with_options, factor=None)
_partial.__name__ = "partial_with_options"  # type: ignore[attr-defined]
right("a partial function with a switch", spec=_CAUSAL)(_partial)


@right("names that say nothing")
def nameless(a: Array, b: Array, c: Array) -> Array:
    return softmax(scores(a, b)) @ c


@right("everything by keywords alone", spec=_CAUSAL)
def keywords(*, query: Array, key: Array, value: Array, is_causal: bool = False, dropout_p: float = 0.0) -> Array:
    return _with_options(query, key, value, causal=is_causal)


def columns_in_turn(q: Array, k: Array, v: Array, num_heads: int) -> Array:
    out = np.zeros((len(q), v.shape[1]), q.dtype)
    for h in range(num_heads):
        mine = slice(h, None, num_heads)
        out[:, mine] = softmax(scores(q[:, mine], k[:, mine])) @ v[:, mine]
    return out


def mask_repeated_in_other_order(q: Array, k: Array, v: Array, keep: Array) -> Array:
    b, h, n, _ = q.shape
    rows = [a.reshape(b * h, a.shape[2], a.shape[3]) for a in (q, k, v)]
    keep = np.tile(np.asarray(keep).reshape(-1, k.shape[2]), (h, 1))[: b * h]
    if len(keep) < b * h:
        keep = np.tile(keep, (b, 1))
    s = np.where(keep[:, None, :], scores(rows[0], rows[1]), np.float32(-1e9))
    return (softmax(s) @ rows[2]).reshape(b, h, n, -1)


FAMILY.wrong(
    globals(),
    """
columns_in_turn (heads_in_columns), split: heads of columns dealt in turn
    says in turn|interleaved|split|order|reshape
root_of_columns (heads_in_columns), scale: sqrt of all columns
    says √d_model|√(h d_k)|√(h·d_k); source lucidrains/vit-pytorch#65
    f = np.float32(q.shape[-1] ** -0.5)
    qs, ks, vs = (np.split(a, num_heads, axis=-1) for a in (q, k, v))
    return np.concatenate([softmax(a @ b.T * f) @ c for a, b, c in zip(qs, ks, vs, strict=True)], axis=-1)
length_plus_one (by_length), mask: the length lets one key too many in
    says one key|off by one|length|too many
    n = min(int(valid_len) + 1, len(k))
    return softmax(scores(q, k[:n])) @ v[:n]
mask_repeated_in_other_order (mask_with_axes), mask: a (b, n_k) mask repeated for heads in the wrong order
    says batch|order|repeat|head; shows B > 1, heads > 1, lengths differ; at=At(batch=(3,)); form=lambda given: {};
        spec=_PADDED_HEADS; source lsdefine/attention-is-all-you-need-keras#36
mask_of_first_item(q, k, v, keep) (mask_with_axes), mask: the mask of the first item for the whole batch
    says batch|first item|item 0; shows B > 1, lengths differ; at=At(batch=(3,)); form=lambda given: {};
        spec=_PADDED_HEADS
    first = np.asarray(keep).reshape(-1, k.shape[2])[0]
    return softmax(np.where(first, scores(q, k), np.float32(-np.inf))) @ v
start_twice (with_start), position: start_pos is counted twice
    says position|start|queries|offset|cache length|too; shows n_q < n_k
    , start_pos), turn( → , 2 * start_pos), turn(
softmax_of_axis_one(q, k, v) (unpacked), normalize: softmax(axis=1) of (b, h, n, n)
    says over the heads|head axis; source FudanNLP/fastNLP#254
    s = scores(q, k)
    e = np.exp(s - s.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True) @ v
merged_in_batch (batch_of_tokens), merge: (b, h, n, d) merged without a transpose
    says merged|reshape; source jsbaan/transformer-from-scratch#6
    transpose(0, 2, 1, 3).reshape → reshape
""",
)
