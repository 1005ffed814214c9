"""Attention with log-sum-exp and backward passes, wrong and right, as programs of causal attention."""

from __future__ import annotations

import numpy as np

from symattn import Attention, Gradient, Rotary
from tests.faults.programs import Program


def _t(x):
    return np.swapaxes(x, -1, -2)


def _scale(q):
    return q.dtype.type(1) / np.sqrt(q.dtype.type(q.shape[-1]))


def _scores(q, k):
    s = q @ _t(k) * _scale(q)
    n, m = s.shape[-2:]
    return np.where(np.tri(n, m, m - n, dtype=bool), s, q.dtype.type(-np.inf))


def _softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# -- log-sum-exp -------------------------------------------------------------------------------------------------------
def with_lse(q, k, v):
    s = _scores(q, k)
    top = s.max(-1, keepdims=True)
    e = np.exp(s - top)
    z = e.sum(-1, keepdims=True)
    return e / z @ v, (top + np.log(z))[..., 0]


def by_keys(q, k, v):
    s = _scores(q, k)
    top = np.full((*s.shape[:-1], 1), -np.inf, s.dtype)
    z, a = np.zeros_like(top), np.zeros((*s.shape[:-1], v.shape[-1]), s.dtype)
    for j in range(s.shape[-1]):
        t = s[..., j : j + 1]
        new = np.maximum(top, t)
        here = np.isfinite(new)
        old = np.where(here, np.exp(np.where(here, top - np.where(here, new, 0), 0)), 0).astype(s.dtype)
        e = np.where(here, np.exp(t - np.where(here, new, 0)), 0).astype(s.dtype)
        z, a, top = z * old + e, a * old + e @ v[..., j : j + 1, :], new
    return a / z, (top + np.log(z))[..., 0]


def base_two(q, k, v):
    o, lse = with_lse(q, k, v)
    return o, lse / np.log(q.dtype.type(2))


def no_maximum(q, k, v):
    return with_lse(q, k, v)[0], with_lse(q, k, v)[1] - _scores(q, k).max(-1)


def of_unscaled(q, k, v):
    return with_lse(q, k, v)[0], with_lse(q / _scale(q), k, v)[1]


def counts_all(q, k, v):
    return with_lse(q, k, v)[0], np.log(np.exp(q @ _t(k) * _scale(q)).sum(-1))


def negative(q, k, v):
    o, lse = with_lse(q, k, v)
    return o, -lse


_LSE = Attention(causal=True, lse=True)
LSE_WRONG = (
    Program("lse base two", base_two, _LSE, "the logarithm has the base 2"),
    Program("lse no maximum", no_maximum, _LSE, "the maximum is not added to the logarithm of the sum"),
    Program("lse of unscaled", of_unscaled, _LSE, "it is of the scores before they are scaled", "float64"),
    Program("lse counts all", counts_all, _LSE, "keys that are forbidden are counted"),
    Program("lse negative", negative, _LSE, "lse has the other sign", "float16"),
)
LSE_RIGHT = (Program("with lse", with_lse, _LSE), Program("by keys", by_keys, _LSE))


# -- backward ----------------------------------------------------------------------------------------------------------
def backward(q, k, v, dout):
    p = _softmax(_scores(q, k))
    dp = dout @ _t(v)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * _scale(q)
    return ds @ k, _t(ds) @ q, _t(p) @ dout


def from_saved(q, k, v, o, lse, dout):
    p = np.exp(_scores(q, k) - lse[..., None])
    ds = p * (dout @ _t(v) - (dout * o).sum(-1, keepdims=True))
    return ds @ k * _scale(q), _t(ds) @ q * _scale(q), _t(p) @ dout


def groups_summed(q, k, v, grad_output):
    times = q.shape[-3] // k.shape[-3]
    dq, dk, dv = backward(q, np.repeat(k, times, axis=-3), np.repeat(v, times, axis=-3), grad_output)
    return dq, *(g.reshape(*k.shape[:-2], times, *g.shape[-2:]).sum(-3) for g in (dk, dv))


def groups_first(q, k, v, grad_output):
    times = q.shape[-3] // k.shape[-3]
    dq, dk, dv = backward(q, np.repeat(k, times, axis=-3), np.repeat(v, times, axis=-3), grad_output)
    return dq, dk[..., ::times, :, :], dv[..., ::times, :, :]


def dk_not_scaled(q, k, v, dout):
    dq, dk, dv = backward(q, k, v, dout)
    return dq, dk / _scale(q), dv


def no_row_sums(q, k, v, dout):
    p = _softmax(_scores(q, k))
    ds = p * (dout @ _t(v)) * _scale(q)
    return ds @ k, _t(ds) @ q, _t(p) @ dout


def no_mask(q, k, v, dout):
    p = _softmax(q @ _t(k) * _scale(q))
    dp = dout @ _t(v)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * _scale(q)
    return ds @ k, _t(ds) @ q, _t(p) @ dout


def signs(q, k, v, dout):
    dq, dk, dv = backward(q, k, v, dout)
    return -dq, -dk, dv


def _turned(x, sign, late=0):
    """Columns l and l + r/2 rotated by the angles of their tokens, or back."""
    f = x.shape[-1] // 2
    angles = np.outer(late + np.arange(x.shape[-2]), 10000.0 ** (-np.arange(f) / max(f, 1))).astype(x.dtype)
    c, s, a, b = np.cos(angles), sign * np.sin(angles), x[..., :f], x[..., f:]
    return np.concatenate([a * c - b * s, b * c + a * s], axis=-1)


def rotated_back(q, k, v, dout):
    late = k.shape[-2] - q.shape[-2]
    dq, dk, dv = backward(_turned(q, 1, late), _turned(k, 1), v, dout)
    return _turned(dq, -1, late), _turned(dk, -1), dv


def not_rotated_back(q, k, v, dout):
    return backward(_turned(q, 1, k.shape[-2] - q.shape[-2]), _turned(k, 1), v, dout)


_TURNED = Gradient(Attention(causal=True, position=Rotary()))
_BACK, _GROUPS = Gradient(Attention(causal=True)), Gradient(Attention(causal=True, heads=4, kv_heads=2))
_FIRST = "dK and dV are those of the first head of each group alone, not the sum over the group"
BACK_WRONG = (
    Program("back groups first", groups_first, _GROUPS, _FIRST),
    Program("back dk not scaled", dk_not_scaled, _BACK, "dK is not scaled"),
    Program("back no row sums", no_row_sums, _BACK, "the sums over the rows, rowsum(P ⊙ dP), are not subtracted"),
    Program("back no mask", no_mask, _BACK, "the mask is left out of the backward pass", "float64"),
    Program(
        "back not rotated",
        not_rotated_back,
        _TURNED,
        "dQ and dK are not rotated back: they are those of rotated queries and keys",
    ),
    Program("back signs", signs, _BACK, "the signs of dQ and dK are changed", "float16"),
)
BACK_RIGHT = (
    Program("backward", backward, _BACK),
    Program("from saved", from_saved, _BACK),
    Program("rotated back", rotated_back, _TURNED),
    Program("groups summed", groups_summed, _GROUPS),
)
