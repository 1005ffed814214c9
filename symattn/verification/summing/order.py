"""``Order``: what is known of the order of a sum, in words, with the tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from symattn.document.evidence import Grade
from symattn.verification.summing.asking import TermSum
from symattn.verification.summing.reading import TreeReading, kept, read, tiles_of
from symattn.verification.summing.tree import NoTree, Tree
from symattn.verification.summing.tree_text import written
from symattn.verification.summing.width import Pair, Width, deepest, unlike, widths


@dataclass(frozen=True)
class Order:
    """The order of a sum of n terms, and the digits of its accumulators.

    ``tree`` is None where it is undecided, and ``why`` says why; ``widths`` are those where terms first meet and on
    the way to the whole sum, None for the reason ``why_width``, and ``apart`` are, if there are any, the two terms that
    were asked for them and two of which they are not so. ``tile`` and ``split`` are the size of tiles and the
    number of parts that stay the same where there are ``longer`` terms, 0 for none. ``first`` is the place of the first
    term where a window leaves out others before it. ``terms`` says what is added, and
    ``calls`` how often the function was called.
    """

    terms: str
    n: int
    calls: int
    tree: Tree | None = None
    why: str = ""
    widths: tuple[Width, Width] | None = None
    why_width: str = ""
    apart: tuple[Pair, Pair] | None = None
    longer: int = 0
    tile: int = 0
    split: int = 0
    first: int = 0

    @property
    def reading(self) -> TreeReading | None:
        """The order in words, as data."""
        return read(self.tree) if self.tree else None

    @property
    def words(self) -> tuple[str, ...]:
        """The order, what is the same at another length, and the accumulators: a sentence each."""
        return tuple(self._said())

    def _said(self) -> Iterator[str]:
        if self.reading is None:
            yield f"The order in which {self.terms} are added cannot be determined: {self.why}."
            return
        counted = f", the one at place {self.first} counted as 0," if self.first else ""
        yield f"{self.n} {self.terms}{counted} are added {'by ' * (self.reading.way == 'tiles')}{self.reading.words}."
        if self.longer:
            yield self._at_both()
        if self.widths is None:
            yield f"The digits of the accumulators cannot be determined: {self.why_width}."
        else:
            yield self._digits(*self.widths)

    def _digits(self, inner: Width, outer: Width) -> str:
        same = f"accumulators have {inner.words}"
        two = f"terms are first added with {inner.words}; on the way to the whole sum only {outer.words}"
        result = same if inner == outer else two
        if not self.apart:
            return f"The {result}." if inner == outer else f"{result.capitalize()}."
        here, there = (f"{self.terms} {i} and {m} meet" for i, m in self.apart)
        return f"Where {here}, {result}; where {there}, it is not so."

    def _at_both(self) -> str:
        lengths = f"{self.n} and {self.longer} {self.terms}"
        tile, split = f"tiles of {self.tile}", f"{self.split} parts (split-K)"
        if self.tile and self.split:
            return f"With {lengths} there are {split}, and {tile}."
        if self.tile or self.split:
            return f"With {lengths} there are {tile if self.tile else split}."
        return f"With {lengths} neither the size of tiles nor their number is the same."

    @property
    def text(self) -> str:
        """The tree in a few lines; empty where there is none."""
        return "\n".join(written(self.tree)) if self.tree else ""

    RECORD = (
        "terms = n, calls, words, grade, reading?, nodes = tree.nodes?, first?, longer?, tile?longer, split?longer, "
        "digits = widths?, apart?"
    )

    @property
    def grade(self) -> Grade:
        """``sampled`` where the order is known."""
        return Grade.SAMPLED if self.tree else Grade.UNDECIDED


def ordered(terms: str, n: int, asked: Callable[[int], TermSum], most: int) -> Order:
    """The order of a sum of n terms, and where it has tiles, of 2n terms, if there may be so many.

    ``asked`` makes a sum of so many terms; it raises ``NoTree`` where there is none.
    """
    one: TermSum | None = None
    try:
        one = asked(n)
        n, tree = one.n, one.tree()
    except NoTree as error:
        return Order(terms, n, one.calls if one else 0, why=str(error))
    result: dict[str, Any] = {}
    try:
        result["widths"] = widths(one, tree)
        other = unlike(one, tree, result["widths"])
        result["apart"] = (deepest(tree), other) if other else None
    except NoTree as error:
        result["why_width"] = str(error)
    calls = one.calls
    if 2 * n <= most and tiles_of(tree) and read(tree).way == "tiles":
        more, outcome = _longer(tree, asked)
        result, calls = result | outcome, calls + more
    return Order(terms, n, calls, tree, first=one.first, **result)


def _longer(tree: Tree, asked: Callable[[int], TermSum]) -> tuple[int, dict[str, Any]]:
    """How many calls twice as many terms took, and what is the same with them; nothing where that is undecided."""
    other: TermSum | None = None
    try:
        other = asked(2 * tree.n)
        if other.n != 2 * tree.n:  # a window takes no more of them
            return 0, {}
        tile, split = kept(tree, other.tree())
    except NoTree:
        return other.calls if other else 0, {}
    return other.calls, {"longer": other.n, "tile": tile, "split": split}
