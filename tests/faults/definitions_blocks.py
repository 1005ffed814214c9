"""Layers of a Transformer, wrong and right, as programs."""

import numpy as np

from symattn import Attention, Block
from tests.faults.definitions_caches import attend
from tests.faults.programs import Program, wrong


def _norm(x, gain, bias):
    c = x - x.mean(-1, keepdims=True)
    return c / np.sqrt((c * c).mean(-1, keepdims=True) + x.dtype.type(1e-5)) * gain + bias


def _rms(x, gain):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(1e-5)) * gain


def _attention(x, w_q, w_k, w_v, w_o):
    return attend(x @ w_q, x @ w_k, x @ w_v, np.tri(x.shape[-2], dtype=bool)) @ w_o


def _layer(x, w1, b1, w2, b2):
    return np.maximum(x @ w1 + b1, 0) @ w2 + b2


def pre(x, w_q, w_k, w_v, w_o, w1, b1, w2, b2, ln1_weight, ln1_bias, ln2_weight, ln2_bias):
    x = x + _attention(_norm(x, ln1_weight, ln1_bias), w_q, w_k, w_v, w_o)
    return x + _layer(_norm(x, ln2_weight, ln2_bias), w1, b1, w2, b2)


def post(x, w_q, w_k, w_v, w_o, w1, b1, w2, b2, ln1_weight, ln1_bias, ln2_weight, ln2_bias):
    x = _norm(x + _attention(x, w_q, w_k, w_v, w_o), ln1_weight, ln1_bias)
    return _norm(x + _layer(x, w1, b1, w2, b2), ln2_weight, ln2_bias)


def _silu(x):
    return x / (1 + np.exp(-x))


def gated(x, wq, wk, wv, wo, w_gate, w_up, w_down, norm1_weight, norm2_weight):
    x = x + _attention(_rms(x, norm1_weight), wq, wk, wv, wo)
    z = _rms(x, norm2_weight)
    return x + (_silu(z @ w_gate) * (z @ w_up)) @ w_down


_PRE = Block(attention=Attention(causal=True))
_GATED = Block(attention=Attention(causal=True), norm="rms", activation="silu", gated=True)
RIGHT = (
    Program("block pre", pre, _PRE),
    Program("block gated", gated, _GATED),
    Program("block after", post, Block(attention=Attention(causal=True), order="post")),
)
WRONG = wrong(
    globals(),
    RIGHT,
    """
block_post (pre), norm: the norms stand after each residual, not before each part
    return post(x, w_q, w_k, w_v, w_o, w1, b1, w2, b2, ln1_weight, ln1_bias, ln2_weight, ln2_bias)
block_no_residual (pre), residual: the residual around attention is left out
    x + _attention( → _attention(
block_from_norm (pre), residual: the residual around attention starts from the tokens after the norm
    x + _attention(_norm(x, ln1_weight, ln1_bias) → (z := _norm(x, ln1_weight, ln1_bias)) + _attention(z
block_one_norm (pre), norm: the norm of the feed-forward layer is left out
    _layer(_norm(x, ln2_weight, ln2_bias) → _layer(x
block_first_norm (gated), norm: the parameters of the first norm are used for the second, too
    _rms(x, norm2_weight) → _rms(x, norm1_weight)
block_second_norm (pre), norm: the parameters of the second norm are used for the first, too
    _norm(x, ln1_weight, ln1_bias) → _norm(x, ln2_weight, ln2_bias)
block_gates (gated), project: the inputs mlp.w_up and mlp.w_gate are exchanged
    _silu(z @ w_gate) * (z @ w_up) → _silu(z @ w_up) * (z @ w_gate)
""",
)
