"""Small functions of arrays that statements and certificates are written with."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.softmax import softmax

HALF = Fraction(1, 2)


def weights(s: Array) -> Any:
    """softmax(s), no maximum subtracted."""
    return softmax(s, stabilised=False)


def add_up(x: Array) -> Array:
    """Σ_j x_ij, as a column."""
    return x.__array_namespace__().sum(x, axis=-1, keepdims=True)


def exp(x: Array) -> Array:
    """e^x."""
    return x.__array_namespace__().exp(x)


def tanh(x: Array) -> Any:
    """tanh x."""
    return x.__array_namespace__().tanh(x)


def total(x: Array) -> Array:
    """The sum of all entries."""
    return x.__array_namespace__().sum(x)


def beside(*arrays: Any) -> Any:
    """Blocks of columns one beside the other."""
    return arrays[0].__array_namespace__().concat(list(arrays), axis=-1)


def weight_beside(s: Any, others: Any) -> Any:
    """The weight of the one key with the score s beside those with other scores."""
    return weights(beside(s, others))[..., :1]


def equal_places(places: Any) -> Any:
    """[j = l]."""
    return places[:, None] == places[None, :]


def identity_like(x: Array) -> Array:
    """I, as large as a square matrix is."""
    xp = x.__array_namespace__()
    return xp.astype(equal_places(xp.arange(x.shape[-1])), x.dtype)


def log_sum_exp(s: Array) -> Array:
    """log Σ_j e^{s_ij}, as a column."""
    return s.__array_namespace__().log(add_up(exp(s)))


def squares(x: Array) -> Array:
    """‖x_i‖², as a column."""
    return add_up(x * x)


def outer(p: Array, x: Array, y: Array) -> Array:
    """Σ_j Σ_l p_j p_l (x_j − y_l)², as a column."""
    difference = x[..., :, None] - y[..., None, :]
    return add_up(add_up(p[..., :, None] * p[..., None, :] * difference * difference)[..., 0])


def others(m: Array, like: Array) -> Array:
    """[j ≠ l] as numbers."""
    xp = like.__array_namespace__()
    return xp.astype(xp.arange(m)[:, None] != xp.arange(m)[None, :], like.dtype)


def form(p: Array, x: Array) -> Array:
    """xᵀ (diag(p) − p pᵀ) x, as a column."""
    return add_up(p * x * x) - add_up(p * x) ** 2


def greatest(x: Array, axis: int | None = None) -> Array:
    """max x, with axes of length one."""
    return x.__array_namespace__().max(x, axis=axis, keepdims=True)
