"""The letters of the catalogue's statements, and the functions that they are about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.masks import forbid
from symattn.attention.scores import dot_scores, scale_by_root
from symattn.attention.softmax import softmax as soft
from symattn.attention.spec import Attention
from symattn.proof.relations.glossary import Glossary
from symattn.theorems.sums import equal_places

ATTENTION = Attention()  # softmax(Q Kᵀ / √d_k) V, of which most statements speak
CAUSAL = Attention(causal=True, fully_masked="nan")

QKV = {"q": "n_q d_k", "k": "n_k d_k", "v": "n_k d_v"}
ATTENDING = Glossary(
    given={"Q": "n_q d_k", "K": "n_k d_k", "V": "n_k d_v", "V′": "n_k d_v", "G": "n_q d_v"},
    index={"i": "n_q", "j": "n_k", "l": "n_k", "c": "d_v"},
    sharp="attained",
).where("S = Q Kᵀ/√d_k", "P = softmax(S)", "O = P V")
"""What the letters of attention stand for in most statements."""


def eye(sort: str) -> Callable[[Any], Any]:
    """Return the meaning of I: the identity matrix of a size."""

    return lambda reader: identity(reader, reader.length(sort))


def identity(reader: Any, length: Any) -> Any:
    """The identity matrix."""
    same = equal_places(reader.xp.arange(length))
    return reader.xp.where(same, reader.xp.asarray(1), reader.xp.asarray(0))


def rows(*arrays: Any) -> Any:
    """Blocks of rows one above the other, as arrays."""
    return arrays[0].__array_namespace__().concat(list(arrays), axis=-2)


def textbook(q: Array, k: Array, v: Array, allowed: Array | None = None) -> Any:
    """Σ_j e^{s_ij} v_j / Σ_j e^{s_ij} over the allowed keys, with S = Q Kᵀ / √d_k: no maximum is subtracted.

    A statement about how arrays are laid out compares attention with this, so that its sides are written apart.
    """
    s = scaled_scores(q, k)
    return soft(s if allowed is None else forbid(s, allowed), stabilised=False) @ v


def scaled_scores(q: Array, k: Array) -> Array:
    """Q Kᵀ / √d_k."""
    return scale_by_root(dot_scores(q, k), q)


def weights(q: Array, k: Array) -> Any:
    """softmax(Q Kᵀ / √d_k), as an array."""
    return ATTENTION.trace(q, k, k)["weights"]
