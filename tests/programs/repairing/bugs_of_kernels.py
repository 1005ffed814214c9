"""Bugs of attention kernels from public reports, each rewritten as one function, with the fix of the report.

Kernels of Triton and CUDA are written as loops over tiles in NumPy, functions of PyTorch in PyTorch. ``BUGS`` holds the
reports as ``public_bugs`` does.
"""

from __future__ import annotations

from tests.programs.repairing.public_bugs import PublicBug

_TILES = """
def attention(q, k, v):
    n_q, n_k = len(q), len(k)
    past, scale = n_k - n_q, np.float32(q.shape[1] ** -0.5)
    out = []
    for start in range(0, n_q, 16):
        rows = np.arange(start, min(start + 16, n_q))[:, None]
        m = np.full((len(rows), 1), -np.inf, q.dtype)
        total = np.zeros((len(rows), 1), q.dtype)
        acc = np.zeros((len(rows), v.shape[1]), q.dtype)
        first, last = 0, min(n_k, start + 16 + past)
        for j in range(first, last, 16):
            keys = np.arange(j, min(j + 16, n_k))
            s = q[start : start + 16] @ k[j : j + 16].T * scale
            s = np.where(keys <= rows + past, s, -np.inf)
            new = np.maximum(m, s.max(1, keepdims=True))
            a, p = np.exp(m - new), np.exp(s - new)
            total = total * a + p.sum(1, keepdims=True)
            acc, m = acc * a + p @ v[j : j + 16], new
        out.append(acc / total)
    return np.concatenate(out)
"""
_POWERS_OF_TWO = """
LOG2_E = np.float32(1.4426950408889634)


def attention(q, k, v, bias):
    s = q @ k.T * np.float32(q.shape[1] ** -0.5) * LOG2_E
    s = s + bias * LOG2_E
    p = np.exp2(s - s.max(1, keepdims=True))
    return p @ v / p.sum(1, keepdims=True)
"""
_GIVEN_SCALE = """
LOG2_E = 1.4426950408889634


def attention(q, k, v, scale=0.25):
    root = q.shape[1] ** -0.5
    factor = (scale or root) * LOG2_E
    s = q @ k.T * np.float32(factor)
    p = np.exp2(s - s.max(1, keepdims=True))
    return p @ v / p.sum(1, keepdims=True)
"""
_KEPT_KEYS = """
def attention(q, k, v):
    radius = 4 - 1
    out = np.zeros((len(q), v.shape[1]), q.dtype)
    for i in range(len(q)):
        length = len(k) - len(q) + i + 1
        oldest = length - min(length, radius + 1)
        s = k[oldest:length] @ q[i] / np.float32(np.sqrt(q.shape[1]))
        p = np.exp(s - s.max())
        out[i] = p @ v[oldest:length] / p.sum()
    return out
"""
_SCALED_BEFORE = """
import torch


def attention(q, k, v):
    q = q * q.shape[-1] ** -0.5
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)
"""
_SCALED_BIAS = """
def attention(q, k, v, bias):
    scale = np.float32(q.shape[1] ** -0.5)
    s = q @ k.T + bias / scale
    e = np.exp((s - s.max(1, keepdims=True)) * scale)
    return e @ v / e.sum(1, keepdims=True)
"""
_RUNNING_SUMS = """
def attention(q, k, v):
    q, k = (np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (q, k))
    sums = np.cumsum(k, axis=-2)
    n = q.shape[-2]
    weights = q @ np.swapaxes(k, -1, -2) * np.tril(np.ones((n, n), q.dtype))
    return weights @ v / (q * sums).sum(-1, keepdims=True)
"""
_NO_GIVEN_MASK = """
def attention(q, k, v):
    return attend(q, k, v, None)


def attend(q, k, v, mask):
    s = q @ k.T / np.float32(np.sqrt(q.shape[1]))
    seen = np.tril(np.ones(s.shape, dtype=bool), len(k) - len(q))
    if mask is not None:
        seen = seen & mask
    s = np.where(seen, s, -np.inf)
    e = np.exp(s - s.max(1, keepdims=True))
    return e @ v / e.sum(1, keepdims=True)
"""
_BACKWARD = """
def backward(q, k, v, do):
    scale = np.float32(q.shape[1] ** -0.5)
    s = q @ k.T * scale
    e = np.exp(s - s.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    dp = do @ v.T
    ds = p * (dp - (p * dp).sum(1, keepdims=True))
    return ds @ k * scale, ds.T @ q * scale, p.T @ do
"""
_MASKED_TILES = """
def attention(q, k, v, mask):
    n_q, n_k = len(q), len(k)
    past, scale = n_k - n_q, np.float32(q.shape[1] ** -0.5)
    out = []
    for start in range(0, n_q, 16):
        end = n_k
        s = q[start : start + 16] @ k[:end].T * scale
        s = np.where(mask[start : start + 16, :end], s, -np.inf)
        e = np.exp(s - s.max(1, keepdims=True))
        out.append(e @ v[:end] / e.sum(1, keepdims=True))
    return np.concatenate(out)
"""
_WINDOW_OF_TWO_ENDS = """
def attention(q, k, v):
    window = 4
    left, right = window - 1, 0
    rows = np.arange(len(q))[:, None] + len(k) - len(q)
    keys = np.arange(len(k))
    s = q @ k.T / np.float32(np.sqrt(q.shape[1]))
    s = np.where((keys >= rows - left) & (keys <= rows + right), s, -np.inf)
    e = np.exp(s - s.max(1, keepdims=True))
    return e @ v / e.sum(1, keepdims=True)
"""
_PADDED_TILES = """
def attention(q, k, v):
    n_k, block, tile = len(k), 16, 16
    scale = np.float32(q.shape[1] ** -0.5)
    padded = -(-n_k // tile) * tile
    k = np.pad(k, ((0, padded - n_k), (0, 0)))
    v = np.pad(v, ((0, padded - n_k), (0, 0)))
    m = np.full((len(q), 1), -np.inf, q.dtype)
    total, acc = np.zeros((len(q), 1), q.dtype), np.zeros((len(q), v.shape[1]), q.dtype)
    for j in range(0, padded, tile):
        s = q @ k[j : j + tile].T * scale
        keys = np.arange(j, j + tile)
        s = np.where(keys < n_k, s, -np.inf)
        new = np.maximum(m, s.max(1, keepdims=True))
        a, p = np.exp(m - new), np.exp(s - new)
        total = total * a + p.sum(1, keepdims=True)
        acc, m = acc * a + p @ v[j : j + tile], new
    return acc / total
"""

_SEEN = "(np.tril(np.ones(s.shape, dtype=bool), len(k) - len(q)), s, -np.inf)"

BUGS = (
    PublicBug("openai/gpt-oss#196", "a loop over keys that begins behind the cached ones", "Attention(causal=True)",
              _TILES, (("first, last = 0,", "first, last = past,"),), True),
    PublicBug("meta-pytorch/segment-anything-fast#71", "a bias that is not scaled for powers of 2",
              "Attention(bias=True)", _POWERS_OF_TWO, (("s + bias * LOG2_E", "s + bias"),), True),
    PublicBug("iree-org/iree-turbine#480", "log₂ e bound to the default scale alone", "Attention(scale=0.25)",
              _GIVEN_SCALE, (("(scale or root) * LOG2_E", "scale or root * LOG2_E"),), True),
    PublicBug("sgl-project/sglang#32087", "a window of kept keys that loses its oldest one",
              "Attention(causal=True, window=4)", _KEPT_KEYS, (("radius + 1)", "radius)"),), True),
    PublicBug("huggingface/transformers#38290", "queries scaled twice, once by a default", "Attention()",
              _SCALED_BEFORE, (("(q, k, v, scale=1.0)", "(q, k, v)"),), True, framework="torch"),
    PublicBug("tenstorrent/tt-metal#42891", "a bias that is scaled with the scores", "Attention(bias=True)",
              _SCALED_BIAS, (("bias / scale", "bias"),), True),
    PublicBug("fla-org/flash-linear-attention#850", "running sums over heads, not tokens",
              "LinearAttention(feature='elu', causal=True)", _RUNNING_SUMS,
              (("np.cumsum(k, axis=-2)", "np.cumsum(k, axis=0)"),), True, layout="bhnd"),
    PublicBug("facebookresearch/xformers#103", "a causal mask that is skipped without another mask",
              "Attention(causal=True)", _NO_GIVEN_MASK,
              (("    s = np.where(seen, s, -np.inf)", "        s = np.where(seen, s, -np.inf)"),), True),
    PublicBug("triton-lang/triton#5660", "a gradient that is causal where attention is not", "Gradient(Attention())",
              _BACKWARD, (("    e = np.exp", f"    s = np.where{_SEEN}\n    e = np.exp"),), True),
    PublicBug("sgl-project/sglang#39593", "a loop that ends at the diagonal, whatever the mask",
              "Attention(mask='boolean')", _MASKED_TILES, (("end = n_k", "end = min(n_k, start + 16 + past)"),), True),
    PublicBug("ModelTC/LightLLM#1311", "a window of as many later keys as earlier ones",
              "Attention(causal=True, window=4)", _WINDOW_OF_TWO_ENDS, (("window - 1, 0", "window - 1, window - 1"),),
              True),
    PublicBug("zml/zml#563", "padding that is masked only if tiles are longer than blocks", "Attention()",
              _PADDED_TILES,
              (("        s = np.where(keys < n_k, s, -np.inf)",
                "        if tile != block:\n            s = np.where(keys < n_k, s, -np.inf)"),), True),
)  # fmt: skip
