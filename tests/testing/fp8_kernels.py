"""Attention in FP8, tile by tile, and how inputs are brought into it: written apart from what is tested."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt

import numpy as np

from symattn.arrays.formats import Format

Array = np.ndarray
E4M3, E5M2, BF16 = Format("float8_e4m3fn"), Format("float8_e5m2"), Format("bfloat16")


@dataclass(frozen=True)
class Quantised:
    """Numbers of the format as float64, (h, n, d), and the factor of each token, (h, n, 1)."""

    numbers: Array
    factors: Array

    def off(self, by: float) -> Quantised:
        """With factors that are times ``by``."""
        return Quantised(self.numbers, self.factors * by)

    def of_another_head(self) -> Quantised:
        """With each head's factors in the place of the one before."""
        return Quantised(self.numbers, np.roll(self.factors, -1, axis=0))

    def of_the_next_block(self, size: int) -> Quantised:
        """With each block's factors in the place of the one before."""
        return Quantised(self.numbers, np.roll(self.factors, -size, axis=1))


def quantised(a: Array, f: Format, per: str, size: int) -> Quantised:
    """The largest number of each ``tensor``, ``head`` or ``block`` of ``size`` tokens becomes the format's largest."""
    h, n, _ = a.shape
    top = np.abs(a).max(axis=-1)
    if per == "block":
        top = np.repeat(top.reshape(h, -1, size).max(axis=-1), size, axis=-1)
    else:
        top = np.broadcast_to(top.max(axis=1 if per == "head" else None, keepdims=True), (h, n))
    factors = (np.float32(top) / np.float32(f.largest)).astype(np.float64)[..., None]
    factors = np.where(factors == 0, 1.0, factors)
    return Quantised(f.rounded(a / factors), factors)


@dataclass(frozen=True)
class Kernel:
    """What differs between right kernels: the format of P, its scale, tiles of keys, whether P is summed as stored."""

    weights: Format = E4M3
    times: float = 256.0
    tile: int = 64
    summed: bool = False
    output: Format = BF16

    def fits(self, f: Format) -> bool:
        """Whether P is stored as well as in this format, or better."""
        return self.weights.u <= f.u and self.weights.eta <= f.eta * Fraction(self.times)

    def __call__(self, q: Quantised, k: Quantised, v: Quantised, over: float = 0.0) -> Array:
        """Causal attention; ``over`` is what the scale of P is taken to be at the end, if it is not ``times``."""
        (h, n, d), shape = q.numbers.shape, (*q.numbers.shape[:2], 1)
        m, total, out = np.full(shape, -np.inf), np.zeros(shape), np.zeros((h, n, v.numbers.shape[-1]))
        for at in range(0, n, self.tile):
            keys = slice(at, at + self.tile)
            s = (q.numbers @ k.numbers[:, keys].mT).astype(np.float32) * np.float32(1 / sqrt(d))
            s = s * np.float32(q.factors) * np.float32(k.factors[:, keys].mT)
            s = np.where(np.arange(n)[:, None] >= np.arange(n)[keys], s, -np.inf)
            new = np.maximum(m, s.max(axis=-1, keepdims=True))
            e, kept = (np.exp(s - new) * self.times).astype(np.float32), np.exp(m - new)
            p = self.weights.rounded(e)
            total = total * kept + (p if self.summed else e).sum(axis=-1, keepdims=True)
            out = (out * kept + (p @ v.numbers[:, keys]) * v.factors[:, keys][:, :1]).astype(np.float32)
            m = new
        return self.output.rounded(out / total * (self.times / (over or self.times)))


KERNELS = (
    Kernel(),
    Kernel(times=448.0, tile=32),
    Kernel(times=1.0),
    Kernel(summed=True),
    Kernel(weights=BF16, times=1.0),
    Kernel(weights=E5M2, times=4096.0),
    Kernel(output=Format("float16")),
)


def on_matrix_units(q: Array, k: Array, v: Array, bits: int = 13, tile: int = 128, at_once: int = 32) -> Array:
    """Attention of one head whose products of weights and values are summed as Hopper's matrix units do in FP8: so many
    at once with what they add to, each cut off at 2⁻ᵇⁱᵗˢ of the power of 2 below the largest."""
    m, total = np.full((len(q), 1), -np.inf), np.zeros((len(q), 1))
    out = np.zeros((len(q), v.shape[1]))
    for at in range(0, len(k), tile):
        s = q @ k[at : at + tile].T / sqrt(q.shape[1])
        new = np.maximum(m, s.max(axis=1, keepdims=True))
        e, kept = (np.exp(s - new) * 256).astype(np.float32), np.exp(m - new)
        p, total, out = E4M3.rounded(e), total * kept + e.sum(axis=1, keepdims=True), out * kept
        for some in range(0, tile, at_once):
            rows = v[at + some : at + some + at_once]
            products = p[:, some : some + at_once, None] * rows
            top = np.maximum(np.abs(products).max(axis=1), np.abs(out))
            unit = np.exp2(np.floor(np.log2(np.maximum(top, 2.0**-100))) - bits)
            out = (np.trunc(out / unit) + np.trunc(products / unit[:, None]).sum(axis=1)) * unit
        m = new
    return BF16.rounded(out / total)
