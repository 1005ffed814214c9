"""Attention with log-sum-exp and backward passes, wrong and right, as programs of causal attention."""

import numpy as np

from symattn import Attention, Gradient, Rotary
from tests.faults.programs import Program, wrong
from tests.faults.rewrites import softmax as _softmax


def _t(x):
    return np.swapaxes(x, -1, -2)


def _scale(q):
    return q.dtype.type(1) / np.sqrt(q.dtype.type(q.shape[-1]))


def _scores(q, k):
    s = q @ _t(k) * _scale(q)
    n, m = s.shape[-2:]
    return np.where(np.tri(n, m, m - n, dtype=bool), s, q.dtype.type(-np.inf))


# -- log-sum-exp -------------------------------------------------------------------------------------------------------
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


_LSE = Attention(causal=True, lse=True)


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


_TURNED = Gradient(Attention(causal=True, position=Rotary()))
_BACK, _GROUPS = Gradient(Attention(causal=True)), Gradient(Attention(causal=True, heads=4, kv_heads=2))
RIGHT = (
    Program("by keys", by_keys, _LSE),
    Program("backward", backward, _BACK),
    Program("from saved", from_saved, _BACK),
    Program("rotated back", rotated_back, _TURNED),
)
WRONG = wrong(
    globals(),
    RIGHT,
    """
back_no_mask (backward), backward: the mask is left out of the backward pass
    at precision="float64"
    _scores(q, k) → q @ _t(k) * _scale(q)
back_not_rotated (rotated_back), backward: dQ and dK are not rotated back: they are those of rotated queries and keys
    return backward(_turned(q, 1, k.shape[-2] - q.shape[-2]), _turned(k, 1), v, dout)
""",
)
