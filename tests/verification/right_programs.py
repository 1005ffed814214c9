"""Right programs of NumPy for definitions beside attention, each as somebody would write it.

Independent of ``symattn``. Single edits of their source are drawn by ``tests.verification.drawn_edits``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn import (
    Attention,
    DepthAttention,
    Differential,
    Gradient,
    LayerNorm,
    LinearAttention,
    Merge,
    RMSNorm,
    Rotary,
    Softmax,
)
from tests.faults import definitions
from tests.faults.programs import Program

Array = Any


# -- softmax and merges ------------------------------------------------------------------------------------------------
def softmax_of_rows(scores: Array) -> Array:
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_causal(scores: Array) -> Array:
    n, m = scores.shape[-2:]
    open_ = np.arange(m)[None, :] <= np.arange(n)[:, None] + (m - n)
    s = np.where(open_, scores, scores.dtype.type(-np.inf))
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_capped(scores: Array) -> Array:
    cap = scores.dtype.type(2)
    s = cap * np.tanh(scores / cap)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def merged(o1: Array, l1: Array, o2: Array, l2: Array) -> tuple[Array, Array]:
    top = np.maximum(l1, l2)
    safe = np.where(np.isfinite(top), top, 0).astype(top.dtype)
    w1, w2 = np.exp(l1 - safe), np.exp(l2 - safe)
    total = w1 + w2
    first = np.where((w1 > 0)[..., None], o1, 0) * (w1 / total)[..., None]
    second = np.where((w2 > 0)[..., None], o2, 0) * (w2 / total)[..., None]
    return (first + second).astype(o1.dtype), safe + np.log(total)


# -- norms -------------------------------------------------------------------------------------------------------------
def rms_norm(x: Array, gain: Array) -> Array:
    mean = (x * x).mean(axis=-1, keepdims=True)
    return x / np.sqrt(mean + x.dtype.type(1e-6)) * gain


def layer_norm(x: Array, gain: Array, bias: Array) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + x.dtype.type(1e-5)) * gain + bias


# -- attention over differences and depth ------------------------------------------------------------------------------
def differential(q: Array, k: Array, v: Array, lam: Array) -> Array:
    d = q.shape[-1] // 2
    scale = 1 / np.sqrt(q.dtype.type(d))
    a1 = softmax_of_rows(q[..., :d] @ np.swapaxes(k[..., :d], -1, -2) * scale)
    a2 = softmax_of_rows(q[..., d:] @ np.swapaxes(k[..., d:], -1, -2) * scale)
    return (a1 - lam * a2) @ v


def differential_normed(q: Array, k: Array, v: Array) -> Array:
    d = q.shape[-1] // 2
    half = q.dtype.type(0.5)
    scale = 1 / np.sqrt(q.dtype.type(d))
    a1 = softmax_of_rows(q[..., :d] @ np.swapaxes(k[..., :d], -1, -2) * scale)
    a2 = softmax_of_rows(q[..., d:] @ np.swapaxes(k[..., d:], -1, -2) * scale)
    o = a1 @ v - half * (a2 @ v)
    mean = (o * o).mean(axis=-1, keepdims=True)
    return o / np.sqrt(mean + q.dtype.type(0.125)) * q.dtype.type(0.75)


def over_depth(w: Array, outputs: Array) -> Array:
    keys = outputs / np.sqrt((outputs * outputs).mean(axis=-1, keepdims=True) + outputs.dtype.type(1e-6))
    s = (keys * w).sum(axis=-1)
    e = np.exp(s - s.max(axis=0))
    p = e / e.sum(axis=0)
    return (p[..., None] * outputs).sum(axis=0)


# -- linear attention --------------------------------------------------------------------------------------------------
def gated_by_features(q: Array, k: Array, v: Array, g: Array) -> Array:
    state = np.zeros((*k.shape[:-2], k.shape[-1], v.shape[-1]), k.dtype)
    rows = []
    for t in range(k.shape[-2]):
        state = state * np.exp(g[..., t, :])[..., None]
        state = state + k[..., t, :, None] * v[..., t, None, :]
        rows.append((q[..., t, :, None] * state).sum(axis=-2))
    return np.stack(rows, axis=-2)


def gated_delta(q: Array, k: Array, v: Array, g: Array, beta: Array) -> Array:
    state = np.zeros((*k.shape[:-2], k.shape[-1], v.shape[-1]), k.dtype)
    rows = []
    for t in range(k.shape[-2]):
        state = state * np.exp(g[..., t])[..., None, None]
        key = k[..., t, :, None]
        seen = (key * state).sum(axis=-2, keepdims=True)
        state = state + key * (beta[..., t, None, None] * (v[..., t, None, :] - seen))
        rows.append((q[..., t, :, None] * state).sum(axis=-2))
    return np.stack(rows, axis=-2)


def with_states(q: Array, k: Array, v: Array, g: Array, initial_state: Array) -> tuple[Array, Array]:
    state = initial_state
    scale = 1 / np.sqrt(q.dtype.type(q.shape[-1]))
    rows = []
    for t in range(k.shape[-2]):
        state = state * np.exp(g[..., t])[..., None, None]
        state = state + k[..., t, :, None] * v[..., t, None, :]
        rows.append((q[..., t, :, None] * scale * state).sum(axis=-2))
    return np.stack(rows, axis=-2), state


def read_before(q: Array, k: Array, v: Array, g: Array, bonus: Array) -> Array:
    state = np.zeros((*k.shape[:-2], k.shape[-1], v.shape[-1]), k.dtype)
    rows = []
    for t in range(k.shape[-2]):
        added = k[..., t, :, None] * v[..., t, None, :]
        rows.append((q[..., t, :, None] * (state + bonus[..., None] * added)).sum(axis=-2))
        state = state * np.exp(g[..., t, :])[..., None] + added
    return np.stack(rows, axis=-2)


def of_heads(q: Array, k: Array, v: Array, g: Array) -> Array:
    n = q.shape[-2]
    late = (np.arange(n)[:, None] - np.arange(n)[None, :]).astype(q.dtype)
    decay = np.where(late >= 0, np.exp(np.minimum(late, n) * g[:, None, None] * (late >= 0)), 0)
    return (q @ np.swapaxes(k, -1, -2) * decay.astype(q.dtype)) @ v


# -- gradients and rotations -------------------------------------------------------------------------------------------
def gradient(q: Array, k: Array, v: Array, do: Array) -> tuple[Array, Array, Array]:
    scale = 1 / np.sqrt(q.dtype.type(q.shape[-1]))
    p = softmax_of_rows(q @ np.swapaxes(k, -1, -2) * scale)
    dp = do @ np.swapaxes(v, -1, -2)
    ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True))
    dq = ds @ k * scale
    dk = np.swapaxes(ds, -1, -2) @ q * scale
    dv = np.swapaxes(p, -1, -2) @ do
    return dq, dk, dv


def gradient_linear(q: Array, k: Array, v: Array, do: Array) -> tuple[Array, Array, Array]:
    a = np.tril(q @ np.swapaxes(k, -1, -2))
    da = np.tril(do @ np.swapaxes(v, -1, -2))
    return da @ k, np.swapaxes(da, -1, -2) @ q, np.swapaxes(a, -1, -2) @ do


def rotated_in_sections(x: Array, positions: Array) -> Array:
    half = x.shape[-1] // 2
    frequencies = x.dtype.type(10000) ** (-np.arange(half).astype(x.dtype) / x.dtype.type(half))
    rows = np.repeat(np.arange(3), (1, 1, 2))
    angles = positions.astype(x.dtype)[rows].T * frequencies
    c, s = np.cos(angles), np.sin(angles)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * c - b * s, b * c + a * s], axis=-1)


def log_sums(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.dtype.type(q.shape[-1]))
    top = s.max(axis=-1, keepdims=True)
    e = np.exp(s - top)
    total = e.sum(axis=-1, keepdims=True)
    return e @ v / total, (top + np.log(total))[..., 0]


_BARE = {"feature": "identity", "normalised": False}
RIGHT: tuple[Program, ...] = (
    Program("softmax", softmax_of_rows, Softmax()),
    Program("softmax causal", softmax_causal, Softmax(Attention(causal=True))),
    Program("softmax capped", softmax_capped, Softmax(Attention(softcap=2))),
    Program("merge", merged, Merge()),
    Program("rms norm", rms_norm, RMSNorm(eps=1e-6)),
    Program("layer norm", layer_norm, LayerNorm(eps=1e-5)),
    Program("differential", differential, Differential()),
    Program("differential normed", differential_normed, Differential(factor=0.5, norm="rms", eps=0.125, init=0.25)),
    Program("depth", over_depth, DepthAttention()),
    Program("rotary sections", rotated_in_sections, Rotary(given="positions", sections=(1, 1, 2))),
    Program("log-sums", log_sums, Attention(lse=True)),
    Program("linear gates of features", gated_by_features, LinearAttention(gate="feature", **_BARE)),
    Program("linear gated delta", gated_delta, LinearAttention(gate="token", delta=True, **_BARE)),
    Program("linear states", with_states, LinearAttention(gate="token", scale=True, state="kv", **_BARE)),
    Program("linear bonus", read_before, LinearAttention(gate="feature", reads="before", bonus=True, **_BARE)),
    Program("linear heads", of_heads, LinearAttention(gate="head", **_BARE)),
    Program("gradient", gradient, Gradient(Attention())),
    Program("gradient linear", gradient_linear, Gradient(LinearAttention(**_BARE))),
    *definitions.RIGHT,
)
