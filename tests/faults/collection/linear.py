"""Linear attention: f(q, k, v), the features inside."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn.verification.definitions.linear import LinearAttention
from tests.faults.collection.entries import At, Family

Array = Any
FAMILY = Family("linear", spec=LinearAttention(), at=At(n_q=6, n_k=6))
right, wrong = FAMILY.right, FAMILY.wrong
_BOTH_WAYS = LinearAttention(causal=False)
_BARE = LinearAttention(feature="identity", normalised=False)


def phi(x: Array) -> Array:
    """elu(x) + 1."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


@right("by the weights, causal")
def by_weights(q: Array, k: Array, v: Array) -> Array:
    a = np.tril(phi(q) @ phi(k).T)
    return a @ v / a.sum(-1, keepdims=True)


@right("as a recurrence")
def recurrence(q: Array, k: Array, v: Array) -> Array:
    state, total = np.zeros((k.shape[1], v.shape[1]), q.dtype), np.zeros(k.shape[1], q.dtype)
    rows = []
    for x, y, z in zip(phi(q), phi(k), v, strict=True):
        state, total = state + np.outer(y, z), total + y
        rows.append(x @ state / (x @ total))
    return np.stack(rows)


@right("in chunks of four: a state before, weights within")
def chunks(q: Array, k: Array, v: Array) -> Array:
    q, k = phi(q), phi(k)
    state, total = np.zeros((k.shape[1], v.shape[1]), q.dtype), np.zeros(k.shape[1], q.dtype)
    out = np.zeros((len(q), v.shape[1]), v.dtype)
    for start in range(0, len(q), 4):
        mine = slice(start, start + 4)
        a = np.tril(q[mine] @ k[mine].T)
        below = a.sum(-1, keepdims=True) + (q[mine] @ total)[:, None]
        out[mine] = (a @ v[mine] + q[mine] @ state) / below
        state, total = state + k[mine].T @ v[mine], total + k[mine].sum(0)
    return out


@right("both ways, the product of keys and values first", spec=_BOTH_WAYS)
def both_ways(q: Array, k: Array, v: Array) -> Array:
    q, k = phi(q), phi(k)
    return q @ (k.T @ v) / (q @ k.sum(0))[:, None]


@right("no features, no sum to divide by", spec=_BARE)
def bare(q: Array, k: Array, v: Array) -> Array:
    return np.tril(q @ k.T) @ v


@wrong("normalize", "not divided by the sum of the weights", "not divided|normalis|sum", near="by_weights")
def not_divided(q: Array, k: Array, v: Array) -> Array:
    return np.tril(phi(q) @ phi(k).T) @ v


@wrong("normalize", "divided by the sum over all tokens, later ones too", "later|all|causal|sum", near="recurrence")
def divided_by_whole_sum(q: Array, k: Array, v: Array) -> Array:
    a = phi(q) @ phi(k).T
    return np.tril(a) @ v / a.sum(-1, keepdims=True)


@wrong("normalize", "the sum is of keys without their features", "without the feature map", near="by_weights")
def divided_by_plain_keys(q: Array, k: Array, v: Array) -> Array:
    fq, fk = phi(q), phi(k)
    with np.errstate(all="ignore"):
        return np.tril(fq @ fk.T) @ v / (fq * np.cumsum(k, axis=0)).sum(axis=-1, keepdims=True)


@wrong("mask", "the causal order is lost", "causal|later", near="by_weights")
def not_causal(q: Array, k: Array, v: Array) -> Array:
    return both_ways(q, k, v)


@wrong("mask|cache", "the state is read before the token is written", "own|itself|before", spec=_BARE, near="bare")
def read_before_written(q: Array, k: Array, v: Array) -> Array:
    return np.tril(q @ k.T, -1) @ v


@wrong(
    "score",
    "elu without the 1",
    "elu|feature|1",
    near="by_weights",
    at=At(n_q=6, n_k=6, given=lambda made: {"q": -abs(made["q"])}),
)
def feature_without_one(q: Array, k: Array, v: Array) -> Array:
    a = np.tril((phi(q) - 1) @ (phi(k) - 1).T)
    with np.errstate(all="ignore"):
        return a @ v / a.sum(-1, keepdims=True)


@wrong("score", "relu + 1 in place of elu + 1", "feature|relu|elu", near="by_weights")
def other_feature(q: Array, k: Array, v: Array) -> Array:
    a = np.tril((np.maximum(q, 0) + 1) @ (np.maximum(k, 0) + 1).T)
    return a @ v / a.sum(-1, keepdims=True)


@wrong("score", "features of the queries alone", "feature|keys", near="by_weights", at=At(n_q=6, n_k=6))
def feature_of_queries(q: Array, k: Array, v: Array) -> Array:
    a = np.tril(phi(q) @ k.T)
    with np.errstate(all="ignore"):
        return a @ v / a.sum(-1, keepdims=True)


@wrong("scale", "queries are divided by the root of the width", "scale|√d", spec=_BARE, near="bare")
def scaled(q: Array, k: Array, v: Array) -> Array:
    return np.tril(q @ k.T) @ v / np.sqrt(q.shape[-1]).astype(q.dtype)


@wrong(
    "merge|cache",
    "the state of earlier chunks is forgotten",
    "chunk|state|earlier|tile|block|four|4",
    near="chunks",
    shows="n > 4",
)
def chunk_state_lost(q: Array, k: Array, v: Array) -> Array:
    return np.concatenate([by_weights(q[i : i + 4], k[i : i + 4], v[i : i + 4]) for i in range(0, len(q), 4)])
