"""A tree in words: loops in order, pairs, tiles, lanes, or all terms at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal

from symattn.verification.summing.tree import Tree

Way = Literal["one", "order", "reversed", "pairs", "halves", "tiles", "lanes", "once", "other"]
Parts = list[list[int]]
#: Ways to add the results of parts; parts that are added in any other way are not described as parts.
_MERGED = {
    "order": "in order",
    "reversed": "from the last to the first",
    "pairs": "in pairs of neighbours",
    "halves": "in pairs half of them apart",
    "once": "at once",
}


@dataclass(frozen=True)
class TreeReading:
    """How n terms are added.

    ``way`` is ``order`` or ``reversed`` for a loop that adds ``step`` terms at a time; ``pairs`` of neighbours or of
    terms ``halves`` of the length apart, again and again; ``tiles`` of ``size`` terms or ``size`` ``lanes``: each is
    added as ``inner`` says, and their results as ``merge`` says; a last tile of ``tail`` terms is added as ``last``
    says if that is given, else as ``inner``; ``once`` for all at once, ``one`` for a single term, or ``other``.
    """

    way: Way
    n: int
    step: int = 1
    size: int = 0
    tail: int = 0
    merge: TreeReading | None = None
    inner: TreeReading | None = None
    last: TreeReading | None = None

    @property
    def words(self) -> str:
        """The order in words: "tiles of 64, added in order; within a tile: in order, from the first to the last"."""
        if self.way == "tiles" and self.merge and self.inner:
            ends = f", the last of {self.tail}" if self.tail else ""
            ends += f" ({self.last.words})" if self.last else ""
            return f"tiles of {self.size}{ends}, added {_MERGED[self.merge.way]}; within a tile: {self.inner.words}"
        if self.way == "lanes" and self.merge and self.inner:
            th = (
                "th"
                # 11th, 12th and 13th are the exceptions.
                if self.size % 100 in (11, 12, 13)
                else {1: "st", 2: "nd", 3: "rd"}.get(self.size % 10, "th")
            )
            lanes = (
                "2 lanes, even and odd"
                if self.size == 2
                else f"{self.size} lanes, every {self.size}{th}"
            )
            inner = self.inner.words
            return f"in {lanes}, which are added {_MERGED[self.merge.way]}; within a lane: {inner}"
        steps = f", {self.step} at a time" if self.step > 1 else ""
        return {
            "one": "nothing is added",
            "order": f"in order, from the first to the last{steps}",
            "reversed": f"in order, from the last to the first{steps}",
            "pairs": "in pairs of neighbours, again and again",
            "halves": "in pairs half the length apart, again and again",
            "once": f"all {self.n} at once",
        }.get(self.way, "in no order that has a name here; see the tree")

    @property
    def looped(self) -> bool:
        """Return whether the sum is one loop, which adds ``step`` terms at a time."""
        return self.way in ("order", "reversed")

    RECORD = "way, terms = n, step?looped, size?, tail?, merge?, inner?, last?"


def read(tree: Tree) -> TreeReading:
    """Return the simplest reading: a loop, pairs, tiles or lanes, in this order, or else ``other``."""
    tiles = (
        r
        # Small tiles first: a multiple of a tile can be read as a tile as well.
        for size in range(2, tree.n)
        for r in _as_parts(tree, "tiles", size, _split_into_term_runs(tree.n, size))
    )
    lanes = (
        r
        # Many lanes first, since fewer lanes may be read from their pairs.
        for size in range(tree.n // 2, 1, -1)
        for r in _as_parts(tree, "lanes", size, _split_into_strided_lanes(tree.n, size))
    )
    # A loop or pairs over all terms is plainer than any reading by parts.
    return _read_sum_without_parts(tree) or next(chain(tiles, lanes), TreeReading("other", tree.n))


def _read_sum_without_parts(tree: Tree) -> TreeReading | None:
    """Return the reading of a sum without parts, or None."""
    if tree.n == 1 or len(tree.nodes) == 1:
        way: Way = "one" if tree.n == 1 else "once" if tree.n > 2 else "order"
        return TreeReading(way, tree.n)
    # Only a power of two has complete pairs, or halves, at every level.
    if tree.n & (tree.n - 1) == 0:
        sizes = [2**k for k in range(1, tree.n.bit_length())]
        if tree == Tree.of(
            tree.n, (part for size in sizes for part in _split_into_term_runs(tree.n, size))
        ):
            return TreeReading("pairs", tree.n)
        if tree == Tree.of(
            tree.n,
            (part for size in sizes for part in _split_into_strided_lanes(tree.n, tree.n // size)),
        ):
            return TreeReading("halves", tree.n)
    # one sum that grows by a number of terms at a time, perhaps fewer at the end
    grown = [sorted(terms) for terms in tree.subtrees]
    steps = [len(b) - len(a) for a, b in pairwise(grown)]
    # Each step adds as many terms as the first, except for the last, which may add fewer.
    if (
        len(set(steps[:-1])) > 1
        or steps[-1] > steps[0]
        or steps[0] not in (len(grown[0]), len(grown[0]) - 1)
    ):
        return None
    leaves = list(range(tree.n))
    if all(terms == leaves[: len(terms)] for terms in grown):
        return TreeReading("order", tree.n, steps[0])
    return (
        TreeReading("reversed", tree.n, steps[0])
        if all(f == leaves[-len(f) :] for f in grown)
        else None
    )


def _as_parts(tree: Tree, way: Way, size: int, parts: Parts) -> Iterator[TreeReading]:
    """Yield the reading by these parts, if there is one."""
    if not all(frozenset(part) in tree.known for part in parts):
        return
    if way == "tiles" and len(parts) == 2 and len(parts[1]) == 1:  # a single last term is no tile
        return
    merge = _read_sum_without_parts(tree.over(parts))
    inner = {tree.within(part) for part in parts if len(part) == len(parts[0])}
    if merge is not None and merge.way in _MERGED and len(inner) == 1:
        tail = len(parts[-1]) % len(parts[0]) if way == "tiles" else 0
        one = read(inner.pop())
        last = read(tree.within(parts[-1]))
        # Two terms have a single order.
        other = tail > 2 and last.way != one.way
        yield TreeReading(way, tree.n, 1, size, tail, merge, one, last if other else None)


def parts_of(reading: TreeReading) -> Parts:
    """Return the terms of each tile or lane."""
    return (_split_into_term_runs if reading.way == "tiles" else _split_into_strided_lanes)(
        reading.n, reading.size
    )


def _split_into_term_runs(n: int, size: int) -> Parts:
    """Return runs of ``size`` neighbours; the last run may be shorter."""
    return [list(range(start, min(start + size, n))) for start in range(0, n, size)]


def _split_into_strided_lanes(n: int, count: int) -> Parts:
    """Return ``count`` lanes, each of every ``count``-th term."""
    return [list(range(start, n, count)) for start in range(count)]


def tiles_of(tree: Tree) -> set[int]:
    """Return the sizes, from 2 to half of the terms, for which all runs of neighbours are subtrees."""
    sizes = range(2, (tree.n + 1) // 2 + 1)
    return {
        size
        for size in sizes
        if all(frozenset(part) in tree.known for part in _split_into_term_runs(tree.n, size))
    }


def common_parts(one: Tree, other: Tree) -> tuple[int, int]:
    """Return the size of tiles, and the number of parts (split-K), that two lengths of a sum share; 0 for none.

    Both are those whose results are added last. Tiles have the same size and inner order at both lengths. If there are
    none, the number of parts is the same at both lengths, which it divides; they are merged alike, and may have tiles
    within.
    """
    tile = _find_common_tile_size(one, other)
    if tile:
        return tile, 0
    # Many parts first, down to two.
    for count in range(one.n // 2, 1, -1):
        # Split-K gives every part the same number of terms.
        if one.n % count or other.n % count:
            continue
        sizes = (one.n // count, other.n // count)
        readings = [
            _read_sum_by_tiles(tree, size) for tree, size in zip((one, other), sizes, strict=True)
        ]
        if readings[0] and readings[1] and readings[0].merge == readings[1].merge:
            return _find_common_tile_size(
                one.within(range(sizes[0])), other.within(range(sizes[1]))
            ), count
    return 0, 0


def _find_common_tile_size(one: Tree, other: Tree) -> int:
    """Return the size of the tiles whose results both sums add last, if it and the order within are the same, or 0."""
    if _read_sum_without_parts(one) or _read_sum_without_parts(other):
        return 0
    # At most half of the terms, or there would be one tile.
    for size in range(2, (one.n + 1) // 2 + 1):
        if (
            _read_sum_by_tiles(one, size)
            and _read_sum_by_tiles(other, size)
            and one.within(range(size)) == other.within(range(size))
        ):
            return size
    return 0


def _read_sum_by_tiles(tree: Tree, size: int) -> TreeReading | None:
    """Return the reading by tiles of this size, or None."""
    return next(_as_parts(tree, "tiles", size, _split_into_term_runs(tree.n, size)), None)
