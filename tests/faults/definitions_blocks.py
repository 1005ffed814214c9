"""Layers of a Transformer, wrong and right, as programs."""

from __future__ import annotations

import numpy as np

from symattn import Attention, Block
from tests.faults.programs import Program


def _norm(x, gain, bias):
    c = x - x.mean(-1, keepdims=True)
    return c / np.sqrt((c * c).mean(-1, keepdims=True) + x.dtype.type(1e-5)) * gain + bias


def _rms(x, gain):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(1e-5)) * gain


def _attention(x, w_q, w_k, w_v, w_o):
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.dtype.type(q.shape[-1]))
    s = np.where(np.tri(s.shape[-1], dtype=bool), s, q.dtype.type(-np.inf))
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v @ w_o


def _layer(x, w1, b1, w2, b2):
    return np.maximum(x @ w1 + b1, 0) @ w2 + b2


def pre(x, w_q, w_k, w_v, w_o, w1, b1, w2, b2, ln1_weight, ln1_bias, ln2_weight, ln2_bias):
    x = x + _attention(_norm(x, ln1_weight, ln1_bias), w_q, w_k, w_v, w_o)
    return x + _layer(_norm(x, ln2_weight, ln2_bias), w1, b1, w2, b2)


def post(x, w_q, w_k, w_v, w_o, w1, b1, w2, b2, ln1_weight, ln1_bias, ln2_weight, ln2_bias):
    x = _norm(x + _attention(x, w_q, w_k, w_v, w_o), ln1_weight, ln1_bias)
    return _norm(x + _layer(x, w1, b1, w2, b2), ln2_weight, ln2_bias)


def no_residual(x, w_q, w_k, w_v, w_o, w1, b1, w2, b2, ln1_weight, ln1_bias, ln2_weight, ln2_bias):
    x = _attention(_norm(x, ln1_weight, ln1_bias), w_q, w_k, w_v, w_o)
    return x + _layer(_norm(x, ln2_weight, ln2_bias), w1, b1, w2, b2)


def from_norm(x, w_q, w_k, w_v, w_o, w1, b1, w2, b2, ln1_weight, ln1_bias, ln2_weight, ln2_bias):
    z = _norm(x, ln1_weight, ln1_bias)
    x = z + _attention(z, w_q, w_k, w_v, w_o)
    return x + _layer(_norm(x, ln2_weight, ln2_bias), w1, b1, w2, b2)


def one_norm(x, w_q, w_k, w_v, w_o, w1, b1, w2, b2, ln1_weight, ln1_bias, ln2_weight, ln2_bias):
    x = x + _attention(_norm(x, ln1_weight, ln1_bias), w_q, w_k, w_v, w_o)
    return x + _layer(x, w1, b1, w2, b2)


def _silu(x):
    return x / (1 + np.exp(-x))


def gated(x, wq, wk, wv, wo, w_gate, w_up, w_down, norm1_weight, norm2_weight):
    x = x + _attention(_rms(x, norm1_weight), wq, wk, wv, wo)
    z = _rms(x, norm2_weight)
    return x + (_silu(z @ w_gate) * (z @ w_up)) @ w_down


def gates_exchanged(x, wq, wk, wv, wo, w_gate, w_up, w_down, norm1_weight, norm2_weight):
    return gated(x, wq, wk, wv, wo, w_up, w_gate, w_down, norm1_weight, norm2_weight)


_PRE = Block(attention=Attention(causal=True))
_GATED = Block(attention=Attention(causal=True), norm="rms", activation="silu", gated=True)
WRONG = (
    Program("block post", post, _PRE, "the norms stand after each residual, not before each part", step="norm"),
    Program("block no residual", no_residual, _PRE, "the residual around attention is left out", step="residual"),
    Program("block from norm", from_norm, _PRE, step="residual",
            cause="the residual around attention starts from the tokens after the norm"),
    Program("block one norm", one_norm, _PRE, "the norm of the feed-forward layer is left out", step="norm"),
    Program("block gates", gates_exchanged, _GATED, "the inputs mlp.w_up and mlp.w_gate are exchanged", step="project"),
)  # fmt: skip
RIGHT = (
    Program("block pre", pre, _PRE),
    Program("block gated", gated, _GATED),
    Program("block after", post, Block(attention=Attention(causal=True), order="post")),
)
