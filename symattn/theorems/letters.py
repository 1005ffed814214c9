"""The letters of the catalogue's statements, and the functions in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.scores import dot_scores, scale_by_root
from symattn.attention.softmax import softmax
from symattn.attention.spec import Attention
from symattn.proof.relations.glossary import Glossary

ATTENTION = Attention()  # softmax(Q Kᵀ / √d_k) V, the subject of most statements
CAUSAL = Attention(causal=True, fully_masked="nan")

QKV = {"q": "n_q d_k", "k": "n_k d_k", "v": "n_k d_v"}
ATTENDING = Glossary(
    given={"Q": "n_q d_k", "K": "n_k d_k", "V": "n_k d_v", "V′": "n_k d_v", "G": "n_q d_v"},
    index={"i": "n_q", "j": "n_k", "l": "n_k", "c": "d_v"},
    sharp="attained",
).where("S = Q Kᵀ/√d_k", "P = softmax(S)", "O = P V")
"""The meanings of the letters of attention in most statements."""


def eye(sort: str) -> Callable[[Any], Any]:
    """Return the meaning of I: the identity matrix of a size."""

    return lambda reader: identity(reader, reader.length(sort))


def identity(reader: Any, length: Any) -> Any:
    """Return the identity matrix."""
    same = equal_places(reader.xp.arange(length))
    return reader.xp.where(same, reader.xp.asarray(1), reader.xp.asarray(0))


def rows(*arrays: Any) -> Any:
    """Return blocks of rows stacked vertically, as arrays."""
    return arrays[0].__array_namespace__().concat(list(arrays), axis=-2)


def scaled_scores(q: Array, k: Array) -> Array:
    """Q Kᵀ / √d_k."""
    return scale_by_root(dot_scores(q, k), q)


def weights(s: Array) -> Any:
    """softmax(s), without subtracting the maximum."""
    return softmax(s, stabilised=False)


def add_up(x: Array) -> Array:
    """Σ_j x_ij, as a column."""
    return x.__array_namespace__().sum(x, axis=-1, keepdims=True)


def exp(x: Array) -> Array:
    """e^x."""
    return x.__array_namespace__().exp(x)


def total(x: Array) -> Array:
    """Return the sum of all entries."""
    return x.__array_namespace__().sum(x)


def side_by_side(*arrays: Any) -> Any:
    """Return blocks of columns side by side."""
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
