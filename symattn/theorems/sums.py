"""Small functions of arrays that statements and certificates are written with."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.attention.softmax import softmax


def weights(s: Array) -> Any:
    """softmax(s), no maximum subtracted."""
    return softmax(s, stabilised=False)


def add_up(x: Array) -> Array:
    """Σ_j x_ij, as a column."""
    return x.__array_namespace__().sum(x, axis=-1, keepdims=True)


def exp(x: Array) -> Array:
    """e^x."""
    return x.__array_namespace__().exp(x)


def total(x: Array) -> Array:
    """The sum of all entries."""
    return x.__array_namespace__().sum(x)


def beside(*arrays: Any) -> Any:
    """Blocks of columns one beside the other."""
    return arrays[0].__array_namespace__().concat(list(arrays), axis=-1)


def equal_places(places: Any) -> Any:
    """[j = l]."""
    return places[:, None] == places[None, :]


def identity_like(x: Array) -> Array:
    """I, as large as a square matrix is."""
    xp = x.__array_namespace__()
    return xp.astype(equal_places(xp.arange(x.shape[-1])), x.dtype)


def squares(x: Array) -> Array:
    """‖x_i‖², as a column."""
    return add_up(x * x)


def greatest(x: Array, axis: int | None = None) -> Array:
    """max x, with axes of length one."""
    return x.__array_namespace__().max(x, axis=axis, keepdims=True)
