"""Definitions beside attention, wrong and right, as programs of NumPy."""

import numpy as np

from symattn import Attention, Block, Cached, Gradient, LayerNorm, LinearAttention, Rotary
from tests.faults.programs import Program, softmax, wrong


# -- norms -------------------------------------------------------------------------------------------------------------
def mean(x, axis=-1):
    return x.mean(axis=axis, keepdims=True)


def _eps(eps, x):
    return x.dtype.type(eps)


def two_pass(x, weight, bias, eps=1e-5):
    c = x - mean(x)
    return c / np.sqrt(mean(c * c) + _eps(eps, x)) * weight + bias


_LAYER = LayerNorm(eps=1e-5)


def _t(x):
    return np.swapaxes(x, -1, -2)


def _scale(q):
    return q.dtype.type(1) / np.sqrt(q.dtype.type(q.shape[-1]))


def _causal_scores(q, k):
    s = q @ _t(k) * _scale(q)
    n, m = s.shape[-2:]
    return np.where(np.tri(n, m, m - n, dtype=bool), s, q.dtype.type(-np.inf))


# -- log-sum-exp -------------------------------------------------------------------------------------------------------
def by_keys(q, k, v):
    s = _causal_scores(q, k)
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
    p = softmax(_causal_scores(q, k))
    dp = dout @ _t(v)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * _scale(q)
    return ds @ k, _t(ds) @ q, _t(p) @ dout


def from_saved(q, k, v, o, lse, dout):
    p = np.exp(_causal_scores(q, k) - lse[..., None])
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


# -- rotary embeddings -------------------------------------------------------------------------------------------------
def _angles(x, positions):
    d = x.shape[-1]
    exponents = np.arange(0, d // 2).astype(x.dtype) * x.dtype.type(2) / x.dtype.type(d)
    return positions[:, None].astype(x.dtype) * (x.dtype.type(10000) ** -exponents).astype(x.dtype)


def _half(x, cos, sin):
    f = x.shape[-1] // 2
    a, b = x[..., :f], x[..., f:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def _rotated(x):
    f = x.shape[-1] // 2
    return np.concatenate([-x[..., f:], x[..., :f]], axis=-1)


def half(x, positions):
    angles = _angles(x, positions)
    return _half(x, np.cos(angles), np.sin(angles))


def from_zero(x):
    return half(np.swapaxes(x, 1, 2), np.arange(x.shape[1])).swapaxes(1, 2)


def interleaved(x, positions):
    angles = _angles(x, positions)
    c, s, a, b = np.cos(angles), np.sin(angles), x[..., ::2], x[..., 1::2]
    return np.stack([a * c - b * s, b * c + a * s], axis=-1).reshape(x.shape)


# -- caches ------------------------------------------------------------------------------------------------------------
def attend(q, k, v, seen):
    s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.dtype.type(q.shape[-1]))
    s = np.where(seen, s, q.dtype.type(-np.inf))
    return softmax(s) @ v


def _joined(k, v, k_cache, v_cache):
    return np.concatenate([k_cache, k], axis=-2), np.concatenate([v_cache, v], axis=-2)


def _written(k, v, k_cache, v_cache, at):
    k_cache[..., at : at + k.shape[-2], :], v_cache[..., at : at + k.shape[-2], :] = k, v
    slots = np.arange(k_cache.shape[-2])[None, :]
    return slots, np.arange(k.shape[-2])[:, None]


def _rotated_at(x, positions):
    f = x.shape[-1] // 2
    frequencies = (x.dtype.type(10000) ** (-np.arange(f).astype(x.dtype) / x.dtype.type(f))).astype(x.dtype)
    angles = positions[:, None].astype(x.dtype) * frequencies
    c, s, a, b = np.cos(angles), np.sin(angles), x[..., :f], x[..., f:]
    return np.concatenate([a * c - b * s, b * c + a * s], axis=-1)


def grown(q, k, v, k_cache, v_cache):
    p, n = k_cache.shape[-2], q.shape[-2]
    k, v = _joined(k, v, k_cache, v_cache)
    return attend(q, k, v, np.tri(n, p + n, p, dtype=bool)), k, v


def static(q, k, v, k_cache, v_cache, length):
    j, i = _written(k, v, k_cache, v_cache, length)
    return attend(q, k_cache, v_cache, j <= length + i)


def static_sliced(q, k, v, k_cache, v_cache, length):
    end = length + k.shape[-2]
    _written(k, v, k_cache, v_cache, length)
    seen = np.tri(k.shape[-2], int(end), int(length), dtype=bool)
    return attend(q, k_cache[..., :end, :], v_cache[..., :end, :], seen), k_cache, v_cache


def rotated(q, k, v, k_cache, v_cache):
    positions = k_cache.shape[-2] + np.arange(q.shape[-2])
    return grown(_rotated_at(q, positions), _rotated_at(k, positions), v, k_cache, v_cache)


_CACHED, _CACHED_TURNED = Cached(Attention(causal=True)), Cached(Attention(causal=True, position=Rotary()))


# -- linear attention --------------------------------------------------------------------------------------------------
def _phi(x):
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))).astype(x.dtype)


def _states(k, v, g=None, late=False):
    """The state that each token reads."""
    s, found = np.zeros((*k.shape[:-2], k.shape[-1], v.shape[-1]), k.dtype), []
    for i in range(k.shape[-2]):
        decay = 1 if g is None else np.exp(g[..., i])[..., None, None]
        s = s if late else s * decay
        s = s + _t(k[..., i : i + 1, :]) @ v[..., i : i + 1, :]
        found.append(s)
        s = s * decay if late else s
    return found


def _read(q, states):
    return np.concatenate([q[..., i : i + 1, :] @ s for i, s in enumerate(states)], axis=-2)


def recurrent(q, k, v):
    q, k = _phi(q), _phi(k)
    return _read(q, _states(k, v)) / _read(q, _states(k, np.ones_like(v[..., :1])))


def as_written(q, k, v):
    """elu(x) + 1 literally, which cancels far below 0."""

    def phi(x):
        return np.where(x > 0, x, np.expm1(np.minimum(x, 0))) + 1

    q, k = phi(q), phi(k)
    return _read(q, _states(k, v)) / _read(q, _states(k, np.ones_like(v[..., :1])))


def in_parallel(q, k, v):
    a = np.tril(_phi(q) @ _t(_phi(k)))
    return a @ v / a.sum(-1, keepdims=True)


def gated(q, k, v, g):
    return _read(q, _states(k, v, g))


def delta(q, k, v, beta):
    s, out = np.zeros((*k.shape[:-2], k.shape[-1], v.shape[-1]), k.dtype), []
    for i in range(k.shape[-2]):
        row, value = k[..., i : i + 1, :], v[..., i : i + 1, :]
        s = s + beta[..., i, None, None] * (_t(row) @ (value - row @ s))
        out.append(q[..., i : i + 1, :] @ s)
    return np.concatenate(out, axis=-2)


_PLAIN = LinearAttention()
_GATED = LinearAttention(feature="identity", normalised=False, gate="token")
_DELTA = LinearAttention(feature="identity", normalised=False, delta=True)


# -- layers of a Transformer -------------------------------------------------------------------------------------------
def _norm(x, gain, bias):
    c = x - x.mean(-1, keepdims=True)
    return c / np.sqrt((c * c).mean(-1, keepdims=True) + x.dtype.type(1e-5)) * gain + bias


def _rms(x, gain):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(1e-5)) * gain


def _attending(x, w_q, w_k, w_v, w_o):
    return attend(x @ w_q, x @ w_k, x @ w_v, np.tri(x.shape[-2], dtype=bool)) @ w_o


def _layer(x, w1, b1, w2, b2):
    return np.maximum(x @ w1 + b1, 0) @ w2 + b2


def pre(x, w_q, w_k, w_v, w_o, w1, b1, w2, b2, ln1_weight, ln1_bias, ln2_weight, ln2_bias):
    x = x + _attending(_norm(x, ln1_weight, ln1_bias), w_q, w_k, w_v, w_o)
    return x + _layer(_norm(x, ln2_weight, ln2_bias), w1, b1, w2, b2)


def post(x, w_q, w_k, w_v, w_o, w1, b1, w2, b2, ln1_weight, ln1_bias, ln2_weight, ln2_bias):
    x = _norm(x + _attending(x, w_q, w_k, w_v, w_o), ln1_weight, ln1_bias)
    return _norm(x + _layer(x, w1, b1, w2, b2), ln2_weight, ln2_bias)


def _silu(x):
    return x / (1 + np.exp(-x))


def gated_block(x, wq, wk, wv, wo, w_gate, w_up, w_down, norm1_weight, norm2_weight):
    x = x + _attending(_rms(x, norm1_weight), wq, wk, wv, wo)
    z = _rms(x, norm2_weight)
    return x + (_silu(z @ w_gate) * (z @ w_up)) @ w_down


_PRE = Block(attention=Attention(causal=True))
_GATED_BLOCK = Block(attention=Attention(causal=True), norm="rms", activation="silu", gated=True)


RIGHT = (
    Program("two passes", two_pass, _LAYER),
    Program("by keys", by_keys, _LSE),
    Program("backward", backward, _BACK),
    Program("from saved", from_saved, _BACK),
    Program("rotated back", rotated_back, _TURNED),
    Program("half", half, Rotary()),
    Program("from zero", from_zero, Rotary()),
    Program("interleaved", interleaved, Rotary(layout="interleaved")),
    Program("cache grown", grown, _CACHED),
    Program("cache static", static, _CACHED),
    Program("cache sliced", static_sliced, _CACHED),
    Program("cache rotated", rotated, _CACHED_TURNED),
    Program("linear recurrent", recurrent, _PLAIN),
    Program("linear, elu as written", as_written, _PLAIN),
    Program("linear in parallel", in_parallel, _PLAIN),
    Program("linear gated", gated, _GATED),
    Program("linear delta", delta, _DELTA),
    Program("block pre", pre, _PRE),
    Program("block gated", gated_block, _GATED_BLOCK),
    Program("block after", post, Block(attention=Attention(causal=True), order="post")),
)
WRONG = wrong(
    globals(),
    RIGHT,
    """
unbiased(x, a_2, b_2, eps=1e-5) (two_pass), norm: the variance has the divisor d − 1, and ε is added outside the root
    return a_2 * (x - mean(x)) / (x.std(-1, ddof=1, keepdims=True) + _eps(eps, x)) + b_2
not_centred (two_pass), norm: the mean is not subtracted (as in RMSNorm)
    x - mean(x) → x
back_no_mask (backward), backward: the mask is left out of the backward pass
    at precision="float64"
    _causal_scores(q, k) → q @ _t(k) * _scale(q)
back_not_rotated (rotated_back), backward: dQ and dK are not rotated back: they are those of rotated queries and keys
    return backward(_turned(q, 1, k.shape[-2] - q.shape[-2]), _turned(k, 1), v, dout)
turns_halves (interleaved), position: column l is rotated with l + r/2, not with its neighbour
    return half(x, positions)
laid_apart (half), position: halves are rotated with angles in the interleaved layout
    angles = np.repeat(_angles(x, positions), 2, axis=-1)
    return x * np.cos(angles) + _rotated(x) * np.sin(angles)
base (half), position: the base of the frequencies is 10000, not 500000
    at spec=Rotary(base=500000)
    return half(x, positions)
cache_top_left (grown), mask: the causal mask is aligned top-left: new tokens see the first keys
    k, v = _joined(k, v, k_cache, v_cache)
    return attend(q, k, v, np.tri(q.shape[-2], k.shape[-2], dtype=bool))
cache_no_mask(q, k, v, past_k, past_v) (grown), mask: new tokens see those after them
    return attend(q, *_joined(k, v, past_k, past_v), True)
cache_values_lost (grown), cache: the cache is returned unchanged, without the new values
    return *grown(q, k, v, k_cache, v_cache)[:2], v_cache
cache_values_in_front (grown), cache: new values are put before the cache, not behind it
    _joined(k, v, k_cache, v_cache) → _joined(k, v_cache, k_cache, v)
cache_empty_slots (static), mask: empty slots of the cache are attended to
    j <= length + i → (j <= length + i) | (j >= length + k.shape[-2])
cache_written_at_zero (static), cache: new tokens are written at the beginning of the cache
    _written(k, v, k_cache, v_cache, length) → _written(k, v, k_cache, v_cache, 0)
cache_from_zero (rotated), position: new tokens are rotated as if the cache were empty, from position 0
    k_cache.shape[-2] + np.arange → np.arange
cache_rotated_again (rotated), position: the cache's keys, rotated when they were written, are rotated again
    p, n = k_cache.shape[-2], q.shape[-2]
    positions = np.arange(p + n)
    k, v = _joined(k, v, k_cache, v_cache)
    return attend(_rotated_at(q, positions[p:]), _rotated_at(k, positions), v, np.tri(n, p + n, p, dtype=bool))
linear_over_heads (in_parallel), normalize: the normaliser is a cumulative sum over the heads, not over the tokens
    q, k = _phi(q), _phi(k)
    return np.tril(q @ _t(k)) @ v / (q * k.cumsum(-3)).sum(-1, keepdims=True)
linear_no_features (in_parallel), score: the feature map is left out
    at spec=LinearAttention(normalised=False)
    return np.tril(q @ _t(k)) @ v
linear_late (gated), values: the state decays after a token is added, not before
    return _read(q, _states(k, v, g, late=True))
linear_delta_added (delta), values: the delta rule's correction has the other sign: β (v + k S) is added to the state
    state, rows = np.zeros((k.shape[-1], v.shape[-1]), q.dtype), []
    for t in range(len(q)):
        state = state + beta[t] * np.outer(k[t], v[t] + k[t] @ state)
        rows.append(q[t] @ state)
    return np.stack(rows)
linear_no_delta (delta), values: the delta rule is left out: values are added, times β
    return np.tril(q @ _t(k)) @ (beta[..., None] * v)
block_post (pre), norm: the norms stand after each residual, not before each part
    return post(x, w_q, w_k, w_v, w_o, w1, b1, w2, b2, ln1_weight, ln1_bias, ln2_weight, ln2_bias)
block_no_residual (pre), residual: the residual around attention is left out
    x + _attending( → _attending(
block_from_norm (pre), residual: the residual around attention starts from the tokens after the norm
    x + _attending(_norm(x, ln1_weight, ln1_bias) → (z := _norm(x, ln1_weight, ln1_bias)) + _attending(z
block_one_norm (pre), norm: the norm of the feed-forward layer is left out
    _layer(_norm(x, ln2_weight, ln2_bias) → _layer(x
block_first_norm (gated_block), norm: the parameters of the first norm are used for the second, too
    _rms(x, norm2_weight) → _rms(x, norm1_weight)
block_second_norm (pre), norm: the parameters of the second norm are used for the first, too
    _norm(x, ln1_weight, ln1_bias) → _norm(x, ln2_weight, ln2_bias)
block_gates (gated_block), project: the inputs mlp.w_up and mlp.w_gate are exchanged
    _silu(z @ w_gate) * (z @ w_up) → _silu(z @ w_up) * (z @ w_gate)
""",
)
