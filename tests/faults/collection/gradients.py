"""Gradients of attention: f(q, k, v, dout) -> dq, dk, dv."""

from typing import Any

import numpy as np

from symattn import Attention, Gradient
from tests.faults.collection.entries import At, Family
from tests.faults.programs import softmax

Array = Any
Three = tuple[Array, Array, Array]
FAMILY = Family("gradients", spec=Gradient(Attention()))
right = FAMILY.right
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


FAMILY.wrong(
    globals(),
    """
queries_unscaled (by_outputs), backward: dQ without the scale
    says scale
    dq, dk, dv = textbook(q, k, v, dout)
    return dq / factor(q), dk, dv
keys_scaled_twice (by_outputs), backward: dK is scaled twice
    says scale
    dq, dk, dv = textbook(q, k, v, dout)
    return dq, dk * factor(q), dv
without_row_sums (textbook), backward: the row sums are not subtracted
    says row sum|subtracted|jacobian|delta|d_i|Σ|softmax
    p = softmax(q @ k.T * factor(q))
    ds = p * (dout @ v.T) * factor(q)
    return ds @ k, ds.T @ q, p.T @ dout
column_sums (textbook), backward: the row sums are taken over columns
    says column|row sum|axis|queries
    p, dp = softmax(q @ k.T * factor(q)), dout @ v.T
    ds = p * (dp - (p * dp).sum(0, keepdims=True)) * factor(q)
    return ds @ k, ds.T @ q, p.T @ dout
row_sums_unweighted (textbook), backward: row sums of dP, not of P dP
    says row sum|weight|P
    p, dp = softmax(q @ k.T * factor(q)), dout @ v.T
    ds = p * (dp - dp.mean(-1, keepdims=True)) * factor(q)
    return ds @ k, ds.T @ q, p.T @ dout
groups_first_head (groups), backward: dK and dV of the first query head of each group alone
    says group|first|sum; source marin-community/levanter#449
    .reshape(-1, r, *k.shape[1:]).sum(1), dv.reshape(-1, r, *v.shape[1:]).sum(1) → [::r], dv[::r]
groups_averaged (groups), backward: dK and dV averaged over the group
    says group|mean|averag
    dq, dk, dv = groups(q, k, v, dout)
    r = q.dtype.type(q.shape[0] // k.shape[0])
    return dq, dk / r, dv / r
cap_without_derivative (capped), backward: the derivative of the cap is left out
    says cap|tanh; at=At(spread=2.0)
    p = softmax(5 * np.tanh(q @ k.T * factor(q) / 5))
    return back(p, q, k, v, dout)
mask_forgotten (causal), backward: the mask is forgotten going back
    says mask|causal
    s = q @ k.T * factor(q)
    m = hide(s).max(-1, keepdims=True)
    lse = m + np.log(np.exp(hide(s) - m).sum(-1, keepdims=True))
    return back(np.exp(s - lse), q, k, v, dout)
sign (textbook), backward: the sign of dQ and dK
    says sign|negative
    dq, dk, dv = textbook(q, k, v, dout)
    return -dq, -dk, dv
exchanged (textbook), backward: dQ and dK exchanged
    says exchanged|order|swapped|dk; at=At(n_k=5)
    dq, dk, dv = textbook(q, k, v, dout)
    return (dk, dq, dv) if dq.shape == dk.shape else (dq, dk, dv)
values_unnormalised (textbook), backward: dV from unnormalised exponentials
    says normalis|exponential|sum|dv
    dq, dk, _ = textbook(q, k, v, dout)
    s = q @ k.T * factor(q)
    return dq, dk, np.exp(s - s.max(-1, keepdims=True)).T @ dout
values_not_transposed (textbook), backward: dV without the weights transposed where that fits
    says transpos|dv; at=At(n_k=5)
    dq, dk, dv = textbook(q, k, v, dout)
    p = softmax(q @ k.T * factor(q))
    return dq, dk, p @ dout if p.shape[0] == p.shape[1] else dv
keys_of_last_tile (in_tiles), backward: dK from the last tile of queries alone
    says last|tile|overwrit|sum|part; shows more than four queries
    dq, _, dv = textbook(q, k, v, dout)
    first = (len(q) - 1) // 4 * 4
    return dq, textbook(q[first:], k, v, dout[first:])[1], dv
slopes_in_half (textbook), backward: dS in float16
    says float16|half|precision|rounded; at=At(n_q=2, n_k=2, d_k=2, d_v=8)
    p, dp = softmax(q @ k.T * factor(q)), dout @ v.T
    ds = (p * (dp - (p * dp).sum(-1, keepdims=True)) * factor(q)).astype(np.float16).astype(q.dtype)
    return ds @ k, ds.T @ q, p.T @ dout
""",
)
