"""Gradients of attention: f(q, k, v, dout) -> dq, dk, dv."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn import Attention
from symattn.verification.definitions.gradients import Gradient
from tests.faults.collection.entries import At, Family

Array = Any
Three = tuple[Array, Array, Array]
FAMILY = Family("gradients", spec=Gradient(Attention()))
right, wrong = FAMILY.right, FAMILY.wrong
_CAUSAL = Gradient(Attention(causal=True))
_GROUPS = Gradient(Attention(heads=4, kv_heads=2))
_CAP = Gradient(Attention(softcap=5))
_UNSCALED = Gradient(Attention(scale=1))


def factor(q: Array) -> Array:
    return q.dtype.type(q.shape[-1] ** -0.5)


def turned(a: Array) -> Array:
    return a.swapaxes(-1, -2)


def hide(s: Array) -> Array:
    n_q, n_k = s.shape[-2:]
    return np.where(np.tri(n_q, n_k, n_k - n_q, dtype=bool), s, s.dtype.type(-np.inf))


def softmax(s: Array) -> Array:
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def back(p: Array, q: Array, k: Array, v: Array, dout: Array) -> Three:
    """The gradients from the weights."""
    dp = dout @ turned(v)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * factor(q)
    return ds @ k, turned(ds) @ q, turned(p) @ dout


@right("the textbook's four products")
def textbook(q: Array, k: Array, v: Array, dout: Array) -> Three:
    return back(softmax(q @ k.T * factor(q)), q, k, v, dout)


@right("row sums of dO O, as FlashAttention has it")
def by_outputs(q: Array, k: Array, v: Array, dout: Array) -> Three:
    p = softmax(q @ k.T * factor(q))
    delta = (dout * (p @ v)).sum(-1, keepdims=True)
    ds = p * (dout @ v.T - delta)
    return ds @ k * factor(q), ds.T @ q * factor(q), p.T @ dout


@right("in tiles of keys, weights made again from the logarithms of the sums", at=At(n_k=11))
def in_tiles(q: Array, k: Array, v: Array, dout: Array) -> Three:
    s = q @ k.T * factor(q)
    m = s.max(-1, keepdims=True)
    lse = m + np.log(np.exp(s - m).sum(-1, keepdims=True))
    delta = (dout * (np.exp(s - lse) @ v)).sum(-1, keepdims=True)
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for j in range(0, len(k), 4):
        tile = slice(j, j + 4)
        p = np.exp(q @ k[tile].T * factor(q) - lse)
        ds = p * (dout @ v[tile].T - delta) * factor(q)
        dq += ds @ k[tile]
        dk[tile], dv[tile] = ds.T @ q, p.T @ dout
    return dq, dk, dv


@right("the Jacobian of the softmax, row by row")
def by_jacobian(q: Array, k: Array, v: Array, dout: Array) -> Three:
    p = softmax(q @ k.T * factor(q))
    ds = np.stack([(np.diag(row) - np.outer(row, row)) @ dp for row, dp in zip(p, dout @ v.T, strict=True)])
    return ds @ k * factor(q), ds.T @ q * factor(q), p.T @ dout


@right("causal", spec=_CAUSAL)
def causal(q: Array, k: Array, v: Array, dout: Array) -> Three:
    return back(softmax(hide(q @ k.T * factor(q))), q, k, v, dout)


@right("summed over the query heads of a group", spec=_GROUPS)
def groups(q: Array, k: Array, v: Array, dout: Array) -> Three:
    r = q.shape[0] // k.shape[0]
    wide_k, wide_v = np.repeat(k, r, axis=0), np.repeat(v, r, axis=0)
    dq, dk, dv = back(softmax(q @ turned(wide_k) * factor(q)), q, wide_k, wide_v, dout)
    return dq, dk.reshape(-1, r, *k.shape[1:]).sum(1), dv.reshape(-1, r, *v.shape[1:]).sum(1)


@right("through the cap: 1 - tanh^2", spec=_CAP)
def capped(q: Array, k: Array, v: Array, dout: Array) -> Three:
    t = np.tanh(q @ k.T * factor(q) / 5)
    p, dp = softmax(5 * t), dout @ v.T
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * (1 - t * t) * factor(q)
    return ds @ k, ds.T @ q, p.T @ dout


@right("no scale is asked for", spec=_UNSCALED)
def unscaled(q: Array, k: Array, v: Array, dout: Array) -> Three:
    p, dp = softmax(q @ k.T), dout @ v.T
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    return ds @ k, ds.T @ q, p.T @ dout


@wrong("backward", "dQ without the scale", "scale", near="by_outputs")
def queries_unscaled(q: Array, k: Array, v: Array, dout: Array) -> Three:
    dq, dk, dv = textbook(q, k, v, dout)
    return dq / factor(q), dk, dv


@wrong("backward", "dK is scaled twice", "scale", near="by_outputs")
def keys_scaled_twice(q: Array, k: Array, v: Array, dout: Array) -> Three:
    dq, dk, dv = textbook(q, k, v, dout)
    return dq, dk * factor(q), dv


@wrong(
    "backward", "the row sums are not subtracted", "row sum|subtracted|jacobian|delta|d_i|Σ|softmax", near="textbook"
)
def without_row_sums(q: Array, k: Array, v: Array, dout: Array) -> Three:
    p = softmax(q @ k.T * factor(q))
    ds = p * (dout @ v.T) * factor(q)
    return ds @ k, ds.T @ q, p.T @ dout


@wrong("backward", "the row sums are taken over columns", "column|row sum|axis|queries", near="textbook")
def column_sums(q: Array, k: Array, v: Array, dout: Array) -> Three:
    p, dp = softmax(q @ k.T * factor(q)), dout @ v.T
    ds = p * (dp - (p * dp).sum(0, keepdims=True)) * factor(q)
    return ds @ k, ds.T @ q, p.T @ dout


@wrong("backward", "row sums of dP, not of P dP", "row sum|weight|P", near="textbook")
def row_sums_unweighted(q: Array, k: Array, v: Array, dout: Array) -> Three:
    p, dp = softmax(q @ k.T * factor(q)), dout @ v.T
    ds = p * (dp - dp.mean(-1, keepdims=True)) * factor(q)
    return ds @ k, ds.T @ q, p.T @ dout


@wrong(
    "backward",
    "dK and dV of the first query head of each group alone",
    "group|first|sum",
    spec=_GROUPS,
    near="groups",
    source="marin-community/levanter#449",
)
def groups_first_head(q: Array, k: Array, v: Array, dout: Array) -> Three:
    r = q.shape[0] // k.shape[0]
    wide_k, wide_v = np.repeat(k, r, axis=0), np.repeat(v, r, axis=0)
    dq, dk, dv = back(softmax(q @ turned(wide_k) * factor(q)), q, wide_k, wide_v, dout)
    return dq, dk[::r], dv[::r]


@wrong("backward", "dK and dV averaged over the group", "group|mean|averag", spec=_GROUPS, near="groups")
def groups_averaged(q: Array, k: Array, v: Array, dout: Array) -> Three:
    dq, dk, dv = groups(q, k, v, dout)
    r = q.dtype.type(q.shape[0] // k.shape[0])
    return dq, dk / r, dv / r


@wrong("backward", "the derivative of the cap is left out", "cap|tanh", spec=_CAP, near="capped", at=At(spread=2.0))
def cap_without_derivative(q: Array, k: Array, v: Array, dout: Array) -> Three:
    p = softmax(5 * np.tanh(q @ k.T * factor(q) / 5))
    return back(p, q, k, v, dout)


@wrong("backward", "the mask is forgotten going back", "mask|causal", spec=_CAUSAL, near="causal")
def mask_forgotten(q: Array, k: Array, v: Array, dout: Array) -> Three:
    s = q @ k.T * factor(q)
    m = hide(s).max(-1, keepdims=True)
    lse = m + np.log(np.exp(hide(s) - m).sum(-1, keepdims=True))
    return back(np.exp(s - lse), q, k, v, dout)


@wrong("backward", "the sign of dQ and dK", "sign|negative", near="textbook")
def sign(q: Array, k: Array, v: Array, dout: Array) -> Three:
    dq, dk, dv = textbook(q, k, v, dout)
    return -dq, -dk, dv


@wrong("backward", "dQ and dK exchanged", "exchanged|order|swapped|dk", near="textbook", at=At(n_k=5))
def exchanged(q: Array, k: Array, v: Array, dout: Array) -> Three:
    dq, dk, dv = textbook(q, k, v, dout)
    return (dk, dq, dv) if dq.shape == dk.shape else (dq, dk, dv)


@wrong("backward", "dV from unnormalised exponentials", "normalis|exponential|sum|dv", near="textbook")
def values_unnormalised(q: Array, k: Array, v: Array, dout: Array) -> Three:
    dq, dk, _ = textbook(q, k, v, dout)
    s = q @ k.T * factor(q)
    return dq, dk, np.exp(s - s.max(-1, keepdims=True)).T @ dout


@wrong("backward", "dV without the weights transposed where that fits", "transpos|dv", near="textbook", at=At(n_k=5))
def values_not_transposed(q: Array, k: Array, v: Array, dout: Array) -> Three:
    dq, dk, dv = textbook(q, k, v, dout)
    p = softmax(q @ k.T * factor(q))
    return dq, dk, p @ dout if p.shape[0] == p.shape[1] else dv


@wrong(
    "backward",
    "dK from the last tile of queries alone",
    "last|tile|overwrit|sum|part",
    near="in_tiles",
    shows="more than four queries",
)
def keys_of_last_tile(q: Array, k: Array, v: Array, dout: Array) -> Three:
    dq, _, dv = textbook(q, k, v, dout)
    first = (len(q) - 1) // 4 * 4
    return dq, textbook(q[first:], k, v, dout[first:])[1], dv


@wrong(
    "backward", "dS in float16", "float16|half|precision|rounded", near="textbook", at=At(n_q=2, n_k=2, d_k=2, d_v=8)
)
def slopes_in_half(q: Array, k: Array, v: Array, dout: Array) -> Three:
    p, dp = softmax(q @ k.T * factor(q)), dout @ v.T
    ds = (p * (dp - (p * dp).sum(-1, keepdims=True)) * factor(q)).astype(np.float16).astype(q.dtype)
    return ds @ k, ds.T @ q, p.T @ dout
