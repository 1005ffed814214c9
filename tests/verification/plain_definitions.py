"""Right programs of NumPy for every definition but the output of an ``Attention``, one function each.

Independent of ``symattn``: each is written from the formula of its definition, and stands alone, so that one changed
expression changes one step. ``calls`` draws inputs in float64 with which a changed program is compared with the right
one. ``tests.verification.drawn_programs`` draws the changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from symattn import (
    Attention,
    Block,
    Cached,
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

Array = Any
Inputs = Callable[[np.random.Generator], tuple[Any, ...]]


@dataclass(frozen=True)
class PlainProgram:
    """A right program, the family of its definition, what it computes, and a draw of its inputs."""

    family: str
    function: Callable[..., Any]
    spec: Any
    inputs: Inputs

    @property
    def name(self) -> str:
        return self.function.__name__

    def calls(self, count: int = 16, seed: int = 0) -> list[tuple[Any, ...]]:
        """Return the arguments of ``count`` calls, in float64."""
        return [self.inputs(np.random.default_rng([seed, number])) for number in range(count)]


# -- log-sums ----------------------------------------------------------------------------------------------------------
def log_sums_by_blocks(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    n, d = q.shape
    m = k.shape[0]
    scale = 1 / np.sqrt(q.dtype.type(d))
    top = np.full(n, -np.inf, q.dtype)
    total = np.zeros(n, q.dtype)
    out = np.zeros((n, v.shape[1]), q.dtype)
    rows = np.arange(n)[:, None] + (m - n)
    for first in range(0, m, 4):
        last = min(first + 4, m)
        keys = np.arange(first, last)[None, :]
        s = q @ k[first:last].T * scale
        s = np.where(keys <= rows, s, q.dtype.type(-np.inf))
        new = np.maximum(top, s.max(axis=1))
        safe = np.where(np.isfinite(new), new, 0).astype(q.dtype)
        old = np.exp(top - safe)
        p = np.exp(s - safe[:, None])
        total = total * old + p.sum(axis=1)
        out = out * old[:, None] + p @ v[first:last]
        top = new
    return out / total[:, None], top + np.log(total)


def log_sums_of_heads(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    heads, d = q.shape[0], q.shape[-1]
    group = heads // k.shape[0]
    k = np.repeat(k, group, axis=0)
    v = np.repeat(v, group, axis=0)
    cap = q.dtype.type(2)
    s = np.einsum("hid,hjd->hij", q, k) / np.sqrt(q.dtype.type(d))
    s = cap * np.tanh(s / cap)
    e = np.exp(s)
    total = e.sum(axis=-1)
    out = np.einsum("hij,hjc->hic", e, v) / total[..., None]
    return out, np.log(total)


# -- softmax -----------------------------------------------------------------------------------------------------------
def softmax_in_window(scores: Array) -> Array:
    n, m = scores.shape[-2:]
    i = np.arange(n)[:, None] + (m - n)
    j = np.arange(m)[None, :]
    seen = (j <= i) & (j > i - 3)
    s = np.where(seen, scores, scores.dtype.type(-np.inf))
    top = s.max(axis=-1, keepdims=True)
    e = np.exp(s - top)
    return e / e.sum(axis=-1, keepdims=True)


def softmax_with_sink(scores: Array, sink: Array) -> Array:
    top = np.maximum(scores.max(axis=-1, keepdims=True), sink)
    e = np.exp(scores - top)
    total = e.sum(axis=-1, keepdims=True) + np.exp(sink - top)
    return e / total


def softmax_with_bias(scores: Array, bias: Array) -> Array:
    half, cap = scores.dtype.type(0.5), scores.dtype.type(2)
    s = scores * half
    s = cap * np.tanh(s / cap) + bias
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


# -- merges ------------------------------------------------------------------------------------------------------------
def merged_by_differences(o1: Array, l1: Array, o2: Array, l2: Array) -> tuple[Array, Array]:
    top = np.maximum(l1, l2)
    low = np.minimum(l1, l2)
    gap = np.where(np.isfinite(low), low - top, l1.dtype.type(-np.inf))
    share = np.exp(gap) / (1 + np.exp(gap))
    first = np.where(l1 >= l2, 1 - share, share)[..., None]
    second = np.where(l1 >= l2, share, 1 - share)[..., None]
    o = np.where(first > 0, o1, 0) * first + np.where(second > 0, o2, 0) * second
    return o.astype(o1.dtype), top + np.log1p(np.exp(gap))


def merged_in_base_two(o1: Array, l1: Array, o2: Array, l2: Array) -> tuple[Array, Array]:
    top = np.maximum(l1, l2)
    safe = np.where(np.isfinite(top), top, 0).astype(top.dtype)
    w1 = np.exp2(l1 - safe)
    w2 = np.exp2(l2 - safe)
    total = w1 + w2
    p1 = (w1 / total)[..., None]
    p2 = (w2 / total)[..., None]
    o = np.where(p1 > 0, o1, 0) * p1 + np.where(p2 > 0, o2, 0) * p2
    return o.astype(o1.dtype), safe + np.log2(total)


# -- caches ------------------------------------------------------------------------------------------------------------
def cache_of_heads(q: Array, k: Array, v: Array, k_cache: Array, v_cache: Array) -> Any:
    keys = np.concatenate([k_cache, k], axis=-2)
    values = np.concatenate([v_cache, v], axis=-2)
    past, new, d = k_cache.shape[-2], q.shape[-2], q.shape[-1]
    group = q.shape[0] // keys.shape[0]
    out = np.zeros((q.shape[0], new, values.shape[-1]), q.dtype)
    for h in range(q.shape[0]):
        g = h // group
        for i in range(new):
            seen = past + i + 1
            s = keys[g, :seen] @ q[h, i] / np.sqrt(q.dtype.type(d))
            e = np.exp(s - s.max())
            out[h, i] = e @ values[g, :seen] / e.sum()
    return out, keys, values


def cache_in_pages(q: Array, k: Array, v: Array, k_cache: Array, v_cache: Array, length: int) -> Array:
    n, d = q.shape
    length = int(length)
    k_cache[length : length + n] = k
    v_cache[length : length + n] = v
    scale = 1 / np.sqrt(q.dtype.type(d))
    out = np.zeros((n, v.shape[1]), q.dtype)
    for i in range(n):
        seen = length + i + 1
        top, total = q.dtype.type(-np.inf), q.dtype.type(0)
        row = np.zeros(v.shape[1], q.dtype)
        for page in range((seen + 3) // 4):
            first = page * 4
            last = min(first + 4, seen)
            s = k_cache[first:last] @ q[i] * scale
            new = max(top, s.max())
            p = np.exp(s - new)
            old = np.exp(top - new)
            total = total * old + p.sum()
            row = row * old + p @ v_cache[first:last]
            top = new
        out[i] = row / total
    return out


def cache_rotated(q: Array, k: Array, v: Array, k_cache: Array, v_cache: Array) -> Any:
    past, n, d = k_cache.shape[-2], q.shape[-2], q.shape[-1]
    places = np.arange(past, past + n).astype(q.dtype)
    powers = np.arange(0, d, 2).astype(q.dtype) / q.dtype.type(d)
    angles = places[:, None] * q.dtype.type(10000) ** -powers
    cos, sin = np.cos(angles), np.sin(angles)
    turned_q, turned_k = np.zeros_like(q), np.zeros_like(k)
    turned_q[..., 0::2] = q[..., 0::2] * cos - q[..., 1::2] * sin
    turned_q[..., 1::2] = q[..., 0::2] * sin + q[..., 1::2] * cos
    turned_k[..., 0::2] = k[..., 0::2] * cos - k[..., 1::2] * sin
    turned_k[..., 1::2] = k[..., 0::2] * sin + k[..., 1::2] * cos
    keys = np.concatenate([k_cache, turned_k], axis=-2)
    values = np.concatenate([v_cache, v], axis=-2)
    s = turned_q @ np.swapaxes(keys, -1, -2) / np.sqrt(q.dtype.type(d))
    i, j = np.arange(n)[:, None], np.arange(past + n)[None, :]
    s = np.where(j <= past + i, s, q.dtype.type(-np.inf))
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    p = e / e.sum(axis=-1, keepdims=True)
    return p @ values, keys, values


# -- gradients of attention --------------------------------------------------------------------------------------------
def gradient_from_saved(q: Array, k: Array, v: Array, o: Array, lse: Array, do: Array) -> Any:
    n, d = q.shape
    m = k.shape[0]
    scale = 1 / np.sqrt(q.dtype.type(d))
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    delta = (do * o).sum(axis=1)
    for first in range(0, m, 4):
        last = min(first + 4, m)
        keys, values = k[first:last], v[first:last]
        s = q @ keys.T * scale
        seen = np.arange(first, last)[None, :] <= np.arange(n)[:, None] + (m - n)
        p = np.where(seen, np.exp(np.where(seen, s - lse[:, None], 0)), 0).astype(q.dtype)
        dv[first:last] = p.T @ do
        dp = do @ values.T
        ds = p * (dp - delta[:, None])
        dk[first:last] = ds.T @ q * scale
        dq += ds @ keys * scale
    return dq, dk, dv


def gradient_of_heads(q: Array, k: Array, v: Array, do: Array) -> Any:
    group = q.shape[0] // k.shape[0]
    scale = 1 / np.sqrt(q.dtype.type(q.shape[-1]))
    cap = q.dtype.type(2)
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for h in range(q.shape[0]):
        g = h // group
        t = np.tanh(q[h] @ k[g].T * scale / cap)
        e = np.exp(cap * t)
        p = e / e.sum(axis=1, keepdims=True)
        dv[g] += p.T @ do[h]
        dp = do[h] @ v[g].T
        mean = (p * dp).sum(axis=1, keepdims=True)
        ds = p * (dp - mean) * (1 - t * t)
        dq[h] = ds @ k[g] * scale
        dk[g] += ds.T @ q[h] * scale
    return dq, dk, dv


# -- gradients of linear attention -------------------------------------------------------------------------------------
def gradient_of_gates(q: Array, k: Array, v: Array, g: Array, do: Array) -> Any:
    n = q.shape[0]
    dq, dk, dv, dg = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v), np.zeros_like(g)
    states = np.zeros((n + 1, k.shape[1], v.shape[1]), q.dtype)
    for t in range(n):
        states[t + 1] = np.exp(g[t]) * states[t] + np.outer(k[t], v[t])
        dq[t] = states[t + 1] @ do[t]
    back = np.zeros((k.shape[1], v.shape[1]), q.dtype)
    for t in reversed(range(n)):
        back = back + np.outer(q[t], do[t])
        dk[t] = back @ v[t]
        dv[t] = k[t] @ back
        dg[t] = np.exp(g[t]) * (back * states[t]).sum()
        back = np.exp(g[t]) * back
    return dq, dk, dv, dg


def gradient_of_delta(q: Array, k: Array, v: Array, beta: Array, do: Array) -> Any:
    n = q.shape[0]
    dq, dk, dv, db = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v), np.zeros_like(beta)
    states = np.zeros((n + 1, k.shape[1], v.shape[1]), q.dtype)
    errors = np.zeros_like(v)
    for t in range(n):
        errors[t] = v[t] - k[t] @ states[t]
        states[t + 1] = states[t] + beta[t] * np.outer(k[t], errors[t])
        dq[t] = states[t + 1] @ do[t]
    back = np.zeros((k.shape[1], v.shape[1]), q.dtype)
    for t in reversed(range(n)):
        back = back + np.outer(q[t], do[t])
        error = beta[t] * (k[t] @ back)
        db[t] = (k[t] @ back) @ errors[t]
        dk[t] = beta[t] * (back @ errors[t]) - states[t] @ error
        dv[t] = error
        back = back - np.outer(k[t], error)
    return dq, dk, dv, db


# -- linear attention with the delta rule ------------------------------------------------------------------------------
def delta_of_unit_keys(q: Array, k: Array, v: Array, beta: Array) -> Array:
    eps = q.dtype.type(0.25)
    q = q / np.sqrt((q * q).sum(axis=-1, keepdims=True) + eps)
    k = k / np.sqrt((k * k).sum(axis=-1, keepdims=True) + eps)
    q = q / np.sqrt(q.dtype.type(q.shape[-1]))
    state = np.zeros((k.shape[-1], v.shape[-1]), q.dtype)
    out = np.zeros_like(v)
    for t in range(k.shape[0]):
        error = v[t] - k[t] @ state
        state = state + beta[t] * np.outer(k[t], error)
        out[t] = q[t] @ state
    return out


def delta_by_chunks(q: Array, k: Array, v: Array, g: Array, beta: Array, initial_state: Array) -> Any:
    n = q.shape[0]
    state = initial_state
    out = np.zeros_like(v)
    for first in range(0, n, 4):
        last = min(first + 4, n)
        qs, ks, vs, b = q[first:last], k[first:last], v[first:last], beta[first:last]
        sums = np.cumsum(g[first:last])
        gaps = sums[:, None] - sums[None, :]
        lower = np.tri(last - first, dtype=bool)
        decay = np.where(lower, np.exp(np.where(lower, gaps, 0)), 0).astype(q.dtype)
        a = b[:, None] * (ks @ ks.T) * decay
        errors = b[:, None] * (vs - np.exp(sums)[:, None] * (ks @ state))
        for i in range(1, last - first):
            errors[i] = errors[i] - a[i, :i] @ errors[:i]
        out[first:last] = np.exp(sums)[:, None] * (qs @ state) + ((qs @ ks.T) * decay) @ errors
        state = np.exp(sums[-1]) * state + (ks * np.exp(sums[-1] - sums)[:, None]).T @ errors
    return out, state


def delta_with_pairs(q: Array, k: Array, v: Array, g: Array, a: Array, b: Array) -> Array:
    state = np.zeros((k.shape[-1], v.shape[-1]), q.dtype)
    out = np.zeros_like(v)
    for t in range(q.shape[0]):
        read = a[t] @ state
        state = np.exp(g[t])[:, None] * state
        state = state + np.outer(b[t], read)
        state = state + np.outer(k[t], v[t])
        out[t] = q[t] @ state
    return out


def delta_with_gates(q: Array, k: Array, v: Array, g: Array, b: Array, w: Array) -> Array:
    state = np.zeros((k.shape[-1], v.shape[-1]), q.dtype)
    out = np.zeros_like(v)
    for t in range(q.shape[0]):
        state = np.exp(g[t])[:, None] * state
        read = (b[t] * k[t]) @ state
        state = state + np.outer(k[t], w[t] * v[t] - read)
        out[t] = q[t] @ state
    return out


def delta_along_vectors(q: Array, k: Array, v: Array, g: Array, beta: Array, p: Array) -> Array:
    state = np.zeros((k.shape[-1], v.shape[-1]), q.dtype)
    out = np.zeros_like(v)
    for t in range(q.shape[0]):
        decayed = np.exp(g[t]) * state
        error = v[t] - p[t] @ decayed
        state = decayed + beta[t] * np.outer(k[t], error)
        out[t] = q[t] @ state
    return out


def delta_of_raw_gates(q: Array, k: Array, v: Array, g: Array, beta: Array, A_log: Array, dt_bias: Array) -> Array:
    raw = g + dt_bias[:, None]
    softplus = np.maximum(raw, 0) + np.log1p(np.exp(-np.abs(raw)))
    gates = -np.exp(A_log)[:, None] * softplus
    b = 1 / (1 + np.exp(-beta))
    out = np.zeros_like(v)
    for h in range(q.shape[0]):
        state = np.zeros((k.shape[-1], v.shape[-1]), q.dtype)
        for t in range(q.shape[1]):
            state = np.exp(gates[h, t]) * state
            error = v[h, t] - k[h, t] @ state
            state = state + b[h, t] * np.outer(k[h, t], error)
            out[h, t] = q[h, t] @ state
    return out


# -- layers ------------------------------------------------------------------------------------------------------------
def block_before(
    x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, w1: Array, b1: Array, w2: Array, b2: Array,
    ln1_weight: Array, ln1_bias: Array, ln2_weight: Array, ln2_bias: Array,
) -> Array:  # fmt: skip
    n = x.shape[-2]
    eps = x.dtype.type(1e-5)
    c = x - x.mean(axis=-1, keepdims=True)
    z = c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + eps) * ln1_weight + ln1_bias
    q, k, v = z @ w_q, z @ w_k, z @ w_v
    s = q @ np.swapaxes(k, -1, -2) / np.sqrt(x.dtype.type(q.shape[-1]))
    s = np.where(np.tri(n, dtype=bool), s, x.dtype.type(-np.inf))
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    p = e / e.sum(axis=-1, keepdims=True)
    x = x + p @ v @ w_o
    c = x - x.mean(axis=-1, keepdims=True)
    z = c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + eps) * ln2_weight + ln2_bias
    f = np.maximum(z @ w1 + b1, 0)
    return x + f @ w2 + b2


def block_in_parallel(
    x: Array, wq: Array, wk: Array, wv: Array, wo: Array, w_gate: Array, w_up: Array, w_down: Array,
    norm1_weight: Array, norm2_weight: Array,
) -> Array:  # fmt: skip
    n, eps = x.shape[-2], x.dtype.type(1e-5)
    unit = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    z = unit * norm1_weight
    k, v = z @ wk, z @ wv
    width = k.shape[-1]
    seen = np.tri(n, dtype=bool)
    heads = []
    for h in range(2):
        q = z @ wq[:, h * width : (h + 1) * width]
        s = q @ np.swapaxes(k, -1, -2) / np.sqrt(x.dtype.type(width))
        s = np.where(seen, s, x.dtype.type(-np.inf))
        e = np.exp(s - s.max(axis=-1, keepdims=True))
        heads.append(e @ v / e.sum(axis=-1, keepdims=True))
    attended = np.concatenate(heads, axis=-1) @ wo
    y = unit * norm2_weight
    gate = y @ w_gate
    fed = (gate / (1 + np.exp(-gate)) * (y @ w_up)) @ w_down
    return x + attended + fed


# -- norms -------------------------------------------------------------------------------------------------------------
def layer_norm_of_rows(x: Array, gain: Array, bias: Array) -> Array:
    c = x - x.mean(axis=-1, keepdims=True)
    variance = (c * c).mean(axis=-1, keepdims=True)
    return c / np.sqrt(variance + x.dtype.type(1e-5)) * gain + bias


def rms_norm_of_sum(x: Array, residual: Array, gain: Array) -> tuple[Array, Array]:
    total = x + residual
    square = (total * total).mean(axis=-1, keepdims=True)
    return total / np.sqrt(square + x.dtype.type(1e-6)) * gain, total


# -- rotary positions --------------------------------------------------------------------------------------------------
def rotated_by_halves(x: Array, positions: Array) -> Array:
    half = x.shape[-1] // 2
    powers = np.arange(half).astype(x.dtype) / x.dtype.type(half)
    angles = positions.astype(x.dtype)[..., None] * x.dtype.type(10000) ** -powers
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


# -- differences of attentions, attention over depth -------------------------------------------------------------------
def difference_of_heads(q: Array, k: Array, v: Array, lam: Array) -> Array:
    n, m, half = q.shape[1], k.shape[1], q.shape[-1] // 2
    scale = 1 / np.sqrt(q.dtype.type(half))
    seen = np.tri(n, m, m - n, dtype=bool)
    out = np.zeros((q.shape[0], n, v.shape[-1]), q.dtype)
    for h in range(q.shape[0]):
        s1 = np.where(seen, q[h, :, :half] @ k[h, :, :half].T * scale, q.dtype.type(-np.inf))
        s2 = np.where(seen, q[h, :, half:] @ k[h, :, half:].T * scale, q.dtype.type(-np.inf))
        e1 = np.exp(s1 - s1.max(axis=-1, keepdims=True))
        e2 = np.exp(s2 - s2.max(axis=-1, keepdims=True))
        p1 = e1 / e1.sum(axis=-1, keepdims=True)
        p2 = e2 / e2.sum(axis=-1, keepdims=True)
        out[h] = (p1 - lam[h] * p2) @ v[h]
    return out


def attention_over_layers(w: Array, outputs: Array, gain: Array) -> Array:
    square = (outputs * outputs).mean(axis=-1, keepdims=True)
    keys = outputs / np.sqrt(square + outputs.dtype.type(1e-6)) * gain
    s = keys @ w
    e = np.exp(s - s.max(axis=0, keepdims=True))
    p = e / e.sum(axis=0, keepdims=True)
    return (p[..., None] * outputs).sum(axis=0)


# -- linear attention with a normaliser --------------------------------------------------------------------------------
def linear_by_tokens(q: Array, k: Array, v: Array) -> Array:
    q = np.where(q > 0, q + 1, np.exp(np.minimum(q, 0)))
    k = np.where(k > 0, k + 1, np.exp(np.minimum(k, 0)))
    state = np.zeros((k.shape[-1], v.shape[-1]), q.dtype)
    total = np.zeros(k.shape[-1], q.dtype)
    out = np.zeros_like(v)
    for t in range(q.shape[0]):
        state = state + np.outer(k[t], v[t])
        total = total + k[t]
        out[t] = q[t] @ state / (q[t] @ total)
    return out


# -- inputs ------------------------------------------------------------------------------------------------------------
def _sizes(rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Draw rows, keys, and two widths."""
    n, more, d, c = rng.integers([1, 0, 1, 1], [8, 6, 5, 5])
    return int(n), int(n + more), 2 * int(d), int(c)


def _arrays(*shapes: Callable[[int, int, int, int], tuple[int, ...]]) -> Inputs:
    """Return a draw of normal arrays, with shapes by rows, keys and widths, at three magnitudes."""

    def drawn(rng: np.random.Generator) -> tuple[Any, ...]:
        sizes, magnitude = _sizes(rng), rng.choice([0.5, 1.0, 3.0])
        return tuple(magnitude * rng.standard_normal(shape(*sizes)) for shape in shapes)

    return drawn


def _attended(heads: int, groups: int, *more: Callable[[int, int, int, int], tuple[int, ...]]) -> Inputs:
    def of(count: int, *shape: int) -> tuple[int, ...]:
        return (count, *shape) if count else shape

    return _arrays(
        lambda n, m, d, c: of(heads, n, d),
        lambda n, m, d, c: of(groups, m, d),
        lambda n, m, d, c: of(groups, m, c),
        *more,
    )


def _merged(base: float) -> Inputs:
    def drawn(rng: np.random.Generator) -> tuple[Any, ...]:
        n, _, d, _ = _sizes(rng)
        o1, o2 = rng.standard_normal((2, n, d))
        l1, l2 = 3 * rng.standard_normal((2, n)) / np.log(base)
        # One part of some rows has no keys.
        l1 = np.where(rng.random(n) < 0.2, -np.inf, l1)
        l2 = np.where((rng.random(n) < 0.2) & np.isfinite(l1), -np.inf, l2)
        return o1, l1, o2, l2

    return drawn


def _cached(heads: int, groups: int, slots: bool = False) -> Inputs:
    def drawn(rng: np.random.Generator) -> tuple[Any, ...]:
        n, m, d, c = _sizes(rng)
        of_q, of_k = ((heads,), (groups,)) if heads else ((), ())
        q, k, v = (rng.standard_normal((*h, n, w)) for h, w in ((of_q, d), (of_k, d), (of_k, c)))
        k_cache, v_cache = (rng.standard_normal((*of_k, m, w)) for w in (d, c))
        if not slots:
            return q, k, v, k_cache, v_cache
        length = m - n
        k_cache[length:], v_cache[length:] = 0, 0
        return q, k, v, k_cache, v_cache, length

    return drawn


def _saved(rng: np.random.Generator) -> tuple[Any, ...]:
    q, k, v = _attended(0, 0)(rng)
    o, lse = log_sums_by_blocks(q, k, v)
    return q, k, v, o, lse, rng.standard_normal(o.shape)


def _recurrent(*words: str) -> Inputs:
    """Return a draw of q, k, v and others: gates below 0, amounts between 0 and 1, vectors, raw numbers."""

    def drawn(rng: np.random.Generator) -> tuple[Any, ...]:
        n, _, d, c = _sizes(rng)
        front, tail = ((2,), words[1:]) if words[:1] == ("heads",) else ((), words)
        by_word: Mapping[str, Callable[[], Array]] = {
            "g": lambda: -rng.gamma(1.0, size=(*front, n)),
            "g_of_features": lambda: -rng.gamma(1.0, size=(n, d)),
            "amount": lambda: rng.random((*front, n)),
            "amounts_of_keys": lambda: rng.random((n, d)),
            "amounts_of_values": lambda: rng.random((n, c)),
            "vectors": lambda: rng.standard_normal((n, d)) / 2,
            "raw": lambda: rng.standard_normal((*front, n)),
            "of_heads": lambda: rng.standard_normal(front),
            "state": lambda: rng.standard_normal((d, c)),
            "values": lambda: rng.standard_normal((n, c)),
        }
        q, k = rng.standard_normal((2, *front, n, d)) / np.sqrt(d)
        return q, k, rng.standard_normal((*front, n, c)), *(by_word[word]() for word in tail)

    return drawn


def _placed(rng: np.random.Generator) -> tuple[Any, ...]:
    n, _, d, _ = _sizes(rng)
    return rng.standard_normal((n, d)), rng.integers(0, 50, n)


_PROJECTED = (
    lambda n, m, d, c: (n, d), lambda n, m, d, c: (d, 4), lambda n, m, d, c: (d, 4),
    lambda n, m, d, c: (d, c), lambda n, m, d, c: (c, d),
)  # fmt: skip
_BLOCK = _arrays(
    *_PROJECTED, lambda n, m, d, c: (d, 6), lambda n, m, d, c: (6,), lambda n, m, d, c: (6, d),
    *(lambda n, m, d, c: (d,),) * 5,
)  # fmt: skip
_PARALLEL = _arrays(
    lambda n, m, d, c: (n, d), lambda n, m, d, c: (d, 8), lambda n, m, d, c: (d, 4), lambda n, m, d, c: (d, c),
    lambda n, m, d, c: (2 * c, d), lambda n, m, d, c: (d, 6), lambda n, m, d, c: (d, 6), lambda n, m, d, c: (6, d),
    lambda n, m, d, c: (d,), lambda n, m, d, c: (d,),
)  # fmt: skip
_LINEAR = {"feature": "identity", "normalised": False}
_DELTA = {**_LINEAR, "delta": True}
PROGRAMS: tuple[PlainProgram, ...] = (
    PlainProgram("log-sums", log_sums_by_blocks, Attention(causal=True, lse=True), _attended(0, 0)),
    PlainProgram("log-sums", log_sums_of_heads, Attention(heads=4, kv_heads=2, softcap=2, lse=True), _attended(4, 2)),
    PlainProgram(
        "softmax", softmax_in_window, Softmax(Attention(causal=True, window=3)), _arrays(lambda n, m, d, c: (n, m))
    ),
    PlainProgram(
        "softmax",
        softmax_with_sink,
        Softmax(Attention(sink="given")),
        _arrays(lambda n, m, d, c: (n, m), lambda n, m, d, c: (1,)),
    ),
    PlainProgram(
        "softmax",
        softmax_with_bias,
        Softmax(Attention(scale=0.5, softcap=2, bias=True)),
        _arrays(lambda n, m, d, c: (n, m), lambda n, m, d, c: (n, m)),
    ),
    PlainProgram("merge", merged_by_differences, Merge(), _merged(np.e)),
    PlainProgram("merge", merged_in_base_two, Merge(base=2), _merged(2)),
    PlainProgram("cache", cache_of_heads, Cached(Attention(causal=True, heads=2, kv_heads=1)), _cached(2, 1)),
    PlainProgram("cache", cache_in_pages, Cached(Attention(causal=True)), _cached(0, 0, slots=True)),
    PlainProgram(
        "cache", cache_rotated, Cached(Attention(causal=True, position=Rotary(layout="interleaved"))), _cached(0, 0)
    ),
    PlainProgram("gradient", gradient_from_saved, Gradient(Attention(causal=True)), _saved),
    PlainProgram(
        "gradient",
        gradient_of_heads,
        Gradient(Attention(heads=4, kv_heads=2, softcap=2)),
        _attended(4, 2, lambda n, m, d, c: (4, n, c)),
    ),
    PlainProgram(
        "gradient of linear attention",
        gradient_of_gates,
        Gradient(LinearAttention(gate="token", **_LINEAR)),
        _recurrent("g", "values"),
    ),
    PlainProgram(
        "gradient of linear attention",
        gradient_of_delta,
        Gradient(LinearAttention(**_DELTA)),
        _recurrent("amount", "values"),
    ),
    PlainProgram(
        "delta rule",
        delta_of_unit_keys,
        LinearAttention(qk_norm="l2", eps=0.25, scale=True, **_DELTA),
        _recurrent("amount"),
    ),
    PlainProgram(
        "delta rule",
        delta_by_chunks,
        LinearAttention(gate="token", state="kv", **_DELTA),
        _recurrent("g", "amount", "state"),
    ),
    PlainProgram(
        "delta rule",
        delta_of_raw_gates,
        LinearAttention(gate="token", gate_form="softplus", beta_form="sigmoid", **_DELTA),
        _recurrent("heads", "raw", "raw", "of_heads", "of_heads"),
    ),
    PlainProgram(
        "erasure",
        delta_with_pairs,
        LinearAttention(gate="feature", erase="pair", erases="before", **_DELTA),
        _recurrent("g_of_features", "vectors", "vectors"),
    ),
    PlainProgram(
        "erasure",
        delta_with_gates,
        LinearAttention(gate="feature", erase="gates", **_DELTA),
        _recurrent("g_of_features", "amounts_of_keys", "amounts_of_values"),
    ),
    PlainProgram(
        "erasure",
        delta_along_vectors,
        LinearAttention(gate="token", erase="vector", **_DELTA),
        _recurrent("g", "amount", "vectors"),
    ),
    PlainProgram("block", block_before, Block(attention=Attention(causal=True)), _BLOCK),
    PlainProgram(
        "block",
        block_in_parallel,
        Block(
            attention=Attention(causal=True, heads=2, kv_heads=1),
            norm="rms",
            activation="silu",
            gated=True,
            parallel=True,
        ),
        _PARALLEL,
    ),
    PlainProgram(
        "norm",
        layer_norm_of_rows,
        LayerNorm(eps=1e-5),
        _arrays(lambda n, m, d, c: (n, d), lambda n, m, d, c: (d,), lambda n, m, d, c: (d,)),
    ),
    PlainProgram(
        "norm",
        rms_norm_of_sum,
        RMSNorm(eps=1e-6, residual="returned"),
        _arrays(lambda n, m, d, c: (n, d), lambda n, m, d, c: (n, d), lambda n, m, d, c: (d,)),
    ),
    PlainProgram("rotary", rotated_by_halves, Rotary(layout="half", given="positions"), _placed),
    PlainProgram(
        "difference",
        difference_of_heads,
        Differential(attention=Attention(causal=True, heads=2)),
        _attended(2, 2, lambda n, m, d, c: (2,)),
    ),
    PlainProgram(
        "depth",
        attention_over_layers,
        DepthAttention(),
        _arrays(lambda n, m, d, c: (d,), lambda n, m, d, c: (m, n, d), lambda n, m, d, c: (d,)),
    ),
    PlainProgram(
        "linear attention",
        linear_by_tokens,
        LinearAttention(feature="elu", causal=True),
        _recurrent(),
    ),
)
