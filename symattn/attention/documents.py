"""Packed documents: several texts in one sequence, each attending to itself alone.

A label for each token says which document it belongs to. Labels are plain whole numbers, equal within a document.
"""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.masks import Places


def labels(bounds: Any, n: Any) -> Array:
    """The document of each of n tokens, from the bounds 0 = c₀ ≤ c₁ ≤ … where documents begin (``cu_seqlens``).

    Token t has the label that counts the bounds c₁, c₂, … up to t; after the last bound that is a document of its own.
    Shapes: bounds (…, m + 1), whole numbers → (…, n).
    """
    xp = namespace_of(bounds)
    return xp.sum(xp.astype(bounds[..., None, 1:] <= xp.arange(n)[:, None], bounds.dtype), axis=-1)


def same_document(of_queries: Array, of_keys: Array) -> Any:
    """Key j for query i iff they are of one document.

    Shapes: labels (…, n_q) and (…, n_k) → booleans (…, n_q, n_k). Source: Krell et al., Efficient Sequence Packing
    without Cross-contamination (2021), §3.2.1.
    """
    return of_queries[..., :, None] == of_keys[..., None, :]


def document_places(of_queries: Any, of_keys: Any, alignment: str = "bottom-right") -> Places:
    """The places of queries and keys within their own documents, for masks that go by position.

    A document's keys have the places 0, 1, …, its queries 0 + o, 1 + o, …: ``top-left`` o = 0, ``bottom-right`` o is
    the number of its keys less the number of its queries, so that its last query stands where its last key does.
    Shapes: labels (…, n_q) and (…, n_k) → (…, n_q, 1), (…, 1, n_k).
    Source: Dao et al., flash-attention (2023), ``flash_attn_varlen_func`` with ``cu_seqlens_q`` and ``cu_seqlens_k``.
    """
    i, j = _places(of_queries), _places(of_keys)
    if alignment == "bottom-right":
        i = i + _count(same_document(of_queries, of_keys)) - _count(same_document(of_queries, of_queries))
    return Places(i[..., :, None], j[..., None, :])


def _places(of_tokens: Array) -> Array:
    """How many tokens of a token's document stand before it."""
    t = namespace_of(of_tokens).arange(of_tokens.shape[-1])
    return _count(same_document(of_tokens, of_tokens) & (t[None, :] < t[:, None]))


def _count(found: Array) -> Array:
    xp = namespace_of(found)
    return xp.sum(xp.astype(found, xp.int64), axis=-1)
