"""Weights that look at one score each: sigmoid and ReLU in the place of softmax. Rows need not sum to one."""

from __future__ import annotations

from fractions import Fraction

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of


def sigmoid_weights(s: Array, bias: Array | int | None = None, stabilised: bool = True) -> Array:
    """a_ij = σ(s_ij + b) = e^x / (1 + e^x) with x = s_ij + b; b = −log n_k if none is given.

    A forbidden score gives 0. If ``stabilised``, both powers are divided by e^{max(x, 0)} and none overflows.
    Shapes: s (…, n_q, n_k), b what broadcasts to it → (…, n_q, n_k).
    Source: Ramapuram et al., Theory, Analysis, and Best Practices for Sigmoid Self-Attention (2024), equation 3; the
    value of b: their experiments, §5.
    """
    xp = namespace_of(s)
    x = s + (-xp.log(xp.asarray(s.shape[-1], dtype=s.dtype)) if bias is None else bias)
    zero = xp.asarray(0, dtype=s.dtype)
    m = xp.maximum(x, zero) if stabilised else zero
    e = xp.exp(x - m)
    return e / (xp.exp(zero - m) + e)


def relu_weights(s: Array, power: int | float | Fraction = 1) -> Array:
    """a_ij = max(s_ij, 0) / n_k^α for the power α; a forbidden score gives 0.

    The order of scores decides, so kinds that have none refuse: ``maximum`` may be any function there.
    Shapes: (…, n_k) → (…, n_k). Source: Wortsman et al., Replacing softmax with ReLU in Vision Transformers (2023), §3.
    """
    xp = namespace_of(s)
    return xp.where(s <= 0, 0, s) / xp.pow(xp.asarray(s.shape[-1], dtype=s.dtype), power)
