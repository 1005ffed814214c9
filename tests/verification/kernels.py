"""Kernels in half precision with float32 inside: what they store, and what may be wrong in them, are arguments."""

import ml_dtypes
import numpy as np

Array = np.ndarray
HALF = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def kernel(
    q: Array, k: Array, v: Array, dtype: str, *, stores: str = "", tile: int = 64, scale: float = 1.0,
    cap: float | None = None, edge: int = 0, lost: bool = False, causal: bool = True, exponential: float = 0.0,
    constant: str = "",
) -> Array:  # fmt: skip
    """``stores``: letters of what is stored beside the output: s scores, q scaled queries, w weights, p exponentials of
    tiles where they meet the values; ``exponential``: how far these are off; ``constant``: what is stored of the scale,
    itself, what is divided by, or its product with log₂ e."""
    half = HALF[dtype]
    q, k, v = (a.astype(np.float32) for a in (q, k, v))
    c = _scale(np.float32(scale / np.sqrt(q.shape[-1])), constant, half)
    s = _kept(q * c, half) @ k.mT if "q" in stores else _kept(q @ k.mT, half if "s" in stores else None) * c
    s = s if cap is None else np.float32(cap) * np.tanh(s / np.float32(cap))
    n, m = s.shape[-2:]
    seen = np.tril(np.ones((n, m), dtype=bool), m - n + edge) if causal else np.ones((n, m), dtype=bool)
    if lost:
        seen[:, -1] = False
    s = np.where(seen, s, -np.inf).astype(np.float32)
    return _weighted(s, v, half, stores, tile, exponential).astype(half)


def _scale(c: np.float32, constant: str, half: type) -> np.float32:
    stored: dict[str, float] = {
        "": c, "factor": half(c), "divisor": 1 / np.float32(half(1 / c)),
        "base 2": np.float32(half(c * np.float32(np.log2(np.e)))) * np.float32(np.log(2)),
        "reciprocal": half(1 / np.float32(half(1 / c))),
    }  # fmt: skip
    return np.float32(stored[constant])


def _kept(x: Array, half: type | None) -> Array:
    return x if half is None else x.astype(half).astype(np.float32)


def _weighted(s: Array, v: Array, half: type, stores: str, tile: int, off: float) -> Array:
    top, total, out = np.full((*s.shape[:-1], 1), -np.inf, np.float32), np.float32(0), np.float32(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        if "p" not in stores:
            e = _exponentials(s - s.max(axis=-1, keepdims=True), off)
            return _kept(e / e.sum(axis=-1, keepdims=True), half if "w" in stores else None) @ v
        for j in range(0, s.shape[-1], tile):
            new = np.maximum(top, s[..., j : j + tile].max(axis=-1, keepdims=True))
            finite = np.where(np.isfinite(new), new, np.float32(0))
            e, old = _exponentials(s[..., j : j + tile] - finite, off), np.exp(top - finite)
            total, out, top = (
                total * old + e.sum(axis=-1, keepdims=True),
                out * old + _kept(e, half) @ v[j : j + tile],
                new,
            )
        return out / total


def _exponentials(x: Array, off: float) -> Array:
    """e^x, off by a share that goes up and down with x, as that of a polynomial."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.exp(x) * np.where(np.isfinite(x), 1 + off * np.sin(40 * x), 1), dtype=np.float32)
