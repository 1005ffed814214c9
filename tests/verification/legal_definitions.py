"""Legal rewrites of the programs of ``plain_definitions``: other orders, layouts, chunks and places of their results.

Each computes what the definition says, as somebody would write it for speed; none may be accused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn import Attention, Block, Cached, Gradient, LinearAttention, Merge, Rotary, Softmax
from tests.faults.programs import Program

Array = Any


def _transposed(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


def _seen(n: int, m: int) -> Array:
    return np.tri(n, m, m - n, dtype=bool)


def _causal_scores(q: Array, k: Array) -> Array:
    s = q @ k.T / np.sqrt(q.dtype.type(q.shape[-1]))
    return np.where(_seen(len(q), len(k)), s, q.dtype.type(-np.inf))


def _softmax(s: Array) -> Array:
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


# -- log-sums ----------------------------------------------------------------------------------------------------------
def sums_first(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    s = _causal_scores(q, k)
    lse = np.logaddexp.reduce(s, axis=-1)
    return np.exp(s - lse[:, None]) @ v, lse


def sums_of_reversed_keys(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    out, lse = np.zeros((len(q), v.shape[1]), q.dtype), np.zeros(len(q), q.dtype)
    late = len(k) - len(q)
    for i in reversed(range(len(q))):
        top, total, row = q.dtype.type(-np.inf), q.dtype.type(0), np.zeros(v.shape[1], q.dtype)
        for j in reversed(range(i + late + 1)):
            s = (q[i] * k[j]).sum() / np.sqrt(q.dtype.type(q.shape[1]))
            new = max(top, s)
            total = total * np.exp(top - new) + np.exp(s - new)
            row = row * np.exp(top - new) + np.exp(s - new) * v[j]
            top = new
        out[i], lse[i] = row / total, top + np.log(total)
    return out, lse


def sums_in_powers_of_two(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    scale = q.dtype.type(np.log2(np.e) / np.sqrt(q.shape[-1]))
    s = k @ (q * scale).T
    s[~_seen(len(q), len(k)).T] = -np.inf
    top = s.max(axis=0)
    np.exp2(np.subtract(s, top, out=s), out=s)
    total = s.sum(axis=0)
    return ((v.T @ s) / total).T, (top + np.log2(total)) * q.dtype.type(np.log(2))


# -- softmax -----------------------------------------------------------------------------------------------------------
def softmax_in_place(scores: Array) -> Array:
    s = np.array(scores)
    s[..., ~_seen(*s.shape[-2:])] = -np.inf
    s -= s.max(axis=-1, keepdims=True)
    np.exp(s, out=s)
    s *= 1 / s.sum(axis=-1, keepdims=True)
    return s


def softmax_by_columns(scores: Array) -> Array:
    s = np.where(_seen(*scores.shape[-2:]), scores, scores.dtype.type(-np.inf))
    top, total = s[..., 0], np.ones_like(s[..., 0])
    for j in range(1, s.shape[-1]):
        new = np.maximum(top, s[..., j])
        total = total * np.exp(top - new) + np.exp(s[..., j] - new)
        top = new
    return np.exp(s - top[..., None]) / total[..., None]


def softmax_by_log_sums(scores: Array) -> Array:
    s = np.where(_seen(*scores.shape[-2:]), scores, scores.dtype.type(-np.inf))
    top = s.max(axis=-1, keepdims=True)
    return np.exp(s - (top + np.log(np.exp(s - top).sum(axis=-1, keepdims=True))))


# -- merges ------------------------------------------------------------------------------------------------------------
def _without_empty(o: Array, l: Array) -> Array:  # noqa: E741
    return np.where(np.isfinite(l)[..., None], o, 0).astype(o.dtype)


def merge_by_sums(o1: Array, l1: Array, o2: Array, l2: Array) -> tuple[Array, Array]:
    lse = np.logaddexp(l2, l1)
    safe = np.where(np.isfinite(lse), lse, 0).astype(lse.dtype)
    o = _without_empty(o2, l2) * np.exp(l2 - safe)[..., None]
    o += _without_empty(o1, l1) * np.exp(l1 - safe)[..., None]
    return o, lse


def merge_of_stack(o1: Array, l1: Array, o2: Array, l2: Array) -> tuple[Array, Array]:
    l = np.stack([l1, l2])  # noqa: E741
    o = np.stack([_without_empty(o1, l1), _without_empty(o2, l2)])
    top = l.max(axis=0)
    e = np.exp(l - np.where(np.isfinite(top), top, 0).astype(l.dtype))
    total = e.sum(axis=0)
    return (e[..., None] * o).sum(axis=0) / total[..., None], top + np.log(total)


def merge_from_larger(o1: Array, l1: Array, o2: Array, l2: Array) -> tuple[Array, Array]:
    is_first = l1 >= l2
    top, low = np.where(is_first, l1, l2), np.where(is_first, l2, l1)
    o1, o2 = _without_empty(o1, l1), _without_empty(o2, l2)
    large, small = np.where(is_first[..., None], o1, o2), np.where(is_first[..., None], o2, o1)
    ratio = np.exp(low - top)
    return (large + ratio[..., None] * small) / (1 + ratio)[..., None], top + np.log1p(ratio)


# -- caches ------------------------------------------------------------------------------------------------------------
def cache_in_place(q: Array, k: Array, v: Array, k_cache: Array, v_cache: Array, length: int) -> Any:
    end = int(length) + len(q)
    k_cache[int(length) : end], v_cache[int(length) : end] = k, v
    p = _softmax(_causal_scores(q, k_cache[:end]))
    return p @ v_cache[:end], k_cache, v_cache


def cache_in_two_parts(q: Array, k: Array, v: Array, k_cache: Array, v_cache: Array) -> Array:
    old = q @ k_cache.T / np.sqrt(q.dtype.type(q.shape[-1]))
    new = _causal_scores(q, k)
    top = np.maximum(old.max(axis=-1), new.max(axis=-1))[:, None]
    e_old, e_new = np.exp(old - top), np.exp(new - top)
    total = e_old.sum(axis=-1, keepdims=True) + e_new.sum(axis=-1, keepdims=True)
    return (e_old @ v_cache + e_new @ v) / total


def cache_with_complex_turns(q: Array, k: Array, v: Array, k_cache: Array, v_cache: Array) -> Array:
    n, d = q.shape
    frequencies = q.dtype.type(10000) ** (-np.arange(0, d, 2).astype(q.dtype) / q.dtype.type(d))
    angles = (len(k_cache) + np.arange(n)).astype(q.dtype)[:, None] * frequencies
    turns = np.cos(angles) + 1j * np.sin(angles)

    def turned(x: Array) -> Array:
        y = (x[:, ::2] + 1j * x[:, 1::2]) * turns
        return np.stack([y.real, y.imag], axis=-1).reshape(x.shape).astype(x.dtype)

    keys, values = np.concatenate([k_cache, turned(k)]), np.concatenate([v_cache, v])
    return _softmax(_causal_scores(turned(q), keys)) @ values


# -- gradients of attention --------------------------------------------------------------------------------------------
def gradient_by_jacobians(q: Array, k: Array, v: Array, do: Array) -> Any:
    scale = 1 / np.sqrt(q.dtype.type(q.shape[-1]))
    p = _softmax(_causal_scores(q, k))
    dp = do @ v.T
    ds = np.stack([(np.diag(row) - np.outer(row, row)) @ d for row, d in zip(p, dp, strict=True)])
    return scale * (ds @ k), scale * (ds.T @ q), p.T @ do


def gradient_by_rows(q: Array, k: Array, v: Array, do: Array) -> Any:
    scale, late = 1 / np.sqrt(q.dtype.type(q.shape[-1])), len(k) - len(q)
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for i in reversed(range(len(q))):
        end = i + late + 1
        p = _softmax(k[:end] @ (q[i] * scale))
        dv[:end] += np.outer(p, do[i])
        dp = v[:end] @ do[i]
        ds = p * dp - p * (p @ dp)
        dq[i] = (ds * scale) @ k[:end]
        dk[:end] += np.outer(ds * scale, q[i])
    return dq, dk, dv


def gradient_of_transposes(q: Array, k: Array, v: Array, do: Array) -> Any:
    scale = 1 / np.sqrt(q.dtype.type(q.shape[-1]))
    s = np.where(_seen(len(q), len(k)).T, (k * scale) @ q.T, q.dtype.type(-np.inf))
    e = np.exp(s - s.max(axis=0))
    total = e.sum(axis=0)
    dv = e @ (do / total[:, None])
    delta = (do * ((e.T @ v) / total[:, None])).sum(axis=-1)
    ds = e / total * (v @ do.T - delta)
    return ds.T @ (k * scale), ds @ (q * scale), dv


# -- gradients of linear attention -------------------------------------------------------------------------------------
def _decays(g: Array) -> Array:
    sums = np.cumsum(g)
    gaps = np.where(np.tri(len(g), dtype=bool), sums[:, None] - sums[None, :], 0)
    return np.tri(len(g), dtype=g.dtype) * np.exp(gaps)


def gates_by_pairs(q: Array, k: Array, v: Array, g: Array, do: Array) -> Any:
    decay = _decays(g)
    a, da = q @ k.T * decay, do @ v.T * decay
    pairs = a * (do @ v.T)
    # Pairs whose decay holds the gate of token t: queries from t on, keys before t.
    dg = np.array([pairs[t:, :t].sum() for t in range(len(g))], dtype=g.dtype)
    return da @ k, da.T @ q, a.T @ do, dg


def gates_by_chunks(q: Array, k: Array, v: Array, g: Array, do: Array) -> Any:
    n, (d, c) = len(q), (k.shape[1], v.shape[1])
    dq, dk, dv, dg = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v), np.zeros_like(g)
    starts = list(range(0, n, 4))
    states = [np.zeros((d, c), q.dtype)]
    for first in starts:
        rows = slice(first, first + 4)
        sums = np.cumsum(g[rows])
        states.append(np.exp(sums[-1]) * states[-1] + (k[rows] * np.exp(sums[-1] - sums)[:, None]).T @ v[rows])
    back = np.zeros((d, c), q.dtype)
    for number in reversed(range(len(starts))):
        rows, state = slice(starts[number], starts[number] + 4), states[number]
        sums, decay = np.cumsum(g[rows]), _decays(g[rows])
        a, da = q[rows] @ k[rows].T * decay, do[rows] @ v[rows].T * decay
        rest = np.exp(sums[-1] - sums)[:, None]
        into = np.exp(sums)[:, None]
        dq[rows] = da @ k[rows] + into * (do[rows] @ state.T)
        dk[rows] = da.T @ q[rows] + rest * (v[rows] @ back.T)
        dv[rows] = a.T @ do[rows] + rest * (k[rows] @ back)
        pairs = a * (do[rows] @ v[rows].T)
        read = (q[rows] * into * (do[rows] @ state.T)).sum(axis=-1)
        written = (k[rows] * rest * (v[rows] @ back.T)).sum(axis=-1)
        whole = np.exp(sums[-1]) * (state * back).sum()
        for t in range(len(sums)):
            dg[starts[number] + t] = pairs[t:, :t].sum() + read[t:].sum() + written[:t].sum() + whole
        back = np.exp(sums[-1]) * back + (q[rows] * into).T @ do[rows]
    return dq, dk, dv, dg


# -- the delta rule ----------------------------------------------------------------------------------------------------
def delta_by_inverse(q: Array, k: Array, v: Array, g: Array, beta: Array) -> Array:
    n, decay = len(q), _decays(g)
    lower = np.tril(beta[:, None] * (k @ k.T) * decay, -1)
    inverse = np.eye(n, dtype=q.dtype)
    for i in range(1, n):
        inverse[i, :i] = -lower[i, :i] @ inverse[:i, :i]
    return (q @ k.T * decay) @ (inverse @ (beta[:, None] * v))


def delta_of_transposed_states(q: Array, k: Array, v: Array, g: Array, beta: Array) -> Array:
    state, out = np.zeros((v.shape[1], k.shape[1]), q.dtype), np.empty_like(v)
    for t in range(len(q)):
        state *= np.exp(g[t])
        state += np.outer((v[t] - state @ k[t]) * beta[t], k[t])
        np.matmul(state, q[t], out=out[t])
    return out


# -- erasure -----------------------------------------------------------------------------------------------------------
def pairs_of_transposed_states(q: Array, k: Array, v: Array, g: Array, a: Array, b: Array) -> Array:
    state, out = np.zeros((v.shape[1], k.shape[1]), q.dtype), np.empty_like(v)
    for t in range(len(q)):
        read = (state * a[t]).sum(axis=-1, keepdims=True)
        state *= np.exp(g[t])
        state += v[t][:, None] * k[t]
        state += read * b[t]
        out[t] = (state * q[t]).sum(axis=-1)
    return out


def pairs_by_columns(q: Array, k: Array, v: Array, g: Array, a: Array, b: Array) -> Array:
    columns = []
    for c in range(v.shape[1]):
        state, numbers = np.zeros(k.shape[1], q.dtype), []
        for t in range(len(q)):
            state = k[t] * v[t, c] + (b[t] * (a[t] @ state) + np.exp(g[t]) * state)
            numbers.append(state @ q[t])
        columns.append(np.stack(numbers))
    return np.stack(columns, axis=-1)


# -- layers ------------------------------------------------------------------------------------------------------------
def block_of_joined_weights(
    x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, w1: Array, b1: Array, w2: Array, b2: Array,
    ln1_weight: Array, ln1_bias: Array, ln2_weight: Array, ln2_bias: Array,
) -> Array:  # fmt: skip
    def normed(x: Array, gain: Array, bias: Array) -> Array:
        c = x - x.mean(axis=-1, keepdims=True)
        return gain * (c * (1 / np.sqrt((c * c).mean(axis=-1, keepdims=True) + x.dtype.type(1e-5)))) + bias

    d = w_q.shape[1]
    z = normed(x, ln1_weight, ln1_bias) @ np.concatenate([w_q, w_k, w_v], axis=1)
    q, k, v = z[..., :d], z[..., d : 2 * d], z[..., 2 * d :]
    s = q @ _transposed(k) / np.sqrt(x.dtype.type(d))
    p = _softmax(np.where(np.tri(x.shape[-2], dtype=bool), s, x.dtype.type(-np.inf)))
    x = p @ (v @ w_o) + x
    return b2 + np.maximum(b1 + normed(x, ln2_weight, ln2_bias) @ w1, 0) @ w2 + x


def block_by_rows(
    x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, w1: Array, b1: Array, w2: Array, b2: Array,
    ln1_weight: Array, ln1_bias: Array, ln2_weight: Array, ln2_bias: Array,
) -> Array:  # fmt: skip
    def normed(row: Array, gain: Array, bias: Array) -> Array:
        c = row - row.sum() / row.dtype.type(len(row))
        return c / np.sqrt((c @ c) / row.dtype.type(len(row)) + row.dtype.type(1e-5)) * gain + bias

    out = np.empty_like(x)
    for index in np.ndindex(*x.shape[:-2]):
        keys, values = [], []
        for t, row in enumerate(x[index]):
            z = normed(row, ln1_weight, ln1_bias)
            keys.append(z @ w_k)
            values.append(z @ w_v)
            p = _softmax(np.stack(keys) @ (z @ w_q) / np.sqrt(x.dtype.type(w_q.shape[1])))
            y = row + (p @ np.stack(values)) @ w_o
            hidden = np.maximum(normed(y, ln2_weight, ln2_bias) @ w1 + b1, 0)
            out[(*index, t)] = y + (hidden @ w2 + b2)
    return out


def block_in_halves(
    x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, w1: Array, b1: Array, w2: Array, b2: Array,
    ln1_weight: Array, ln1_bias: Array, ln2_weight: Array, ln2_bias: Array,
) -> Array:  # fmt: skip
    def normed(x: Array, gain: Array, bias: Array) -> Array:
        c = x - x.mean(axis=-1, keepdims=True)
        return c / np.sqrt(np.square(c).mean(axis=-1, keepdims=True) + x.dtype.type(1e-5)) * gain + bias

    y = np.array(x)
    z = normed(y, ln1_weight, ln1_bias)
    scale = 1 / np.sqrt(x.dtype.type(w_q.shape[1]))
    s = _transposed((z @ w_k) @ _transposed(z @ (w_q * scale)))
    s[..., ~np.tri(x.shape[-2], dtype=bool)] = -np.inf
    y += _softmax(s) @ (z @ w_v) @ w_o
    z = normed(y, ln2_weight, ln2_bias)
    # The feed-forward layer in two halves of its width, each added where it belongs.
    y += b2
    half = w1.shape[1] // 2
    for part in (slice(0, half), slice(half, None)):
        y += np.maximum(z @ w1[:, part] + b1[part], 0) @ w2[part]
    return y


_LINEAR = {"feature": "identity", "normalised": False}
_DELTA = {**_LINEAR, "delta": True}
_CAUSAL = Attention(causal=True)
_TURNED = Attention(causal=True, position=Rotary(layout="interleaved"))
_GATES = Gradient(LinearAttention(gate="token", **_LINEAR))
_GATED_DELTA = LinearAttention(gate="token", **_DELTA)
_PAIRS = LinearAttention(gate="feature", erase="pair", erases="before", **_DELTA)
#: Two rewrites or more of each family of ``plain_definitions.PROGRAMS`` that has no file of right programs of its own.
#: Products of matrices (d, d) at each token are left out: on residues they take minutes, and ten gigabytes.
REWRITES: tuple[Program, ...] = tuple(
    Program(function.__name__, function, spec)
    for spec, functions in (
        (Attention(causal=True, lse=True), (sums_first, sums_of_reversed_keys, sums_in_powers_of_two)),
        (Softmax(_CAUSAL), (softmax_in_place, softmax_by_columns, softmax_by_log_sums)),
        (Merge(), (merge_by_sums, merge_of_stack, merge_from_larger)),
        (Cached(_CAUSAL), (cache_in_place, cache_in_two_parts)),
        (Cached(_TURNED), (cache_with_complex_turns,)),
        (Gradient(_CAUSAL), (gradient_by_jacobians, gradient_by_rows, gradient_of_transposes)),
        (_GATES, (gates_by_pairs, gates_by_chunks)),
        (_GATED_DELTA, (delta_by_inverse, delta_of_transposed_states)),
        (_PAIRS, (pairs_of_transposed_states, pairs_by_columns)),
        (Block(attention=_CAUSAL), (block_of_joined_weights, block_by_rows, block_in_halves)),
    )
    for function in functions
)
