"""``Order``: the order of a sum as far as it is known, in words, with the tree as lines of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from symattn.document.evidence import Grade
from symattn.verification.summing.asking import TermSum
from symattn.verification.summing.reading import TreeReading, common_parts, parts_of, read, tiles_of
from symattn.verification.summing.tree import NoTree, Tree
from symattn.verification.summing.width import Pair, Width, deepest, unlike, widths


@dataclass(frozen=True)
class Order:
    """The order of a sum of n terms, and the digits of its accumulators.

    ``terms`` says what is added, ``calls`` how often the function was called. ``tree`` is None if the order is unknown,
    for the reason ``why``. ``widths`` are the accumulators where terms first meet and on the way to the whole sum, or
    None for the reason ``why_width``; ``apart`` holds the two terms at which they were measured and two at which they
    differ, if there are any. ``tile`` and ``split`` are the size of tiles and the number of parts that are the same
    with ``longer`` terms, 0 for none. ``first`` is the index of the first term if a window leaves out earlier ones.
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
        """The order, what is the same at another length, and the accumulators, each in a sentence."""
        return tuple(self._sentences())

    def _sentences(self) -> Iterator[str]:
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
        """The tree in a few lines; empty if there is none."""
        return "\n".join(written(self.tree)) if self.tree else ""

    RECORD = (
        "terms = n, calls, words, grade, reading?, nodes = tree.nodes?, first?, longer?, tile?longer, split?longer, "
        "digits = widths?, apart?"
    )

    @property
    def grade(self) -> Grade:
        """``sampled`` if the order is known, else ``undecided``."""
        return Grade.SAMPLED if self.tree else Grade.UNDECIDED


def ordered(terms: str, n: int, sum_of: Callable[[int], TermSum], most: int) -> Order:
    """Return the order of a sum of n terms; if it has tiles, compare it with that of 2n terms, up to ``most``.

    ``sum_of`` returns the sum of a number of terms, or raises ``NoTree``.
    """
    term_sum: TermSum | None = None
    try:
        term_sum = sum_of(n)
        n, tree = term_sum.n, term_sum.tree()
    except NoTree as error:
        return Order(terms, n, term_sum.calls if term_sum else 0, why=str(error))
    result: dict[str, Any] = {}
    try:
        result["widths"] = widths(term_sum, tree)
        other = unlike(term_sum, tree, result["widths"])
        result["apart"] = (deepest(tree), other) if other else None
    except NoTree as error:
        result["why_width"] = str(error)
    calls = term_sum.calls
    if 2 * n <= most and tiles_of(tree) and read(tree).way == "tiles":
        more, outcome = _longer(tree, sum_of)
        result, calls = result | outcome, calls + more
    return Order(terms, n, calls, tree, first=term_sum.first, **result)


def _longer(tree: Tree, sum_of: Callable[[int], TermSum]) -> tuple[int, dict[str, Any]]:
    """Return the calls for twice as many terms, and what stays the same with them; empty if that is undecided."""
    other: TermSum | None = None
    try:
        other = sum_of(2 * tree.n)
        if other.n != 2 * tree.n:  # a window limits them
            return 0, {}
        tile, split = common_parts(tree, other.tree())
    except NoTree:
        return other.calls if other else 0, {}
    return other.calls, {"longer": other.n, "tile": tile, "split": split}


# -- a tree as a line of text: (0+1+…+31)+(32+33+…+63); the first part is added first ----------------------------------
_RUN = 4  # most terms in a row that are written in full
_LINES = 12
_NAMED = {"pairs": "pairs", "halves": "halves", "once": "at once"}


def written(tree: Tree) -> list[str]:
    """Return the sum as lines, one for each part of its outermost loop; of many parts the first ones and the last."""
    parts = _parts(tree, tree.n + len(tree.nodes) - 1)
    if len(parts) == 1:
        return parts
    lines = [f"  {parts[0]}", *(f"+ {part}" for part in parts[1:])]
    return lines if len(lines) <= _LINES else [*lines[: _LINES - 2], "+ …", lines[-1]]


def _parts(tree: Tree, node: int) -> list[str]:
    """Return in writing the terms that are added one after the other to get a node."""
    leaves = sorted(tree.subtrees[node - tree.n])
    reading = read(tree.within(leaves))
    if reading.way in _NAMED and len(leaves) > 2:
        return [f"{_NAMED[reading.way]}({', '.join(_shortened([*map(str, leaves)]))})"]
    if reading.merge:
        nodes = [tree.node(frozenset(leaves[k] for k in part)) for part in parts_of(reading)]
        sums = [f"({'+'.join(_parts(tree, part))})" if part >= tree.n else str(part) for part in nodes]
        if reading.merge.way in _NAMED:
            return [f"{_NAMED[reading.merge.way]}({', '.join(_shortened(sums))})"]
        return sums[:: 1 if reading.merge.way == "order" else -1]
    result: list[str] = []
    run: list[int] = []
    for added in _spine(tree, node):
        if len(added) == 1 and added[0] < tree.n:
            run.append(added[0])
        else:
            result, run = [*result, *_joined(run), _inner(tree, added)], []
    return result + _joined(run)


def _inner(tree: Tree, added: tuple[int, ...]) -> str:
    """Write the terms added in one step in brackets, or in square brackets if they are added at once."""
    if len(added) > 1:
        return "[" + ", ".join(str(a) if a < tree.n else "+".join(_parts(tree, a)) for a in added) + "]"
    return "(" + "+".join(_parts(tree, added[0])) + ")"


def _spine(tree: Tree, node: int) -> list[tuple[int, ...]]:
    """Return the steps by which the largest part grows to a node: its start, then the nodes added in each step."""
    steps: list[tuple[int, ...]] = []
    while node >= tree.n:
        children = tree.nodes[node - tree.n]
        first = max(children, key=lambda c: 1 if c < tree.n else len(tree.subtrees[c - tree.n]))
        steps.append(tuple(c for c in children if c != first))
        node = first
    steps.append((node,))
    if len(steps) > 2 and len(steps[-3]) == 1 == len(steps[-2]) and steps[-2][0] < tree.n:
        begin, other, third = node, steps[-2][0], steps[-3][0]
        if abs(third - begin) < abs(third - other):  # of the first two, write the one farther from the third first
            steps[-2:] = [(begin,), (other,)]
    return steps[::-1]


def _shortened(items: list[str]) -> list[str]:
    """Shorten many items to the first two and the last."""
    return [*items[:2], "…", items[-1]] if len(items) > _RUN else items


def _joined(terms: list[int]) -> list[str]:
    """Return the sum of terms, with long runs of equal steps shortened; empty if there are none."""
    result: list[str] = []
    start = 0
    while start < len(terms):
        end = start + 1
        while end + 1 < len(terms) and terms[end + 1] - terms[end] == terms[start + 1] - terms[start]:
            end += 1
        run = terms[start : end + 1]
        result += _shortened([*map(str, run)])
        start += len(run)
    return ["+".join(result)] if result else []
