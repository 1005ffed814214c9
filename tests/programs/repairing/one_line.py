"""One-line mistakes as engineers make them, each in a right program.

They were written by somebody who had read the table of edits in ``docs/fix.md``, and not the code of the rules. They
are of kinds that nobody had listed: plain, masks, shared heads, caches, streaming softmax, rotary positions, norms,
gradients, merges and recurrences. ``LATER`` were written after rules had been added for what was missed of ``FIRST``.
"""

from dataclasses import dataclass
from typing import Any

from symattn import Attention, Cached, Gradient, LayerNorm, LinearAttention, Merge, RMSNorm, Rotary

HEAD = "import numpy as np\n\n\n"
SOFTMAX = """
def softmax(x):
    shifted = x - x.max(axis=-1, keepdims=True)
    weights = np.exp(shifted)
    return weights / weights.sum(axis=-1, keepdims=True)


"""


@dataclass(frozen=True)
class OneLine:
    """A mistake: its name, the definition, the text of the right program, and a line of it before and after."""

    name: str
    definition: Any
    text: str
    right: str
    wrong: str

    @property
    def function(self) -> str:
        """The name of the function, the last one of the text."""
        return self.text.rpartition("\ndef ")[2].partition("(")[0]

    @property
    def whole(self) -> str:
        """The text of the right file."""
        return HEAD + self.text.lstrip("\n")

    @property
    def broken(self) -> str:
        """The text of the wrong file."""
        assert self.whole.count(self.right) == 1, self.name
        return self.whole.replace(self.right, self.wrong)

    @property
    def line(self) -> int:
        """The number of the line that is wrong."""
        return self.whole[: self.whole.index(self.right)].count("\n") + 1


_PLAIN_LAST_BLOCK = (
    SOFTMAX
    + """def attention(q, k, v):
    d = q.shape[-1]
    out = np.zeros((len(q), v.shape[-1]), dtype=q.dtype)
    block = 8
    for start in range(0, len(q), block):
        stop = min(start + block, len(q))
        logits = q[start:stop] @ k.T
        logits /= np.asarray(np.sqrt(d), q.dtype)
        out[start:stop] = softmax(logits) @ v
    return out
"""
)
_MASK_OR = (
    SOFTMAX
    + """def attention(q, k, v):
    n, m = q.shape[0], k.shape[0]
    offset = m - n
    width = 4
    rows = np.arange(n).reshape(n, 1) + offset
    cols = np.arange(m).reshape(1, m)
    keep = (cols <= rows) & (cols > rows - width)
    scores = q @ k.T / np.float32(q.shape[1] ** 0.5)
    scores[~keep] = -np.inf
    return softmax(scores) @ v
"""
)
_MASK_MULTIPLIED = (
    SOFTMAX
    + """def attention(q, k, v, mask):
    scores = q @ np.swapaxes(k, -1, -2) / np.float32(np.sqrt(q.shape[-1]))
    bias = np.where(mask, np.float32(0), np.float32(-np.inf))
    return softmax(scores + bias) @ v
"""
)
_MASK_SCALED = (
    SOFTMAX
    + """def attention(q, k, v, mask):
    scale = np.float32(1 / np.sqrt(q.shape[-1]))
    scores = q @ np.swapaxes(k, -1, -2) * scale + mask
    return softmax(scores) @ v
"""
)
_GROUPS_MOD = (
    SOFTMAX
    + """def attention(q, k, v):
    h, n, d = q.shape
    g = k.shape[0]
    outs = []
    for head in range(h):
        shared = head // (h // g)
        scores = q[head] @ k[shared].T / np.float32(d ** 0.5)
        outs.append(softmax(scores) @ v[shared])
    return np.stack(outs)
"""
)
_GROUPS_RESHAPE = (
    SOFTMAX
    + """def attention(q, k, v):
    h, n, d = q.shape
    g, m, _ = k.shape
    q = q.reshape(g, h // g, n, d)
    scores = q @ k[:, None].swapaxes(2, 3) / np.float32(d ** 0.5)
    out = softmax(scores) @ v[:, None]
    return out.reshape(h, n, -1)
"""
)
_CACHE_STRICT = (
    SOFTMAX
    + """def attention(q, k, v, k_cache, v_cache):
    past = k_cache.shape[0]
    keys = np.concatenate([k_cache, k])
    values = np.concatenate([v_cache, v])
    scores = q @ keys.T / np.float32(np.sqrt(q.shape[-1]))
    allowed = np.tri(len(q), len(keys), k=past, dtype=bool)
    scores = np.where(allowed, scores, np.float32(-np.inf))
    return softmax(scores) @ values
"""
)
_STREAM_MAX_BLOCK = """
def attention(q, k, v):
    scale = np.float32(1.0 / np.sqrt(q.shape[-1]))
    out = np.zeros((q.shape[0], v.shape[-1]), np.float32)
    peak = np.full(q.shape[0], -np.inf, np.float32)
    mass = np.zeros(q.shape[0], np.float32)
    for lo in range(0, k.shape[0], 16):
        hi = min(lo + 16, k.shape[0])
        s = (q @ k[lo:hi].T) * scale
        peak_new = np.maximum(peak, s.max(axis=1))
        keep = np.exp(peak - peak_new)
        p = np.exp(s - peak_new[:, None])
        mass = mass * keep + p.sum(axis=1)
        out = out * keep[:, None] + p @ v[lo:hi]
        peak = peak_new
    return out / mass[:, None]
"""
_ROTARY_SIGN = (
    SOFTMAX
    + """def rotate(x, offset=0):
    half = x.shape[-1] // 2
    freq = 10000.0 ** (-np.arange(half) / half)
    angle = (np.arange(x.shape[0])[:, None] + offset) * freq[None, :]
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
    a, b = x[:, :half], x[:, half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=1)


def attention(q, k, v):
    q = rotate(q, len(k) - len(q))
    k = rotate(k)
    scores = q @ k.T / np.float32(np.sqrt(q.shape[-1]))
    return softmax(scores) @ v
"""
)
_NORM_EPS_OUTSIDE = """
def norm(x, gain, bias):
    mean = x.mean(axis=-1, keepdims=True)
    centred = x - mean
    var = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(var + np.float32(1e-5)) * gain + bias
"""
_GRADIENT_NO_SCALE = (
    SOFTMAX
    + """def gradient(q, k, v, do):
    scale = np.float32(1 / np.sqrt(q.shape[-1]))
    p = softmax(q @ k.T * scale)
    dv = p.T @ do
    dp = do @ v.T
    ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True))
    dq = ds @ k * scale
    dk = ds.T @ q * scale
    return dq, dk, dv
"""
)
_MERGE_LSE_TOP = """
def merge(o1, l1, o2, l2):
    top = np.maximum(l1, l2)
    safe = np.where(np.isfinite(top), top, np.float32(0))
    w1, w2 = np.exp(l1 - safe), np.exp(l2 - safe)
    total = w1 + w2
    with np.errstate(divide="ignore", invalid="ignore"):
        part1 = np.where((w1 > 0)[..., None], o1, 0) * (w1 / total)[..., None]
        part2 = np.where((w2 > 0)[..., None], o2, 0) * (w2 / total)[..., None]
        return part1 + part2, safe + np.log(total)
"""
_LINEAR_GATE_AFTER = """
def linear(q, k, v, g):
    state = np.zeros((k.shape[-1], v.shape[-1]), np.float32)
    rows = []
    for t in range(q.shape[0]):
        state = state * np.exp(g[t]) + np.outer(k[t], v[t])
        rows.append(q[t] @ state)
    return np.stack(rows)
"""
_DELTA_BETA_TWICE = """
def delta(q, k, v, beta):
    state = np.zeros((k.shape[-1], v.shape[-1]), np.float32)
    out = np.zeros((q.shape[0], v.shape[-1]), np.float32)
    for t in range(q.shape[0]):
        wrong = v[t] - k[t] @ state
        state = state + beta[t] * np.outer(k[t], wrong)
        out[t] = q[t] @ state
    return out
"""
_DOUBLE_EXP = """
def attention(q, k, v):
    logits = np.matmul(q, k.swapaxes(-1, -2))
    logits = logits * np.float32(1.0 / np.sqrt(k.shape[-1]))
    logits -= np.amax(logits, axis=-1, keepdims=True)
    np.exp(logits, out=logits)
    denominator = np.sum(logits, axis=-1, keepdims=True)
    return np.matmul(logits, v) / denominator
"""
_LOOP_SUM = """
def attention(q, k, v):
    n_q, n_k = q.shape[0], k.shape[0]
    out = np.empty((n_q, v.shape[1]), np.float32)
    for i in range(n_q):
        last = i + n_k - n_q
        row = np.empty(n_k, np.float32)
        for j in range(n_k):
            row[j] = q[i] @ k[j] / np.sqrt(np.float32(q.shape[1]))
        row = row[: last + 1]
        w = np.exp(row - row.max())
        out[i] = (w / w.sum()) @ v[: last + 1]
    return out
"""
_EXPAND_AXIS = (
    SOFTMAX
    + """def expand(x, times):
    g, n, d = x.shape
    x = np.broadcast_to(x[:, None], (g, times, n, d))
    return x.reshape(g * times, n, d)


def attention(q, k, v):
    times = q.shape[0] // k.shape[0]
    k, v = expand(k, times), expand(v, times)
    s = np.einsum("hid,hjd->hij", q, k) / np.float32(np.sqrt(q.shape[-1]))
    return np.einsum("hij,hje->hie", softmax(s), v)
"""
)
_SPLIT_TOP = """
def attention(q, k, v):
    scale = np.float32(1 / np.sqrt(q.shape[-1]))
    parts = []
    for lo in range(0, k.shape[0], 32):
        s = q @ k[lo : lo + 32].T * scale
        m = s.max(axis=1, keepdims=True)
        p = np.exp(s - m)
        parts.append((m, p.sum(axis=1, keepdims=True), p @ v[lo : lo + 32]))
    top = np.max([m for m, _, _ in parts], axis=0)
    total = sum(l * np.exp(m - top) for m, l, _ in parts)
    out = sum(o * np.exp(m - top) for m, _, o in parts)
    return out / total
"""
_ROTARY_LANE = (
    SOFTMAX
    + """def rotate(x, first):
    d = x.shape[-1]
    rate = 1.0 / 10000.0 ** (np.arange(0, d, 2) / d)
    angle = np.outer(np.arange(first, first + len(x)), rate)
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
    out = np.empty_like(x)
    out[:, 0::2] = x[:, 0::2] * cos - x[:, 1::2] * sin
    out[:, 1::2] = x[:, 0::2] * sin + x[:, 1::2] * cos
    return out


def attention(q, k, v):
    past = k.shape[0] - q.shape[0]
    s = rotate(q, past) @ rotate(k, 0).T / np.float32(np.sqrt(q.shape[-1]))
    return softmax(s) @ v
"""
)
_RMS_SUM = """
def rms(x, gain):
    square = np.mean(x * x, axis=-1, keepdims=True)
    return x * (1 / np.sqrt(square + np.float32(1e-6))) * gain
"""
_CACHE_OFFSET = (
    SOFTMAX
    + """def attention(q, k, v, k_cache, v_cache):
    k_all = np.vstack((k_cache, k))
    v_all = np.vstack((v_cache, v))
    s = q @ k_all.T / np.float32(np.sqrt(q.shape[-1]))
    i = np.arange(len(q))[:, None] + len(k_cache)
    s[i < np.arange(len(k_all))] = -np.inf
    return softmax(s) @ v_all
"""
)
_GRADIENT_DELTA = (
    SOFTMAX
    + """def gradient(q, k, v, do):
    scale = np.float32(1 / np.sqrt(q.shape[-1]))
    p = softmax(q @ k.T * scale)
    o = p @ v
    dv = p.T @ do
    delta = (do * o).sum(axis=-1, keepdims=True)
    ds = p * (do @ v.T - delta)
    return ds @ k * scale, ds.T @ q * scale, dv
"""
)
_LINEAR_WEIGHT = """
def linear(q, k, v):
    state = np.zeros((k.shape[-1], v.shape[-1]), np.float32)
    weight = np.zeros(k.shape[-1], np.float32)
    rows = []
    for a, b, c in zip(q, k, v):
        fa, fb = np.where(a > 0, a + 1, np.exp(np.minimum(a, 0))), np.where(b > 0, b + 1, np.exp(np.minimum(b, 0)))
        state += np.outer(fb, c)
        weight += fb
        rows.append(fa @ state / (fa @ weight))
    return np.stack(rows)
"""

FIRST = [
    OneLine(
        "plain-last-block",
        Attention(),
        _PLAIN_LAST_BLOCK,
        "for start in range(0, len(q), block):",
        "for start in range(0, len(q) // block * block, block):",
    ),
    OneLine(
        "plain-sum-of-shifted",
        Attention(),
        _PLAIN_LAST_BLOCK,
        "return weights / weights.sum(axis=-1, keepdims=True)",
        "return weights / np.abs(shifted).sum(axis=-1, keepdims=True)",
    ),
    OneLine(
        "mask-or",
        Attention(causal=True, window=4),
        _MASK_OR,
        "keep = (cols <= rows) & (cols > rows - width)",
        "keep = (cols <= rows) & (cols > rows) - width",
    ),
    OneLine(
        "mask-order",
        Attention(causal=True, window=4),
        _MASK_OR,
        "scores[~keep] = -np.inf",
        "scores[~keep] = 0",
    ),
    OneLine(
        "mask-multiplied",
        Attention(mask="boolean"),
        _MASK_MULTIPLIED,
        "return softmax(scores + bias) @ v",
        "return softmax(scores) + bias @ v",
    ),
    OneLine(
        "mask-scaled",
        Attention(mask="additive"),
        _MASK_SCALED,
        "scores = q @ np.swapaxes(k, -1, -2) * scale + mask",
        "scores = (q @ np.swapaxes(k, -1, -2) + mask) * scale",
    ),
    OneLine(
        "groups-mod",
        Attention(heads=6, kv_heads=2),
        _GROUPS_MOD,
        "shared = head // (h // g)",
        "shared = head // g",
    ),
    OneLine(
        "groups-value",
        Attention(heads=6, kv_heads=2),
        _GROUPS_MOD,
        "outs.append(softmax(scores) @ v[shared])",
        "outs.append(softmax(scores) @ v[head % g])",
    ),
    OneLine(
        "groups-reshape",
        Attention(heads=6, kv_heads=2),
        _GROUPS_RESHAPE,
        "q = q.reshape(g, h // g, n, d)",
        "q = q.reshape(h // g, g, n, d).swapaxes(0, 1)",
    ),
    OneLine(
        "cache-strict",
        Cached(attention=Attention(causal=True)),
        _CACHE_STRICT,
        "allowed = np.tri(len(q), len(keys), k=past, dtype=bool)",
        "allowed = np.tri(len(q), len(keys), k=past - 1, dtype=bool)",
    ),
    OneLine(
        "cache-values-order",
        Cached(attention=Attention(causal=True)),
        _CACHE_STRICT,
        "values = np.concatenate([v_cache, v])",
        "values = np.concatenate([v, v_cache])",
    ),
    OneLine(
        "stream-max-block",
        Attention(),
        _STREAM_MAX_BLOCK,
        "peak_new = np.maximum(peak, s.max(axis=1))",
        "peak_new = s.max(axis=1)",
    ),
    OneLine(
        "stream-keep-inverse",
        Attention(),
        _STREAM_MAX_BLOCK,
        "keep = np.exp(peak - peak_new)",
        "keep = np.exp(peak_new - peak)",
    ),
    OneLine(
        "stream-mass-first",
        Attention(),
        _STREAM_MAX_BLOCK,
        "mass = mass * keep + p.sum(axis=1)",
        "mass = (mass + p.sum(axis=1)) * keep",
    ),
    OneLine(
        "stream-ragged",
        Attention(),
        _STREAM_MAX_BLOCK,
        "hi = min(lo + 16, k.shape[0])",
        "hi = min(lo + 16, k.shape[0] - 1)",
    ),
    OneLine(
        "rotary-sign",
        Attention(position=Rotary()),
        _ROTARY_SIGN,
        "return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=1)",
        "return np.concatenate([a * cos - b * sin, b * cos - a * sin], axis=1)",
    ),
    OneLine(
        "rotary-freq",
        Attention(position=Rotary()),
        _ROTARY_SIGN,
        "freq = 10000.0 ** (-np.arange(half) / half)",
        "freq = 10000.0 ** (-np.arange(half) / x.shape[-1])",
    ),
    OneLine(
        "rotary-offset",
        Attention(position=Rotary()),
        _ROTARY_SIGN,
        "q = rotate(q, len(k) - len(q))",
        "q = rotate(q)",
    ),
    OneLine(
        "norm-eps-outside",
        LayerNorm(),
        _NORM_EPS_OUTSIDE,
        "return centred / np.sqrt(var + np.float32(1e-5)) * gain + bias",
        "return centred / (np.sqrt(var) + np.float32(1e-5)) * gain + bias",
    ),
    OneLine(
        "norm-uncentred",
        LayerNorm(),
        _NORM_EPS_OUTSIDE,
        "var = (centred * centred).mean(axis=-1, keepdims=True)",
        "var = (x * x).mean(axis=-1, keepdims=True)",
    ),
    OneLine(
        "gradient-no-scale",
        Gradient(attention=Attention()),
        _GRADIENT_NO_SCALE,
        "dk = ds.T @ q * scale",
        "dk = ds.T @ q",
    ),
    OneLine(
        "gradient-delta",
        Gradient(attention=Attention()),
        _GRADIENT_NO_SCALE,
        "ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True))",
        "ds = p * (dp - dp.mean(axis=-1, keepdims=True))",
    ),
    OneLine(
        "merge-lse-top",
        Merge(),
        _MERGE_LSE_TOP,
        "return part1 + part2, safe + np.log(total)",
        "return part1 + part2, np.log(total)",
    ),
    OneLine(
        "linear-gate-after",
        LinearAttention(feature="identity", normalised=False, gate="token"),
        _LINEAR_GATE_AFTER,
        "state = state * np.exp(g[t]) + np.outer(k[t], v[t])",
        "state = (state + np.outer(k[t], v[t])) * np.exp(g[t])",
    ),
    OneLine(
        "delta-beta-twice",
        LinearAttention(feature="identity", normalised=False, delta=True),
        _DELTA_BETA_TWICE,
        "wrong = v[t] - k[t] @ state",
        "wrong = beta[t] * v[t] - k[t] @ state",
    ),
]

LATER = [
    OneLine(
        "double-exp",
        Attention(),
        _DOUBLE_EXP,
        "denominator = np.sum(logits, axis=-1, keepdims=True)",
        "denominator = np.sum(np.exp(logits), axis=-1, keepdims=True)",
    ),
    OneLine(
        "loop-sum",
        Attention(causal=True),
        _LOOP_SUM,
        "out[i] = (w / w.sum()) @ v[: last + 1]",
        "out[i] = (w / w.mean()) @ v[: last + 1]",
    ),
    OneLine(
        "loop-key",
        Attention(causal=True),
        _LOOP_SUM,
        "row[j] = q[i] @ k[j] / np.sqrt(np.float32(q.shape[1]))",
        "row[j] = q[j % n_q] @ k[i] / np.sqrt(np.float32(q.shape[1]))",
    ),
    OneLine(
        "expand-axis",
        Attention(heads=6, kv_heads=2),
        _EXPAND_AXIS,
        "x = np.broadcast_to(x[:, None], (g, times, n, d))",
        "x = np.broadcast_to(x[None], (times, g, n, d))",
    ),
    OneLine(
        "split-top",
        Attention(),
        _SPLIT_TOP,
        "out = sum(o * np.exp(m - top) for m, _, o in parts)",
        "out = sum(o * np.exp(m) for m, _, o in parts)",
    ),
    OneLine(
        "split-weight",
        Attention(),
        _SPLIT_TOP,
        "total = sum(l * np.exp(m - top) for m, l, _ in parts)",
        "total = sum(np.exp(m - top) for m, l, _ in parts)",
    ),
    OneLine(
        "rotary-lane",
        Attention(position=Rotary(layout="interleaved")),
        _ROTARY_LANE,
        "out[:, 1::2] = x[:, 0::2] * sin + x[:, 1::2] * cos",
        "out[:, 1::2] = out[:, 0::2] * sin + x[:, 1::2] * cos",
    ),
    OneLine(
        "rms-sum",
        RMSNorm(eps=1e-06),
        _RMS_SUM,
        "square = np.mean(x * x, axis=-1, keepdims=True)",
        "square = np.mean(x, axis=-1, keepdims=True) ** 2",
    ),
    OneLine(
        "cache-offset",
        Cached(attention=Attention(causal=True)),
        _CACHE_OFFSET,
        "i = np.arange(len(q))[:, None] + len(k_cache)",
        "i = np.arange(len(q))[:, None] + len(k)",
    ),
    OneLine(
        "gradient-output",
        Gradient(attention=Attention()),
        _GRADIENT_DELTA,
        "delta = (do * o).sum(axis=-1, keepdims=True)",
        "delta = o.sum(axis=-1, keepdims=True)",
    ),
    OneLine(
        "linear-weight",
        LinearAttention(),
        _LINEAR_WEIGHT,
        "rows.append(fa @ state / (fa @ weight))",
        "rows.append(fa @ state / (fa @ fb))",
    ),
    OneLine(
        "linear-feature",
        LinearAttention(),
        _LINEAR_WEIGHT,
        "fa, fb = np.where(a > 0, a + 1, np.exp(np.minimum(a, 0))), np.where(b > 0, b + 1, np.exp(np.minimum(b, 0)))",
        "fa, fb = np.where(a > 0, a + 1, np.exp(np.minimum(a, 0))), np.where(b > 0, b, np.exp(np.minimum(b, 0)))",
    ),
]
