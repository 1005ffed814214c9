"""Caches of keys and values: which token each slot holds, how new tokens are written, and which slots a query may see.

A cache is a named tuple, and ``append`` returns a new one. There are four kinds: ``Growing`` gets longer; ``Static``
has room for N tokens, the first ``length`` of which are filled; ``Sliding`` is a ring of slots for the last tokens, in
which new ones overwrite old ones; ``Paged`` stores tokens in pages, listed by a table of integers. ``attend`` reads all
of them by one rule: each slot holds the token of some position, or none, and masks depend on positions.

    cache = append(cache, k, v)                                   # the new tokens' keys and values
    output = attend(Attention(mask="boolean"), q, held(cache))    # the queries of the same tokens

A growing cache needs no slots: ``Attention(causal=True)(q, cache.k, cache.v)`` gives the same, as the causal mask is
aligned at the bottom right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.masks import Places, causal
from symattn.document.errors import InputError


class Growing(NamedTuple):
    """Keys and values of all tokens so far. Shapes: k (…, n, d_k), v (…, n, d_v).

    Source: Shazeer, Fast Transformer Decoding (2019), on incremental inference.
    """

    k: Any
    v: Any


class Static(NamedTuple):
    """Room for N tokens; the first ``length`` slots are filled, the contents of others ignored. Shapes: (…, N, d)."""

    k: Array
    v: Array
    length: Any


class Sliding(NamedTuple):
    """A ring of slots: the first ``kept`` never lose their tokens, the others hold the most recent tokens.

    Slot t ≥ kept holds the last position p < length with p ≡ t modulo N − kept. Shapes: k (…, N, d_k), v (…, N, d_v).
    Source: Jiang et al., Mistral 7B (2023), §2, rolling buffer cache; kept tokens: Xiao et al., Efficient Streaming
    Language Models with Attention Sinks (2024), §3.2.
    """

    k: Array
    v: Array
    length: int
    kept: int = 0


class Paged(NamedTuple):
    """Pages of tokens: token t of sequence b is in slot t mod s of the page ``table[b, ⌊t / s⌋]``.

    Sequences of different lengths share the pages, and may share tokens. Entries of the table beyond a sequence's
    length mean nothing. Shapes: k (p, …, s, d_k), v (p, …, s, d_v) with p pages of s slots, table (b, m), lengths (b,),
    both whole numbers. Source: Kwon et al., Efficient Memory Management for Large Language Model Serving with
    PagedAttention (SOSP 2023), §4.1 and §4.3.
    """

    k: Array
    v: Array
    table: Array
    lengths: Array


Cache = Growing | Static | Sliding | Paged


class Held(NamedTuple):
    """The slots of a cache: keys and values, the position in each slot, whether it is filled, and the number of tokens.

    Shapes: k (…, N, d_k), v (…, N, d_v); positions and filled (N,) or, if sequences differ in length, (b, N); length a
    number or (b,).
    """

    k: Any
    v: Any
    positions: Any
    filled: Any
    length: Any


def append(cache: Any, k: Array, v: Array) -> Any:
    """Return the cache with n ≥ 1 more tokens. Shapes: k (…, n, d_k), v (…, n, d_v). Raises InputError if it is full.

    >>> import numpy as np
    >>> one = np.ones((1, 1))
    >>> append(Static(np.zeros((3, 1)), np.zeros((3, 1)), 1), one, 2 * one).v[:, 0].tolist()
    [0.0, 2.0, 0.0]
    >>> cache = Sliding(np.zeros((2, 1)), np.zeros((2, 1)), 0)
    >>> for token in range(3):
    ...     cache = append(cache, one, token * one)
    >>> cache.v[:, 0].tolist()
    [2.0, 1.0]
    """
    if isinstance(cache, Paged):
        return append_pages(cache, k, v)
    if isinstance(cache, Sliding):
        return _append_sliding(cache, k, v)
    if isinstance(cache, Static):
        return _append_static(cache, k, v)
    return Growing(
        *[
            namespace_of(old).concat([old, new], axis=-2)
            for old, new in zip(cache, (k, v), strict=True)
        ]
    )


def _append_static(cache: Static, k: Array, v: Array) -> Static:
    length, room = cache.length + k.shape[-2], cache.k.shape[-2]
    if length > room:
        raise InputError(
            f"{length} tokens in a cache with room for {room}; hint: use a larger cache, or Sliding"
        )

    def written(old: Array, new: Array) -> Array:
        # The slots after the new tokens keep what they contain, which is ignored.
        parts = [old[..., : cache.length, :], new, old[..., length:, :]]
        return namespace_of(old).concat(parts, axis=-2)

    return Static(written(cache.k, k), written(cache.v, v), length)


def ring_positions(slots: int, length: int, kept: int = 0) -> list[int]:
    """Return the position in each slot of a ring after ``length`` tokens, −1 for empty slots.

    >>> ring_positions(4, 6)
    [4, 5, 2, 3]
    >>> ring_positions(4, 6, kept=1)
    [0, 4, 5, 3]
    """
    fixed = [t if t < length else -1 for t in range(kept)]
    # The last position before ``length`` that belongs to the slot: t modulo the slots that turn.
    last = [length - 1 - (length - 1 - t) % (slots - kept) for t in range(kept, slots)]
    # A position below the slot's own number means that the ring has not reached the slot.
    return fixed + [p if p >= t else -1 for t, p in enumerate(last, kept)]


def _append_sliding(cache: Sliding, k: Array, v: Array) -> Sliding:
    slots, length = cache.k.shape[-2], cache.length + k.shape[-2]
    if slots <= cache.kept:
        raise InputError(
            f"a ring of {slots} slots of which {cache.kept} are kept has none for new tokens"
        )
    xp = namespace_of(cache.k)
    # A position from the old length on is that of a new token; of several for a slot the last wins.
    sources = [p - cache.length for p in ring_positions(slots, length, cache.kept)]
    fresh = xp.asarray([source >= 0 for source in sources], dtype=xp.bool)[:, None]
    # Slots without a new token take row 0, which ``where`` does not choose.
    index = xp.asarray([max(source, 0) for source in sources], dtype=xp.int64)

    def written(old: Array, new: Array) -> Array:
        return xp.where(fresh, xp.take(new, index, axis=-2), old)

    return Sliding(written(cache.k, k), written(cache.v, v), length, cache.kept)


def held(cache: Any) -> Held:
    """Return the slots of a cache, with their keys, values and positions."""
    if isinstance(cache, Paged):
        k, v = gather(cache)
        positions = namespace_of(k).arange(k.shape[-2])[None, :]
        return Held(k, v, positions, positions < cache.lengths[:, None], cache.lengths)
    xp, slots = namespace_of(cache.k), cache.k.shape[-2]
    if isinstance(cache, Sliding):
        positions = xp.asarray(ring_positions(slots, cache.length, cache.kept), dtype=xp.int64)
        return Held(cache.k, cache.v, positions, positions >= 0, cache.length)
    length = cache.length if isinstance(cache, Static) else slots
    positions = xp.arange(slots)
    return Held(cache.k, cache.v, positions, positions <= length - 1, length)


def beside(cache: Cache, k: Array, v: Array) -> Held:
    """Return the slots of a cache followed by new tokens that are not written yet.

    In a ring of N slots a chunk of n tokens overwrites keys that its first queries see, unless N is at least the window
    plus n − 1. So a chunk attends to the ring and to itself before it is appended. Shapes: k (…, n, d_k), v
    (…, n, d_v). Source: Jiang et al., Mistral 7B (2023), §2, pre-fill and chunking.
    """
    old, xp = held(cache), namespace_of(k)
    there = xp.arange(k.shape[-2])
    new = (old.length[:, None] if isinstance(cache, Paged) else old.length) + there
    # All True, in the shape of the positions.
    filled = xp.broadcast_to(there >= 0, new.shape)
    positions = namespace_of(old.positions).broadcast_to(
        old.positions, (*new.shape[:-1], old.positions.shape[-1])
    )
    return Held(
        xp.concat([old.k, k], axis=-2),
        xp.concat([old.v, v], axis=-2),
        xp.concat([positions, new], axis=-1),
        xp.concat([old.filled, filled], axis=-1),
        old.length + k.shape[-2],
    )


def places(slots: Held, n: object) -> Places:
    """Return the positions of the last n tokens as queries, and of all slots as keys: (…, n, 1) and (…, 1, N)."""
    last = namespace_of(slots.k).arange(n)
    first = slots.length - n
    # Sequences of different lengths have a row of positions each.
    start = first if slots.positions.ndim == 1 else first[:, None]
    return Places((last + start)[..., :, None], slots.positions[..., None, :])


def allowed(slots: Held, n: object, mask: Callable[[Places], object] = causal) -> Any:
    """Return which slots the last n tokens may see, filled ones that the mask allows: booleans (…, n, N).

    ``mask`` is one of ``masks``, such as ``causal`` or ``lambda at: window(at, 4)``.
    """
    return slots.filled[..., None, :] & mask(places(slots, n))


def attend(
    attention: Callable[..., object],
    q: Array,
    slots: Held,
    mask: Callable[[Places], object] = causal,
    **inputs: object,
) -> Any:
    """Return the attention of the last n tokens over the slots of a cache, with a mask by position.

    ``attention`` is an ``Attention`` with ``mask="boolean"``; its other inputs, such as sinks, are given by name.
    Shapes: q (…, n, d_k) → (…, n, d_v). Raises InputError for fields that depend on positions themselves, as they would
    take slots for positions.
    """
    # Slots are no positions: a ring would rotate tokens by their slots.
    if getattr(attention, "position", None) is not None:
        raise InputError(
            "positions would be those of slots; hint: rotate queries and keys before they are cached"
        )
    if getattr(attention, "temperature", None) is not None:
        raise InputError(
            "places of temperatures would be those of slots; hint: multiply the queries before, without temperature"
        )
    for field in ("causal", "window", "block", "prefix", "documents"):
        if getattr(attention, field, None):
            raise InputError(
                f"{field} would refer to slots; hint: Attention(mask='boolean'), and give attend the mask"
            )
    return attention(q, slots.k, slots.v, mask=allowed(slots, q.shape[-2], mask), **inputs)


def prefill(
    attention: Callable[..., object], q: Array, k: Array, v: Array, bounds: Sequence[object]
) -> Array:
    """Return causal attention over a prompt, by chunks of queries between consecutive ``bounds`` (0, …, n).

    Each chunk sees the keys up to its own end, as if the earlier ones came from a cache; ``attention`` aligns its mask
    at the bottom right. Shapes: q, k (…, n, d_k), v (…, n, d_v) → (…, n, d_v). Source: Agrawal et al., SARATHI:
    Efficient LLM Inference by Piggybacking Decodes with Chunked Prefills (2023).
    """
    chunks = [
        attention(q[..., lo:hi, :], k[..., :hi, :], v[..., :hi, :]) for lo, hi in pairwise(bounds)
    ]
    return namespace_of(v).concat(chunks, axis=-2)


# -- paged caches: a table of integers says which page holds which tokens ----------------------------------------------
def gather(cache: Paged) -> tuple[Array, Array]:
    """Return the keys and values of each sequence in order: (b, …, m s, d_k) and (b, …, m s, d_v)."""
    return _in_order(cache.k, cache.table), _in_order(cache.v, cache.table)


def _in_order(pages: Array, table: Array) -> Array:
    """Concatenate the pages in the table. Shapes: pages (p, …, s, d), table (b, m) → (b, …, m s, d)."""
    xp = namespace_of(pages)
    # Pages are taken one after the other, then cut back into sequences.
    rows = xp.take(pages, namespace_of(table).reshape(table, (-1,)), axis=0)
    rows = xp.moveaxis(xp.reshape(rows, (*table.shape, *pages.shape[1:])), 1, -3)
    *front, m, s, d = rows.shape
    return xp.reshape(rows, (*front, m * s, d))


def append_pages(cache: Paged, k: Array, v: Array) -> Paged:
    """Return the cache with n more tokens of each sequence. Shapes: k (b, …, n, d_k), v (b, …, n, d_v).

    Raises InputError if the table has no page for a token, or if a slot already holds a token of some sequence: a
    shared page must be copied before it is written.
    """
    n, size = k.shape[-2], cache.k.shape[-2]
    slots = _slots_of(cache, n)
    _check_free(cache, slots)
    xp = namespace_of(slots)
    every = xp.arange(cache.k.shape[0] * size)
    # Each slot against each new token: no assignment, so that all kinds can run it.
    hits = every[:, None] == xp.reshape(slots, (1, -1))
    fresh, source = xp.any(hits, axis=1), xp.argmax(xp.astype(hits, xp.int64), axis=1)

    def written(pages: Array, new: object) -> Array:
        own, axes = namespace_of(pages), (1,) * (pages.ndim - 3)
        tokens = own.moveaxis(new, -2, 1)  # (b, n, …, d)
        tokens = own.take(own.reshape(tokens, (-1, *tokens.shape[2:])), source, axis=0)
        tokens = own.moveaxis(own.reshape(tokens, (-1, size, *tokens.shape[1:])), 1, -2)
        return own.where(xp.reshape(fresh, (-1, *axes, size, 1)), tokens, pages)

    return Paged(written(cache.k, k), written(cache.v, v), cache.table, cache.lengths + n)


def _slots_of(cache: Paged, n: int) -> Any:
    """Return the slots of the next n tokens of each sequence, numbered through all pages: (b, n)."""
    xp: Any = namespace_of(cache.table)
    size = cache.k.shape[-2]
    positions = cache.lengths[:, None] + xp.arange(n)[None, :]
    entries = positions // size
    if bool(xp.any(entries >= cache.table.shape[-1])):
        room = cache.table.shape[-1] * size
        raise InputError(
            f"a sequence of {int(xp.max(positions)) + 1} tokens in a table with room for {room}"
        )
    pages = xp.take_along_axis(cache.table, entries, axis=-1)
    if bool(xp.any((pages < 0) | (pages >= cache.k.shape[0]))):
        raise InputError(
            f"the table names a page that is not there; there are {cache.k.shape[0]} pages, from 0 on"
        )
    return pages * size + positions % size


def _check_free(cache: Paged, slots: Array) -> None:
    xp: Any = namespace_of(slots)
    size = cache.k.shape[-2]
    positions = xp.arange(cache.table.shape[-1] * size)[None, :]
    # The slots of all tokens that sequences have, numbered through all pages.
    taken = xp.take_along_axis(cache.table, positions // size, axis=-1) * size + positions % size
    # Entries beyond a length mean nothing; −1 equals no slot.
    taken = xp.where(positions < cache.lengths[:, None], taken, -1)
    new = xp.reshape(slots, (-1,))
    others = xp.reshape(new[:, None] == new[None, :], (-1,))
    # Each new slot equals itself once; more matches are two tokens for one slot.
    if int(xp.sum(xp.astype(others, xp.int64))) > prod(new.shape):
        raise InputError(
            "two sequences write to one slot of a page; hint: give each a page of its own"
        )
    if bool(xp.any(xp.reshape(taken, (-1, 1)) == new[None, :])):
        raise InputError(
            "a token would be written over one that a sequence has; hint: copy the page that they share"
        )
