"""Masks: which keys a query may attend to. A boolean mask is True where it may; masks are combined by ``&``.

Masks by position take scores, or the positions of queries and keys, so that they apply within packed documents, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import and_
from typing import Any, NamedTuple

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.document.errors import InputError


class Places(NamedTuple):
    """The positions of queries i and keys j in the sequence of keys: (…, n_q, 1) and (…, 1, n_k)."""

    i: Array
    j: Array


def places(s: Array | Places, alignment: str = "bottom-right") -> Places:
    """Return the positions of queries and keys of scores S: j for key j, i + o for query i.

    ``bottom-right``: o = n_k − n_q, the last query has the position of the last key (a cache of n_k − n_q keys);
    ``top-left``: o = 0. Shapes: s (…, n_q, n_k) → (n_q, 1), (1, n_k). ``Places`` are returned as they are.
    """
    if isinstance(s, Places):
        return s
    xp = namespace_of(s)
    n_q, n_k = s.shape[-2], s.shape[-1]
    i, j = xp.arange(n_q)[:, None], xp.arange(n_k)[None, :]
    return Places(i if alignment == "top-left" else i + (n_k - n_q), j)


def causal(s: Array | Places, alignment: str = "bottom-right") -> Array:
    """Return the causal mask of scores S: key j for query i iff j ≤ i + o, see ``places``.

    With ``bottom-right`` the last query sees every key, with ``top-left`` (torch's ``is_causal``) the first query sees
    only the first key. Shapes: s (…, n_q, n_k) → booleans (n_q, n_k).
    """
    i, j = places(s, alignment)
    return j <= i


def sides(
    s: Array | Places,
    left: object = None,
    right: int | None = None,
    alignment: str = "bottom-right",
) -> Any:
    """The window from ``left`` keys before the query to ``right`` keys after it: i + o − left ≤ j ≤ i + o + right.

    It contains the query's own position; a side that is None is open. Shapes: s (…, n_q, n_k) → booleans (n_q, n_k).
    Source: Beltagy, Peters, Cohan, Longformer (2020), §3.1, a window of w/2 on each side.
    """
    i, j = places(s, alignment)
    bounds = [i <= j + left] if left is not None else []
    bounds += [j <= i + right] if right is not None else []
    if not bounds:
        raise InputError(
            "a window that is open on both sides; hint: give left or right, or no window"
        )
    return reduce(and_, bounds)


def window(s: Array | Places, width: Any) -> Any:
    """The sliding window of w keys: key j for query i iff i + o − w < j ≤ i + o, o = n_k − n_q; w counts i itself.

    Shapes: s (…, n_q, n_k) → booleans (n_q, n_k). Source: Jiang et al., Mistral 7B (2023).
    """
    return sides(s, width - 1, 0)


def blocks(s: Array | Places, bounds: Iterable[object], alignment: str = "bottom-right") -> Any:
    """Local blocks: key j for query i iff no bound lies between their positions: (i + o < c) = (j < c) for every c in
    ``bounds``.

    Shapes: s (…, n_q, n_k) → booleans (n_q, n_k). Source: Liu et al., Generating Wikipedia by Summarizing Long
    Sequences (2018), "local attention"; joined with ``causal``, the "chunked" attention of Llama 4 (2025).
    """
    i, j = places(s, alignment)
    # Two positions are in one block iff they are on the same side of every bound.
    return reduce(and_, [(i < c) == (j < c) for c in bounds])


def block_bounds(s: Array | Places, size: int) -> range:
    """Return the bounds of blocks of ``size`` positions: 0, size, 2 size, … as far as queries or keys go.

    A query before the first key shares no block with a key.
    """
    i, j = places(s)
    # Positions end where the sequence with more tokens does, whichever the alignment.
    return range(0, max(int(i.shape[-2]), int(j.shape[-1])), size)


def prefix(s: Array | Places, length: Any, alignment: str = "bottom-right") -> Any:
    """Prefix-LM: key j for query i iff j < length, or j ≤ i + o.

    Shapes: s (…, n_q, n_k) → booleans (n_q, n_k). Source: Raffel et al., Exploring the Limits of Transfer Learning with
    a Unified Text-to-Text Transformer (2020), §3.2.1, "causal with prefix".
    """
    i, j = places(s, alignment)
    return ~((j > i) & (j >= length))  # only keys after both the query and the prefix are forbidden


def padding(keep: Array) -> Array:
    """Return the mask that hides padding from every query: booleans (…, n_k), True for real keys → (…, 1, n_k)."""
    # The axis of queries has length 1: padding is the same for all of them.
    return keep[..., None, :]


def real_keys(lengths: Array, n: int, side: str = "right") -> Array:
    """Return which of n keys are real if sequences of these lengths are padded on ``side``.

    Shapes: lengths (…), whole numbers → booleans (…, n), the argument of ``padding``.
    """
    j = namespace_of(lengths).arange(n)
    return j < lengths[..., None] if side == "right" else n - lengths[..., None] <= j


def for_heads(mask: Array, s: Array) -> Array:
    """Add an axis of heads to a mask (…, n_q, n_k) for scores (…, h, n_q, n_k), unless it has one."""
    # Two axes broadcast to heads as they are; a mask with as many axes as the scores has heads.
    return mask[..., None, :, :] if 2 < mask.ndim < s.ndim else mask


def for_every_head(x: Array) -> Array:
    """Add an axis of heads to (…, m, n), unless it has no batch axes."""
    return x[..., None, :, :] if x.ndim > 2 else x


def forbid(s: Array, allowed: Array) -> Array:
    """s_ij where ``allowed``, else −∞, which softmax turns into weight 0."""
    xp = namespace_of(s)
    return xp.where(allowed, s, -xp.inf)


def add_mask(s: Array, mask: Array) -> Array:
    """S + M for an additive mask M, whose −∞ forbid."""
    xp = namespace_of(s)
    # A wider mask would widen the scores.
    return s + xp.astype(mask, s.dtype)


# -- packed documents: several texts in one sequence, each attending only to itself ------------------------------------
def labels(bounds: Array, n: int) -> Array:
    """Return the document of each of n tokens, from the bounds 0 = c₀ ≤ c₁ ≤ … of documents (``cu_seqlens``).

    The label of token t is the number of bounds c₁, c₂, … up to t; tokens after the last bound are another document.
    Shapes: bounds (…, m + 1), whole numbers → (…, n).
    """
    xp = namespace_of(bounds)
    ended = bounds[..., None, 1:] <= xp.arange(n)[:, None]
    return xp.sum(xp.astype(ended, bounds.dtype), axis=-1)


def same_document(of_queries: Array, of_keys: Array) -> Any:
    """Key j for query i iff both belong to the same document.

    Shapes: labels (…, n_q) and (…, n_k) → booleans (…, n_q, n_k). Source: Krell et al., Efficient Sequence Packing
    without Cross-contamination (2021), §3.2.1.
    """
    return of_queries[..., :, None] == of_keys[..., None, :]


def document_places(of_queries: Array, of_keys: Array, alignment: str = "bottom-right") -> Places:
    """Return the positions of queries and keys within their own documents, for masks by position.

    A document's keys have the positions 0, 1, …, its queries o, 1 + o, …: ``top-left`` o = 0, ``bottom-right`` o is
    the number of its keys minus that of its queries, so that its last query has the position of its last key.
    Shapes: labels (…, n_q) and (…, n_k) → (…, n_q, 1), (…, 1, n_k).
    Source: Dao et al., flash-attention (2023), ``flash_attn_varlen_func`` with ``cu_seqlens_q`` and ``cu_seqlens_k``.
    """
    i, j = _count_earlier_in_document(of_queries), _count_earlier_in_document(of_keys)
    if alignment == "bottom-right":
        # The last query of each document gets the place of its last key.
        i = (
            i
            + _count_matching_tokens(same_document(of_queries, of_keys))
            - _count_matching_tokens(same_document(of_queries, of_queries))
        )
    return Places(i[..., :, None], j[..., None, :])


def _count_earlier_in_document(of_tokens: Array) -> Array:
    """Return the number of earlier tokens in each token's document."""
    t = namespace_of(of_tokens).arange(of_tokens.shape[-1])
    return _count_matching_tokens(same_document(of_tokens, of_tokens) & (t[None, :] < t[:, None]))


def _count_matching_tokens(result: Array) -> Array:
    xp = namespace_of(result)
    return xp.sum(xp.astype(result, xp.int64), axis=-1)
