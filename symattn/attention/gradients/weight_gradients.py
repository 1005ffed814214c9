"""Gradients of rows of scores from weights saved by the forward pass."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.softmax import nonempty


def logarithm_of(base: int | None, like: Array) -> Any:
    """log b, the factor of the derivative of b^x; 1 for the base e."""
    xp = namespace_of(like)
    return 1 if base is None else xp.log(xp.asarray(base, dtype=like.dtype))


def sigmoid_gradient(a: Array, g: Array) -> Array:
    """dS = A ⊙ (1 − A) ⊙ dA, from the weights. Source: Ramapuram et al. (2024), of equation 3."""
    return a * (1 - a) * g


def relu_gradient(s: Array, g: Array, divided: bool = True) -> Array:
    """dS = dA / n_k where s > 0, or dA if not ``divided``, else 0.

    At s = 0 it is 0, one of many subgradients, the one that frameworks choose.

    Shapes: (…, n_q, n_k). Source: Wortsman et al., Replacing softmax with ReLU in Vision Transformers (2023), §3.
    """
    xp = namespace_of(s)
    positive = xp.where(s > 0, g, 0)
    return positive / xp.asarray(s.shape[-1], dtype=s.dtype) if divided else positive


def sparsemax_gradient(p: Array, g: Array) -> Array:
    """dS = dP − mean of dP over the support, on the support p > 0; elsewhere 0. From the weights.

    Where a score equals the threshold, this is one of many subgradients. Shapes: (…, n_q, n_k).
    Source: Martins, Astudillo, From Softmax to Sparsemax (2016), §2.5.
    """
    xp = namespace_of(p)
    support = xp.astype(p > 0, p.dtype)
    # An empty row has no support; its gradient is 0 in any case.
    number = nonempty(xp.sum(support, axis=-1, keepdims=True), "zeros")
    return support * (g - xp.sum(support * g, axis=-1, keepdims=True) / number)


def entmax15_gradient(p: Array, g: Array) -> Array:
    """dS = r ⊙ (dP − Σ r dP / Σ r) with r = √p, from the weights of 1.5-entmax. Shapes: (…, n_q, n_k).

    Source: Peters, Niculae, Martins, Sparse Sequence-to-Sequence Models (2019): r_j = p_j^{2 − α} for α = 1.5.
    """
    xp = namespace_of(p)
    r = xp.sqrt(p)
    total = nonempty(xp.sum(r, axis=-1, keepdims=True), "zeros")
    return r * (g - xp.sum(r * g, axis=-1, keepdims=True) / total)
