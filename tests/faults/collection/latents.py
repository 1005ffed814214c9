"""Keys and values from latents, as in DeepSeek's models."""

from typing import Any

import numpy as np

from symattn import Attention, Latent, Rotary
from tests.faults.collection.entries import Family
from tests.faults.programs import softmax

Array = Any
FAMILY = Family("latents", spec=Attention(heads=2, causal=True, latent=Latent(), position=Rotary(layout="interleaved")))
right = FAMILY.right


def hide(s: Array) -> Array:
    return np.where(np.tri(s.shape[-2], s.shape[-1], dtype=bool), s, s.dtype.type(-np.inf))


def turn(x: Array) -> Array:
    """Neighbouring columns by the token's place."""
    n, d = x.shape[-2:]
    theta = np.outer(np.arange(n), 10000.0 ** (-np.arange(0, d, 2) / d))
    cos, sin = np.cos(theta).astype(x.dtype), np.sin(theta).astype(x.dtype)
    out = np.empty_like(x)
    out[..., ::2] = x[..., ::2] * cos - x[..., 1::2] * sin
    out[..., 1::2] = x[..., 1::2] * cos + x[..., ::2] * sin
    return out


def split(x: Array, heads: int) -> Array:
    return x.reshape(len(x), heads, -1).swapaxes(0, 1)


def parts(x: Array, w_q: Array, w_dkv: Array, w_uk: Array, w_uv: Array, w_kr: Array, heads: int) -> tuple[Array, ...]:
    """Queries without and with a position, keys likewise, and values."""
    c, d_r = x @ w_dkv, w_kr.shape[1]
    q = split(x @ w_q, heads)
    return q[..., :-d_r], turn(q[..., -d_r:]), split(c @ w_uk, heads), turn(x @ w_kr), split(c @ w_uv, heads)


def finish(s: Array, v: Array, w_o: Array) -> Array:
    out = softmax(hide(s)) @ v
    return out.swapaxes(0, 1).reshape(out.shape[1], -1) @ w_o


@right("keys and values are made")
def expanded(
    x: Array, w_q: Array, w_dkv: Array, w_uk: Array, w_uv: Array, w_kr: Array, w_o: Array, heads: int
) -> Array:
    q_n, q_r, k_n, k_r, v = parts(x, w_q, w_dkv, w_uk, w_uv, w_kr, heads)
    width = x.dtype.type(q_n.shape[-1] + q_r.shape[-1])
    return finish((q_n @ k_n.swapaxes(1, 2) + q_r @ k_r.T) / np.sqrt(width), v, w_o)


@right("the matrices absorbed: only latents and the shared part are kept")
def absorbed(
    x: Array, w_q: Array, w_dkv: Array, w_uk: Array, w_uv: Array, w_kr: Array, w_o: Array, heads: int
) -> Array:
    q_n, q_r, _, k_r, _ = parts(x, w_q, w_dkv, w_uk, w_uv, w_kr, heads)
    c = x @ w_dkv
    s = q_n @ split(w_uk, heads).swapaxes(1, 2) @ c.T + q_r @ k_r.T
    p = softmax(hide(s / np.sqrt(x.dtype.type(q_n.shape[-1] + q_r.shape[-1]))))
    out = p @ c @ split(w_uv, heads)
    return out.swapaxes(0, 1).reshape(len(x), -1) @ w_o


def values_by_key_matrix(
    x: Array, w_q: Array, w_dkv: Array, w_uk: Array, w_uv: Array, w_kr: Array, w_o: Array, heads: int
) -> Array:
    q_n, q_r, k_n, k_r, v = parts(x, w_q, w_dkv, w_uk, w_uv, w_kr, heads)
    wrong_v = np.zeros_like(v)
    wide = min(k_n.shape[-1], v.shape[-1])
    wrong_v[..., :wide] = k_n[..., :wide]
    s = (q_n @ k_n.swapaxes(1, 2) + q_r @ k_r.T) / np.sqrt(x.dtype.type(q_n.shape[-1] + q_r.shape[-1]))
    return finish(s, wrong_v, w_o)


FAMILY.wrong(
    globals(),
    """
scaled_by_one_part (expanded), scale: the width of the part without a position alone
    says scale|√
    q_n, q_r, k_n, k_r, v = parts(x, w_q, w_dkv, w_uk, w_uv, w_kr, heads)
    return finish((q_n @ k_n.swapaxes(1, 2) + q_r @ k_r.T) / np.sqrt(x.dtype.type(q_n.shape[-1])), v, w_o)
shared_not_rotated (expanded), position: the shared keys are not rotated
    says not rotated
    k_r, → _,
    k_r. → (x @ w_kr).
part_left_out (expanded), score|position: the part with positions is left out of the scores
    says position|left out|part
    q_n, q_r, k_n, _, v = parts(x, w_q, w_dkv, w_uk, w_uv, w_kr, heads)
    return finish(q_n @ k_n.swapaxes(1, 2) / np.sqrt(x.dtype.type(q_n.shape[-1] + q_r.shape[-1])), v, w_o)
parts_exchanged (expanded), split: the rotated columns are taken from the front
    says first|last|front|columns|order|part
    d_r = w_kr.shape[1]
    q = split(x @ w_q, heads)
    q_r, q_n = turn(q[..., :d_r]), q[..., d_r:]
    _, _, k_n, k_r, v = parts(x, w_q, w_dkv, w_uk, w_uv, w_kr, heads)
    return finish((q_n @ k_n.swapaxes(1, 2) + q_r @ k_r.T) / np.sqrt(x.dtype.type(q.shape[-1])), v, w_o)
values_by_key_matrix (expanded), project: the latent is expanded by the keys' matrix for the values as well
    says values & keys|w_uk
""",
)
