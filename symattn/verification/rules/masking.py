"""Masks by position, changed by rule: an edge is left out, moved, or aligned otherwise; also blocks.

The part of a mask that depends on the positions of queries and keys has at most four numbers: how far a query sees
backwards and ahead, the length of the prefix that all see, and the length of blocks. A mistake is another number, or
another corner from which positions are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from symattn.attention.spec import Attention
from symattn.bounds.mistake import At, Mistake, in_fields, in_steps
from symattn.verification.rules.forbidding import allowed, forbid, leaving_some_keys
from symattn.verification.rules.tiling import WIDTHS


@dataclass(frozen=True)
class VisiblePlaces:
    """Which keys a query may see by position: ``before`` and ``after`` its own, in a prefix, in its block; None: all.

    ``beyond`` counts keys after its block that it also sees; ``dealt`` assigns positions to blocks in turn, and
    ``of_queries`` applies the prefix to queries, which then see all keys. The edges before and after are rounded to
    tiles of ``tiles`` keys: a query sees the whole of a tile that it sees in part, or none of it if ``skipped``.
    A query has the place of the first query of its block of ``queries``, or of the last one if ``queries`` is negative.
    ``corner`` names the numbers that are counted from the other alignment, ``turned`` hides the keys before and shows
    those after, ``opposite`` counts queries from n_q − n_k instead of n_k − n_q, ``rounded`` from a multiple below
    that, or above if negative.
    """

    before: int | None = None
    after: int | None = None
    prefix: int | None = None
    block: int | None = None
    beyond: int = 0
    dealt: bool = False
    of_queries: bool = False
    tiles: tuple[int, int] = (1, 1)
    skipped: bool = False
    rounded: int = 1
    queries: int = 1
    corner: frozenset[str] = frozenset()
    turned: bool = False
    opposite: bool = False

    def open(self, n_q: int, n_k: int, top_left: bool) -> np.ndarray:
        """Return which keys each query sees, booleans (n_q, n_k)."""
        j = np.arange(n_k)[None, :]

        def i(name: str) -> np.ndarray:
            # Bottom-right alignment moves the edge by n_k − n_q, top-left by nothing.
            offset = (
                0
                if top_left != (name in self.corner)
                else (n_k - n_q) // self.rounded * self.rounded
            )
            return self._mask_rows_of_queries(n_q) + (-offset if self.opposite else offset)

        values, (first, last) = np.ones((n_q, n_k), dtype=bool), self.tiles
        # An edge in tiles compares numbers of tiles, not of keys.
        if self.before is not None:
            values &= (
                i("before") - self.before + (first - 1) * self.skipped
            ) // first <= j // first
        if self.after is not None:
            edge = (
                i("after")
                + (-self.after if self.turned else self.after)
                - (last - 1) * self.skipped
            )
            visible = j // last >= edge // last if self.turned else j // last <= edge // last
            of = i("prefix") if self.of_queries else j
            values &= visible if self.prefix is None else visible | (of < self.prefix)
        # Dealt blocks: every block-th key belongs to the block.
        if self.block is not None and self.dealt:
            values &= i("block") % self.block == j % self.block
        elif self.block is not None:
            start = i("block") // self.block * self.block
            values &= (start <= j) & (j < start + self.block + self.beyond)
        return values

    def _mask_rows_of_queries(self, n_q: int) -> np.ndarray:
        """Return the row that each query has for the mask: its own, or one of its block's, (n_q, 1)."""
        rows = np.arange(n_q)[:, None]
        size = abs(self.queries)
        first = rows // size * size
        return first if self.queries > 0 else first + size - 1


def mistakes(spec: Attention) -> Iterator[Mistake]:
    """Yield the mistakes in the numbers of a specification's mask, and masks that were not requested."""
    if not spec.masks_anything:  # no step masks, so that the mistake is another specification
        yield in_fields("mask", _UNREQUESTED, causal=True)
        if spec.alignment == "bottom-right":
            yield in_fields("mask", _UNREQUESTED_CORNER, causal=True, alignment="top-left")
        return
    right = _make_right_visible_places(spec)
    for words, wrong in wrong_places(spec):
        yield leaving_some_keys(in_steps("mask", words, masked=partial(masked, right, wrong)))


def wrong_places(spec: Attention) -> Iterator[tuple[str, VisiblePlaces]]:
    """Yield wrong masks in words, and what is visible then; those in tiles last: with one tile of all keys, there is
    neither a mask nor an offset."""
    right = _make_right_visible_places(spec)
    changes = [
        change
        for part in (
            _yield_later_edge_changes,
            _yield_window_edge_changes,
            _yield_other_mask_changes,
        )
        for change in part(spec, right)
    ]
    for words, wrong in sorted(
        changes, key=lambda change: not {"tiles", "rounded", "queries"}.isdisjoint(change[1])
    ):
        yield words, replace(right, **wrong)


def masked(right: VisiblePlaces, wrong: VisiblePlaces, at: At) -> Any:
    """Return the scores under another mask by positions, with given masks unchanged."""
    n_q, n_k = at.shape[-2:]
    there, top_left = allowed(at), at.spec.alignment == "top-left"
    # The masks that do not depend on positions.
    base_mask = allowed(at, causal=False, prefix=None, window=None, block=None)
    # Where positions do not make the mask, none of their numbers can be wrong.
    if not np.array_equal(there, base_mask & right.open(n_q, n_k, top_left)):
        raise KeyError("the mask does not depend on positions")
    return forbid(at, base_mask & wrong.open(n_q, n_k, top_left))


def _make_right_visible_places(spec: Attention) -> VisiblePlaces:
    before, after = spec.sides
    return VisiblePlaces(before, 0 if spec.causal else after, spec.prefix, spec.block)


Changes = Iterator[tuple[str, dict[str, Any]]]
_UNREQUESTED = "a causal mask is applied that was not requested"
_UNREQUESTED_CORNER = "a causal mask, aligned top-left, is applied that was not requested"


def _off_by_one(words: str, **numbers: int) -> Changes:
    """Yield numbers that are one too large, and one too small, in words such as "blocks are one key too {}"."""
    for by, much in ((1, "long"), (-1, "short")):
        yield words.format(much), {name: n + by for name, n in numbers.items()}


def _window_off_by_one(too_long: str, too_short: str, **numbers: int) -> Changes:
    """Yield windows that reach one key too far, and one key less far than they should."""
    for by, where in (
        (1, f"reaches one key too far {too_long}"),
        (-1, f"stops one key short {too_short}"),
    ):
        yield f"the window {where}", {name: n + by for name, n in numbers.items()}


def _other_alignment(spec: Attention) -> str:
    return "bottom-right" if spec.alignment == "top-left" else "top-left"


def _describe_wrong_alignment(
    spec: Attention, noun: str, *numbers: str
) -> tuple[str, dict[str, Any]]:
    return f"{noun} aligned {_other_alignment(spec)}", {"corner": frozenset(numbers)}


def _yield_later_edge_changes(spec: Attention, right: VisiblePlaces) -> Changes:
    """Yield changes of the edge after which nothing is seen: that of a causal mask, or of a window."""
    if spec.causal:
        for by in (1, -1, 2, -2, 3, -3):
            yield _describe_shifted_causal_mask(by), {"after": by}
        words = f"the causal mask is aligned {_other_alignment(spec)}; expected {spec.alignment}"
        yield words, {"corner": frozenset(["after"])}
        # Top-left alignment has no offset whose sign could be wrong.
        if spec.alignment == "bottom-right":
            words = "the causal mask starts at the wrong place: n_q − n_k is added to a query's place, not n_k − n_q"
            yield words, {"opposite": True}
        yield "the causal mask is transposed: a query sees itself and later keys", {"turned": True}
        if right.before is not None:
            yield (
                "the causal mask is left out with the window: all later keys are seen",
                {"after": None},
            )
        # Without any other mask this would be no mask at all.
        elif any((right.prefix, right.block, spec.padding, spec.documents, spec.mask)):
            yield "the causal mask is left out", {"after": None, "prefix": None}
        for n in WIDTHS[1:]:
            works = f"the causal mask works in blocks of {n}: a query sees"
            yield f"{works} all keys of its own block", {"tiles": (1, n)}
            yield (
                f"{works} its own block from the last query of it on",
                {"tiles": (1, n), "skipped": True},
            )
    elif right.after is not None:
        yield from _window_off_by_one("ahead", "after the query", after=right.after)
        yield "the window is open after the query: no later key is hidden", {"after": None}
        words, change = _describe_wrong_alignment(spec, "the window's right edge is", "after")
        yield f"{words}, its left edge is not", change
        if right.after > 0:
            yield "the window is also causal: a query sees no later key", {"after": 0}
    else:
        # Without a causal mask, one may be there unasked.
        yield _UNREQUESTED, {"after": 0}
        yield _UNREQUESTED_CORNER, {"after": 0, "corner": frozenset(["after"])}


def _describe_shifted_causal_mask(by: int) -> str:
    if abs(by) > 1:
        keys = f"also sees the next {by} keys" if by > 0 else f"does not see its last {-by} keys"
        return f"the causal mask is off by {abs(by)}: a query {keys}"
    words = "also sees the next key" if by > 0 else "does not see its own key"
    return f"the causal mask is off by one: a query {words}"


def _yield_window_edge_changes(spec: Attention, right: VisiblePlaces) -> Changes:
    """Yield changes of the edge before which nothing is seen, and of both edges at once."""
    before, after = right.before, right.after
    if before is not None:
        yield from _window_off_by_one("back", "before the query", before=before)
        for n in WIDTHS[1:]:
            words = f"the window begins where a tile of {n} does: a query sees"
            yield f"{words} the whole of its first tile", {"tiles": (n, 1)}
            if n <= before + 1:  # else most queries see nothing
                yield f"{words} no tile that begins before it", {"tiles": (n, 1), "skipped": True}
        if after is not None:
            words, change = _describe_wrong_alignment(spec, "the window's left edge is", "before")
            yield f"{words}, its right edge is not", change
            if not spec.causal:
                yield (
                    "the window is open before the query: only keys after it are hidden",
                    {"before": None},
                )
    if spec.window is None:
        return
    yield "the window is ignored", {"before": None, "after": 0 if spec.causal else None}
    if before is not None and right.block is None:
        words = f"windows are blocks: a query sees the {before + 1} keys of its own block"
        yield words, {"before": None, "block": before + 1}
    if before is None or after is None:
        return
    yield _describe_wrong_alignment(spec, "the window is", "before", "after")
    if after == 0:
        yield (
            "the window looks ahead as far as back: the causal mask is left out",
            {"after": before},
        )
    if not spec.causal:
        yield from _window_off_by_one("on both sides", "on both sides", before=before, after=after)
        if before != after:
            yield "the two sides of the window are exchanged", {"before": after, "after": before}


def _yield_other_mask_changes(spec: Attention, right: VisiblePlaces) -> Changes:
    for n, (side, sign) in product(
        WIDTHS[1:], (("down", 1), ("up", -1)) if spec.alignment == "bottom-right" else ()
    ):
        yield (
            f"the place of the first query among the keys is rounded {side} to blocks of {n}",
            {"rounded": sign * n},
        )
    for n in WIDTHS[1:] if (right.before, right.after) != (None, None) else ():
        noun = "causal mask" if right.before is None and right.after == 0 else "window"
        for end, sign in (("last", -1), ("first", 1)):
            words = f"there is one {noun} for each {n} queries: a query sees what the {end} query of its block sees"
            yield words, {"queries": sign * n}
    if right.prefix is not None:
        yield "the prefix is ignored", {"prefix": None}
        yield from _off_by_one("the prefix is one key too {}", prefix=right.prefix)
        words = "the prefix is applied to queries, not to keys: its queries see all keys, later ones none ahead"
        yield words, {"of_queries": True}
    if right.block is not None:
        n = right.block
        yield "blocks are ignored", {"block": None}
        words = f"blocks are windows: a query sees the last {n} keys up to its own, not those of its own block"
        yield words, {"block": None, "before": n - 1, "after": 0}
        # Blocks of no key would leave every row empty.
        yield from (
            change
            for change in _off_by_one("blocks are one key too {}", block=n)
            if change[1]["block"]
        )
        yield (
            "blocks are one key too long: a query sees the first key after its own block",
            {"beyond": 1},
        )
        yield (
            "blocks are one key too short: a query does not see the last key of its own block",
            {"beyond": -1},
        )
        yield _describe_wrong_alignment(spec, "blocks are", "block")
        if n > 1:
            words = "positions are dealt to blocks in turn: a query sees equally spaced keys, not its own block"
            yield words, {"dealt": True}
