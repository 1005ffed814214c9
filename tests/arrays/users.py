"""Attention as users write it, with NumPy's functions and no thought of other arrays; and the same with a mistake each.

None of these programs knows of symattn: what they call is dispatched.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.faults.collection.entries import written

Program = Callable[[Any, Any, Any], Any]
RIGHT: list[Program] = []


def right(program: Program) -> Program:
    RIGHT.append(program)
    return program


def softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - np.amax(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


@right
def plain(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.T / np.sqrt(q.shape[-1])
    s = s - np.max(s, axis=-1, keepdims=True)
    w = np.exp(s)
    w /= w.sum(axis=-1, keepdims=True)
    return w @ v


@right
def by_einsum(q: Any, k: Any, v: Any) -> Any:
    s = np.einsum("id,jd->ij", q, k) * q.shape[-1] ** -0.5
    p = np.exp(s - s.max(-1)[:, None])
    return np.einsum("ij,jd->id", p, v) / p.sum(-1)[:, None]


@right
def written_in_place(q: Any, k: Any, v: Any) -> Any:
    s = (q @ k.T) / np.sqrt(k.shape[1])
    s -= s.max(axis=-1, keepdims=True)
    np.exp(s, out=s)
    s /= s.sum(axis=-1, keepdims=True)
    return s @ v


@right
def causal_by_triu(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.T / math.sqrt(4) + np.triu(np.full((q.shape[0], k.shape[0]), -np.inf), 1)
    return softmax(s) @ v


@right
def causal_by_where(q: Any, k: Any, v: Any) -> Any:
    mask = np.tril(np.ones((q.shape[0], k.shape[0]), dtype=bool))
    s = np.where(mask, np.matmul(q, k.swapaxes(-1, -2)) / np.sqrt(k.shape[-1]), -np.inf)
    e = np.exp(s - np.max(s, axis=-1, keepdims=True))
    return np.matmul(e / np.sum(e, axis=-1, keepdims=True), v)


@right
def causal_by_assignment(q: Any, k: Any, v: Any) -> Any:
    s = (q @ k.T) * q.shape[-1] ** -0.5
    s[np.triu(np.ones(s.shape, dtype=bool), k=1)] = -np.inf
    return softmax(s) @ v


@right
def causal_by_a_large_number(q: Any, k: Any, v: Any) -> Any:
    mask = np.tril(np.ones((q.shape[0], k.shape[0])))
    s = np.where(mask == 0, -1e9, q @ k.T / np.sqrt(k.shape[-1]))
    return softmax(s) @ v


@right
def causal_by_arithmetic(q: Any, k: Any, v: Any) -> Any:
    mask = np.tril(np.ones((q.shape[0], k.shape[0])))
    s = q @ k.T / np.sqrt(k.shape[-1]) + (1.0 - mask) * -1e9
    return softmax(s) @ v


@right
def two_heads(q: Any, k: Any, v: Any) -> Any:
    def split(x: Any) -> Any:
        return x.reshape(x.shape[0], 2, -1).transpose(1, 0, 2)

    s = split(q) @ split(k).transpose(0, 2, 1) / np.sqrt(q.shape[1] // 2)
    return (softmax(s) @ split(v)).transpose(1, 0, 2).reshape(q.shape[0], -1)


@right
def two_heads_in_a_list(q: Any, k: Any, v: Any) -> Any:
    heads = zip(np.split(q, 2, 1), np.split(k, 2, 1), np.split(v, 2, 1), strict=True)
    return np.concatenate([softmax(a @ b.T / np.sqrt(a.shape[1])) @ c for a, b, c in heads], axis=1)


@right
def by_log_sum_exp(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.T / np.sqrt(q.shape[-1])
    m = s.max(-1, keepdims=True)
    lse = m + np.log(np.exp(s - m).sum(-1, keepdims=True))
    return np.exp(s - lse) @ v


@right
def by_tiles(q: Any, k: Any, v: Any) -> Any:
    """Online softmax, its state made from the first tile."""
    d, o, z, m = q.shape[-1], 0, 0, None
    for j in range(0, k.shape[0], 2):
        s = q @ k[j : j + 2].T * (1 / np.sqrt(d))
        top = s.max(1, keepdims=True)
        new = top if m is None else np.maximum(m, top)
        p = np.exp(s - new)
        r = 0 if m is None else np.exp(m - new)
        z, o, m = z * r + p.sum(1, keepdims=True), o * r + p @ v[j : j + 2], new
    return o / z


@right
def by_loops(q: Any, k: Any, v: Any) -> Any:
    rows = []
    for qi in q:
        w = np.stack([np.exp(np.dot(qi, kj) / np.sqrt(len(qi))) for kj in k])
        w = w / w.sum()
        rows.append(sum(w[j] * v[j] for j in range(len(v))))
    return np.stack(rows)


@right
def with_a_growing_cache(q: Any, k: Any, v: Any) -> Any:
    """Causal: one new token at a time."""
    rows = []
    for t in range(q.shape[0]):
        s = np.squeeze(k[: t + 1] @ q[t][:, None], axis=-1) / np.sqrt(q.shape[1])
        w = np.exp(s - s.max())
        rows.append(w @ v[: t + 1] / w.sum())
    return np.vstack(rows)


@right
def cast_to_float32_and_back(q: Any, k: Any, v: Any) -> Any:
    s = q.astype(np.float32) @ k.astype(np.float32).T / np.sqrt(k.shape[-1])
    return softmax(s).astype(np.float32) @ v


WRONG: list[tuple[Program, Program]] = [
    (one.program, globals()[one.right])
    for one in written(
        """
divided_by_d (plain): scores are divided by d
    return softmax(q @ k.T / q.shape[-1]) @ v
divided_by_nothing (plain): scores are not divided
    return softmax(q @ k.T) @ v
over_the_wrong_axis (plain): the softmax runs over the queries
    return softmax(q @ k.T / np.sqrt(q.shape[-1]), axis=0) @ v
keys_for_values (plain): keys in the place of values
    return softmax(q @ k.T / np.sqrt(q.shape[-1])) @ k
queries_and_keys_exchanged (plain): queries and keys are exchanged
    return softmax(k @ q.T / np.sqrt(q.shape[-1])) @ v
not_normalised (plain): exponentials are not divided by their sum
    return np.exp(q @ k.T / np.sqrt(q.shape[-1])) @ v
normalised_with_a_little_more (plain): a little is added to the sum
    e = np.exp(q @ k.T / np.sqrt(q.shape[-1]))
    return e @ v / (e.sum(-1, keepdims=True) + 2**-10)
the_mask_is_off_by_one (causal_by_triu): the next key is seen
    s = q @ k.T / np.sqrt(q.shape[-1]) + np.triu(np.full((q.shape[0], k.shape[0]), -np.inf), 2)
    return softmax(s) @ v
the_mask_is_upside_down (causal_by_where): later keys are seen, and no earlier ones
    s = np.where(np.triu(np.ones((q.shape[0], k.shape[0]), dtype=bool)), q @ k.T / np.sqrt(k.shape[-1]), -np.inf)
    return softmax(s) @ v
the_mask_is_a_small_number (causal_by_arithmetic): a sign of the exponent
    s = q @ k.T / np.sqrt(k.shape[-1]) + (1.0 - np.tril(np.ones((q.shape[0], k.shape[0])))) * -1e-9
    return softmax(s) @ v
the_rescale_is_missing (by_tiles): what was summed is not rescaled
    z * r → z
    o * r → o
the_heads_are_not_transposed_back (two_heads): heads are merged as they are
    .transpose(1, 0, 2).reshape(q.shape[0], -1) → .reshape(q.shape[0], -1)
""",
        {program.__name__: program for program in RIGHT},
        globals(),
    )
]
