"""Linear attention: f(q, k, v), the features inside."""

from typing import Any

import numpy as np

from symattn import LinearAttention
from tests.faults.collection.entries import At, Family

Array = Any
FAMILY = Family("linear", spec=LinearAttention(), at=At(n_q=6, n_k=6))
right = FAMILY.right
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


FAMILY.wrong(
    globals(),
    """
not_divided (by_weights), normalize: not divided by the sum of the weights
    says not divided|normalis|sum
    return np.tril(phi(q) @ phi(k).T) @ v
divided_by_whole_sum (recurrence), normalize: divided by the sum over all tokens, later ones too
    says later|all|causal|sum
    a = phi(q) @ phi(k).T
    return np.tril(a) @ v / a.sum(-1, keepdims=True)
divided_by_plain_keys (by_weights), normalize: the sum is of keys without their features
    says without the feature map
    fq, fk = phi(q), phi(k)
    with np.errstate(all="ignore"):
        return np.tril(fq @ fk.T) @ v / (fq * np.cumsum(k, axis=0)).sum(axis=-1, keepdims=True)
not_causal (by_weights), mask: the causal order is lost
    says causal|later
    return both_ways(q, k, v)
read_before_written (bare), mask|cache: the state is read before the token is written
    says own|itself|before
    T) @ v → T, -1) @ v
feature_without_one (by_weights), score: elu without the 1
    says elu|feature|1; at=At(n_q=6, n_k=6, given=lambda made: {"q": -abs(made["q"])})
    a = np.tril((phi(q) - 1) @ (phi(k) - 1).T)
    with np.errstate(all="ignore"):
        return a @ v / a.sum(-1, keepdims=True)
other_feature (by_weights), score: relu + 1 in place of elu + 1
    says feature|relu|elu
    phi(q) @ phi(k) → (np.maximum(q, 0) + 1) @ (np.maximum(k, 0) + 1)
feature_of_queries (by_weights), score: features of the queries alone
    says feature|keys; at=At(n_q=6, n_k=6)
    a = np.tril(phi(q) @ k.T)
    with np.errstate(all="ignore"):
        return a @ v / a.sum(-1, keepdims=True)
scaled (bare), scale: queries are divided by the root of the width
    says scale|√d
    return np.tril(q @ k.T) @ v / np.sqrt(q.shape[-1]).astype(q.dtype)
chunk_state_lost (chunks), merge|cache: the state of earlier chunks is forgotten
    says chunk|state|earlier|tile|block|four|4; shows n > 4
    return np.concatenate([by_weights(q[i : i + 4], k[i : i + 4], v[i : i + 4]) for i in range(0, len(q), 4)])
""",
)
