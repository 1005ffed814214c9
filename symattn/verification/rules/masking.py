"""Masks by place, changed by rule: an edge is left out, moved, or counted from the other corner; blocks likewise.

The part of a mask that goes by the places of queries and keys has at most four numbers: how far a query sees behind
and ahead of its place, how long the prefix is that all see, and how long blocks are. A mistake is another number, or
another corner from which the places are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from symattn.attention.spec import Attention
from symattn.bounds.mistake import Mistake, in_fields, in_steps, shape
from symattn.bounds.reference import Values
from symattn.verification.rules.forbidding import allowed, forbid, some_keys, with_masks


@dataclass(frozen=True)
class VisiblePlaces:
    """Which keys a query may see by place: ``before`` and ``after`` its own, in a prefix, in its block; None: no limit.

    ``beyond`` counts keys after its block that it sees; ``dealt`` puts places into blocks in turn, and ``of_queries``
    takes the prefix for queries, which see all keys. ``corner`` names the numbers that are counted from the other
    corner, ``turned`` puts before and after the other way, ``opposite`` counts queries from n_q − n_k in place of
    n_k − n_q.
    """

    before: int | None = None
    after: int | None = None
    prefix: int | None = None
    block: int | None = None
    beyond: int = 0
    dealt: bool = False
    of_queries: bool = False
    corner: frozenset[str] = frozenset()
    turned: bool = False
    opposite: bool = False

    def open(self, n_q: int, n_k: int, top_left: bool) -> Any:
        """Booleans (n_q, n_k)."""
        j = np.arange(n_k)[None, :]

        def i(name: str) -> Any:
            offset = 0 if top_left != (name in self.corner) else n_k - n_q
            return np.arange(n_q)[:, None] + (-offset if self.opposite else offset)

        values = np.ones((n_q, n_k), dtype=bool)
        if self.before is not None:
            values &= i("before") <= j + self.before
        if self.after is not None:
            seen = j >= i("after") - self.after if self.turned else j <= i("after") + self.after
            of = i("prefix") if self.of_queries else j
            values &= seen if self.prefix is None else seen | (of < self.prefix)
        if self.block is not None and self.dealt:
            values &= i("block") % self.block == j % self.block
        elif self.block is not None:
            first = i("block") // self.block * self.block
            values &= (first <= j) & (j < first + self.block + self.beyond)
        return values


def mistakes(spec: Attention) -> Iterator[Mistake]:
    """The mistakes in the numbers that a specification has, and masks that nobody asked for."""
    if not spec.masks_anything:  # no step masks, so that the mistake is another specification
        yield in_fields("mask", _UNASKED, causal=True)
        if spec.alignment == "bottom-right":
            yield in_fields("mask", _UNASKED_CORNER, causal=True, alignment="top-left")
        return
    right = _right(spec)
    for words, wrong in wrong_places(spec):
        yield in_steps("mask", words, masked=partial(masked, right, wrong), weights=some_keys)


def wrong_places(spec: Attention) -> Iterator[tuple[str, VisiblePlaces]]:
    """Yield wrong masks in words, and as the places that are seen then."""
    right = _right(spec)
    for words, changes in (*_ahead(spec, right), *_behind(spec, right), *_window(spec, right), *_rest(right)):
        yield words, replace(right, **changes)


def masked(right: VisiblePlaces, wrong: VisiblePlaces, spec: Attention, values: Values) -> Any:
    """The scores under another mask by places, with the masks that are given as they are."""
    n_q, n_k = shape(values)[-2:]
    there, top_left = allowed(spec, values), spec.alignment == "top-left"
    bare = with_masks(spec, causal=False, prefix=None, window=None, block=None)
    given = allowed(bare, values) if bare.masks_anything else np.ones_like(there)
    if not np.array_equal(there, given & right.open(n_q, n_k, top_left)):
        raise KeyError("the mask does not depend on positions")
    return forbid(spec, values, given & wrong.open(n_q, n_k, top_left))


def _right(spec: Attention) -> VisiblePlaces:
    before, after = spec.sides
    return VisiblePlaces(before, 0 if spec.causal else after, spec.prefix, spec.block)


Changes = Iterator[tuple[str, dict[str, Any]]]
_OTHER = "counted from the other corner"
_UNASKED = "a causal mask is applied that was not requested"
_UNASKED_CORNER = "a causal mask from the first corner is applied that was not requested"


def _ahead(spec: Attention, right: VisiblePlaces) -> Changes:
    """The edge after which nothing is seen: a causal mask, or a window's."""
    if spec.causal:
        for by in (1, -1, 2, -2, 3, -3):
            yield _shifted(by), {"after": by}
        yield "the causal mask starts at the other corner", {"corner": frozenset(["after"])}
        if spec.alignment == "bottom-right":
            words = "the causal mask starts at the wrong place: n_q − n_k is added to a query's place, not n_k − n_q"
            yield words, {"opposite": True}
        yield "the causal mask is transposed: a query sees itself and later keys", {"turned": True}
        if right.before is not None:
            yield "the causal mask is left out with the window: all later keys are seen", {"after": None}
        elif any((right.prefix, right.block, spec.padding, spec.documents, spec.mask)):
            yield "the causal mask is left out", {"after": None, "prefix": None}
    elif right.after is not None:
        yield "the window is one key too long, after the query", {"after": right.after + 1}
        yield "the window is one key too short, after the query", {"after": right.after - 1}
        yield "the window is open after the query: no later key is hidden", {"after": None}
        yield f"the window's right edge is {_OTHER}, its left edge is not", {"corner": frozenset(["after"])}
        if right.after > 0:
            yield "the window is also causal: a query sees no later key", {"after": 0}
    else:
        yield _UNASKED, {"after": 0}
        yield _UNASKED_CORNER, {"after": 0, "corner": frozenset(["after"])}


def _shifted(by: int) -> str:
    if abs(by) > 1:
        return f"the causal mask is off by {abs(by)}: a query sees {abs(by)} keys too {'many' if by > 0 else 'few'}"
    seen = "also sees the next key" if by > 0 else "does not see its own key"
    return f"the causal mask is off by one: a query {seen}"


def _behind(spec: Attention, right: VisiblePlaces) -> Changes:
    if right.before is None:
        return
    yield "the window is one key too long, before the query", {"before": right.before + 1}
    yield "the window is one key too short, before the query", {"before": right.before - 1}
    if right.after is not None:
        yield f"the window's left edge is {_OTHER}, its right edge is not", {"corner": frozenset(["before"])}
        if not spec.causal:
            yield "the window is open before the query: only keys after it are hidden", {"before": None}


def _window(spec: Attention, right: VisiblePlaces) -> Changes:
    """Both of its edges at once."""
    if spec.window is None:
        return
    yield "the window is ignored", {"before": None, "after": 0 if spec.causal else None}
    if right.before is not None and right.block is None:
        n = right.before + 1
        yield f"windows are blocks: a query sees the {n} keys of its own block", {"before": None, "block": n}
    if right.before is None or right.after is None:
        return
    yield f"the window is {_OTHER}", {"corner": frozenset(["before", "after"])}
    if right.after == 0:
        yield "the window looks ahead as far as back: the causal mask is left out", {"after": right.before}
    if not spec.causal:
        yield "the window is one key too long on both sides", {"before": right.before + 1, "after": right.after + 1}
        yield "the window is one key too short on both sides", {"before": right.before - 1, "after": right.after - 1}
        if right.before != right.after:
            yield "the two sides of the window are exchanged", {"before": right.after, "after": right.before}


def _rest(right: VisiblePlaces) -> Changes:
    if right.prefix is not None:
        yield "the prefix is ignored", {"prefix": None}
        yield "the prefix is one key too long", {"prefix": right.prefix + 1}
        yield "the prefix is one key too short", {"prefix": right.prefix - 1}
        words = "the prefix is applied to queries, not to keys: its queries see all keys, later ones none ahead"
        yield words, {"of_queries": True}
    if right.block is not None:
        yield "blocks are ignored", {"block": None}
        words = (
            f"blocks are windows: a query sees the last {right.block} keys up to its own, not those of its own block"
        )
        yield words, {"block": None, "before": right.block - 1, "after": 0}
        yield "blocks are one key too long", {"block": right.block + 1}
        yield "blocks are one key too long: a query sees the first key after its own block", {"beyond": 1}
        yield "blocks are one key too short: a query does not see the last key of its own block", {"beyond": -1}
        yield f"blocks are {_OTHER}", {"corner": frozenset(["block"])}
        if right.block > 1:
            yield "blocks are one key too short", {"block": right.block - 1}
            words = "places are dealt to blocks in turn: a query sees every so many keys, not those of its own block"
            yield words, {"dealt": True}
