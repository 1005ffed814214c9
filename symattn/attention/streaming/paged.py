"""A cache in pages: which page holds which tokens is said by a table of whole numbers."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.document.errors import InputError


class Paged(NamedTuple):
    """Pages of tokens: token t of sequence b is in slot t mod s of the page ``table[b, ⌊t / s⌋]``.

    Sequences of different lengths share the pages, and may share tokens. Entries of the table beyond a sequence's
    length mean nothing. Shapes: k (p, …, s, d_k), v (p, …, s, d_v) with p pages of s slots, table (b, m), lengths (b,),
    both whole numbers. Source: Kwon et al., Efficient Memory Management for Large Language Model Serving with
    PagedAttention (SOSP 2023), §4.1 and §4.3.
    """

    k: Any
    v: Any
    table: Any
    lengths: Any


def gather(cache: Paged) -> tuple[Any, Any]:
    """Keys and values of each sequence in order: (b, …, m s, d_k) and (b, …, m s, d_v)."""
    return _in_order(cache.k, cache.table), _in_order(cache.v, cache.table)


def _in_order(pages: Any, table: Array) -> Array:
    """The pages that the table names, side by side. Shapes: pages (p, …, s, d), table (b, m) → (b, …, m s, d)."""
    xp = namespace_of(pages)
    rows = xp.take(pages, namespace_of(table).reshape(table, (-1,)), axis=0)
    rows = xp.moveaxis(xp.reshape(rows, (*table.shape, *pages.shape[1:])), 1, -3)
    *front, m, s, d = rows.shape
    return xp.reshape(rows, (*front, m * s, d))


def append_pages(cache: Paged, k: Array, v: Array) -> Paged:
    """The cache with n more tokens of each sequence. Shapes: k (b, …, n, d_k), v (b, …, n, d_v).

    Raises InputError where the table has no page for a token, and where a slot holds a token of some sequence: pages
    that sequences share are copied before one writes.
    """
    n, size = k.shape[-2], cache.k.shape[-2]
    slots = _slots_of(cache, n)
    _check_free(cache, slots)
    xp = namespace_of(slots)
    every = xp.arange(cache.k.shape[0] * size)
    hits = every[:, None] == xp.reshape(slots, (1, -1))
    fresh, source = xp.any(hits, axis=1), xp.argmax(xp.astype(hits, xp.int64), axis=1)

    def written(pages: Any, new: object) -> Array:
        own, axes = namespace_of(pages), (1,) * (pages.ndim - 3)
        tokens = own.moveaxis(new, -2, 1)  # (b, n, …, d)
        tokens = own.take(own.reshape(tokens, (-1, *tokens.shape[2:])), source, axis=0)
        tokens = own.moveaxis(own.reshape(tokens, (-1, size, *tokens.shape[1:])), 1, -2)
        return own.where(xp.reshape(fresh, (-1, *axes, size, 1)), tokens, pages)

    return Paged(written(cache.k, k), written(cache.v, v), cache.table, cache.lengths + n)


def _slots_of(cache: Paged, n: int) -> Any:
    """The slots of the next n tokens of each sequence, counted through all pages: (b, n)."""
    xp: Any = namespace_of(cache.table)
    size = cache.k.shape[-2]
    positions = cache.lengths[:, None] + xp.arange(n)[None, :]
    entries = positions // size
    if bool(xp.any(entries >= cache.table.shape[-1])):
        room = cache.table.shape[-1] * size
        raise InputError(f"a sequence of {int(xp.max(positions)) + 1} tokens in a table with room for {room}")
    pages = xp.take_along_axis(cache.table, entries, axis=-1)
    if bool(xp.any((pages < 0) | (pages >= cache.k.shape[0]))):
        raise InputError(f"the table names a page that is not there; there are {cache.k.shape[0]} pages, from 0 on")
    return pages * size + positions % size


def _check_free(cache: Paged, slots: Any) -> None:
    xp: Any = namespace_of(slots)
    size = cache.k.shape[-2]
    positions = xp.arange(cache.table.shape[-1] * size)[None, :]
    taken = xp.take_along_axis(cache.table, positions // size, axis=-1) * size + positions % size
    taken = xp.where(positions < cache.lengths[:, None], taken, -1)
    new = xp.reshape(slots, (-1,))
    others = xp.reshape(new[:, None] == new[None, :], (-1,))
    if int(xp.sum(xp.astype(others, xp.int64))) > prod(new.shape):
        raise InputError("two sequences write to one slot of a page; hint: give each a page of its own")
    if bool(xp.any(xp.reshape(taken, (-1, 1)) == new[None, :])):
        raise InputError("a token would be written over one that a sequence has; hint: copy the page that they share")
