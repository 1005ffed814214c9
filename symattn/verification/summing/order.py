"""``Order``: the order of a sum as far as it is known, with the tree as lines of text, and how many digits it keeps.

Digits are found by adding a small term to a large one, cancelling the large one, and looking at what is left.
With 1 at term i, 2⁻ᵏ at m and −1 at j, where i and m meet before j, the result is 2⁻ᵏ as long as 1 + 2⁻ᵏ is a number of
the accumulator; with t digits, that is for k up to t − 1. At k = t a tie to even gives 0, and one away from zero 2¹⁻ᵗ.
With 1.5 · 2⁻ᵗ in its place, rounding to nearest gives 2¹⁻ᵗ and truncation 0. If i and j meet last, partial results are
stored in between, so the narrowest of these is measured. Nothing cancels after the last addition, so its digits remain
unknown. Many terms of 2⁻ᵗ⁻² are lost one by one, unless the sum is compensated.

Source: M. Fasi, N. J. Higham, M. Mikaitis, S. Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ Computer
Science 7:e330 (2021); X. Li, A. Li, B. Fang, K. Swirydowicz, I. Laguna, G. Gopalakrishnan, FTTN: Feature-Targeted
Testing for Numerical Properties of NVIDIA & AMD Matrix Accelerators (2024). Both test matrix units in this way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from symattn.document.evidence import Grade
from symattn.verification.summing.reading import TreeReading, common_parts, parts_of, read, tiles_of
from symattn.verification.summing.tree import NoTree, TermSum, Tree


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
        return tuple(self._yield_order_sentences())

    def _yield_order_sentences(self) -> Iterator[str]:
        if self.reading is None:
            yield f"The order in which {self.terms} are added cannot be determined: {self.why}."
            return
        # An entry that counts as 0 would otherwise seem to be missing.
        counted = f", the one at place {self.first} counted as 0," if self.first else ""
        yield f"{self.n} {self.terms}{counted} are added {'by ' * (self.reading.way == 'tiles')}{self.reading.words}."
        if self.longer:
            yield self._at_both()
        if self.widths is None:
            yield f"The digits of the accumulators cannot be determined: {self.why_width}."
        else:
            yield self._describe_accumulator_digits(*self.widths)

    def _describe_accumulator_digits(self, inner: Width, outer: Width) -> str:
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
    # Twice as many terms show whether tiles, or the number of parts, have a fixed size.
    if 2 * n <= most and tiles_of(tree) and read(tree).way == "tiles":
        more, outcome = _compare_with_longer_sum(tree, sum_of)
        result, calls = result | outcome, calls + more
    return Order(terms, n, calls, tree, first=term_sum.first, **result)


def _compare_with_longer_sum(
    tree: Tree, sum_of: Callable[[int], TermSum]
) -> tuple[int, dict[str, Any]]:
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
# Lines of a written tree; of more parts, the first ones and the last are shown.
_LINES = 12
# Orders that are written by name, not term by term.
_NAMED = {"pairs": "pairs", "halves": "halves", "once": "at once"}


def written(tree: Tree) -> list[str]:
    """Return the sum as lines, one for each part of its outermost loop; of many parts the first ones and the last."""
    # The last node is the whole sum.
    parts = _write_parts_of_sum(tree, tree.n + len(tree.nodes) - 1)
    if len(parts) == 1:
        return parts
    lines = [f"  {parts[0]}", *(f"+ {part}" for part in parts[1:])]
    return lines if len(lines) <= _LINES else [*lines[: _LINES - 2], "+ …", lines[-1]]


def _write_parts_of_sum(tree: Tree, node: int) -> list[str]:
    """Return in writing the terms that are added one after the other to get a node."""
    # The node's own terms alone, as a tree for itself.
    leaves = sorted(tree.subtrees[node - tree.n])
    reading = read(tree.within(leaves))
    # Two terms are written as a sum, whatever their order is called.
    if reading.way in _NAMED and len(leaves) > 2:
        return [f"{_NAMED[reading.way]}({', '.join(_abbreviate_items([*map(str, leaves)]))})"]
    if reading.merge:
        nodes = [tree.node(frozenset(leaves[k] for k in part)) for part in parts_of(reading)]
        sums = [
            f"({'+'.join(_write_parts_of_sum(tree, part))})" if part >= tree.n else str(part)
            for part in nodes
        ]
        if reading.merge.way in _NAMED:
            return [f"{_NAMED[reading.merge.way]}({', '.join(_abbreviate_items(sums))})"]
        # A loop from the last part to the first is written in the order of adding.
        return sums[:: 1 if reading.merge.way == "order" else -1]
    result: list[str] = []
    run: list[int] = []
    # The spine is the chain of sums; what is no single term on it stands in brackets.
    for added in _trace_spine_of_sum(tree, node):
        if len(added) == 1 and added[0] < tree.n:
            run.append(added[0])
        else:
            result = [*result, *_write_term_runs(run), _write_bracketed_step(tree, added)]
            run = []
    return result + _write_term_runs(run)


def _write_bracketed_step(tree: Tree, added: tuple[int, ...]) -> str:
    """Write the terms added in one step in brackets, or in square brackets if they are added at once."""
    # More than two at once: a fused sum, as of a matrix unit.
    if len(added) > 1:
        return (
            "["
            + ", ".join(
                str(a) if a < tree.n else "+".join(_write_parts_of_sum(tree, a)) for a in added
            )
            + "]"
        )
    return "(" + "+".join(_write_parts_of_sum(tree, added[0])) + ")"


def _trace_spine_of_sum(tree: Tree, node: int) -> list[tuple[int, ...]]:
    """Return the steps by which the largest part grows to a node: its start, then the nodes added in each step."""
    steps: list[tuple[int, ...]] = []
    while node >= tree.n:
        children = tree.nodes[node - tree.n]
        # The largest child is the running sum, to which the others are added.
        first = max(children, key=lambda c: 1 if c < tree.n else len(tree.subtrees[c - tree.n]))
        steps.append(tuple(c for c in children if c != first))
        node = first
    steps.append((node,))
    has_single_steps = len(steps) > 2 and len(steps[-3]) == 1 == len(steps[-2])
    if has_single_steps and steps[-2][0] < tree.n:
        begin = node
        other = steps[-2][0]
        third = steps[-3][0]
        # Of the first two, write the one farther from the third first.
        if abs(third - begin) < abs(third - other):
            steps[-2:] = [(begin,), (other,)]
    return steps[::-1]


def _abbreviate_items(items: list[str]) -> list[str]:
    """Shorten many items to the first two and the last."""
    return [*items[:2], "…", items[-1]] if len(items) > _RUN else items


def _write_term_runs(terms: list[int]) -> list[str]:
    """Return the sum of terms, with long runs of equal steps shortened; empty if there are none."""
    result: list[str] = []
    start = 0
    while start < len(terms):
        end = start + 1
        # A run has one step, which dots may stand for.
        while end + 1 < len(terms):
            first_step = terms[start + 1] - terms[start]
            if terms[end + 1] - terms[end] != first_step:
                break
            end += 1
        run = terms[start : end + 1]
        result += _abbreviate_items([*map(str, run)])
        start += len(run)
    return ["+".join(result)] if result else []


_MOST = 64  # digits
_NEAR = 0.2  # tolerance of a result, relative to the last digit, since it is rounded once more
_NAMES = {8: "bfloat16", 11: "float16", 24: "float32", 53: "float64"}
#: (to nearest, ties away from zero): what is left of 1/4, 1/2 and 3/4 of the last digit.
_ROUNDED = {
    (True, False): (0, 0, 1),
    (False, False): (0, 0, 0),
    (True, True): (0, 1, 1),
    (None, False): (1, 1, 1),
}
_KEPT = 16  # small terms that a compensated sum does not lose; at least half of them are needed
Triple = tuple[int, int, int]
Pair = tuple[int, int]


@dataclass(frozen=True)
class Width:
    """The digits t of an accumulator, or at least so many if ``more``; ``nearest`` says whether it rounds to nearest,
    None if unknown, and ``away`` whether ties go away from zero."""

    digits: int
    more: bool = False
    nearest: bool | None = None
    away: bool = False

    @property
    def words(self) -> str:
        """The digits, their format, and the rounding."""
        # The widest number that was tried was kept whole, so that only a lower limit is known.
        if self.more:
            return f"{self.digits} digits or more"
        name = (
            f", as {_NAMES[self.digits]} has"
            if self.digits in _NAMES
            else ", which no usual format has"
        )
        rounds = {True: ", rounded to nearest", False: ", cut off", None: ""}[self.nearest]
        return f"{self.digits} digits{name}{rounds}{', ties away from zero' if self.away else ''}"


def widths(term_sum: TermSum, tree: Tree) -> tuple[Width, Width]:
    """Return the accumulator where the deepest terms first meet, and the narrowest on their way to the whole sum.

    Raises ``NoTree`` if weights round the terms, if all terms are added at once, if the results fit no number of
    digits, and for compensated sums.
    """
    # Terms that are rounded before they are added say nothing about the accumulator.
    if not term_sum.numbers.exact:
        raise NoTree(
            f"each term is rounded by its weight, 1/{1 / term_sum.numbers.weight:g}; hint: as many as a power of two"
        )
    around = _list_subtrees_of_leaf(tree, deepest(tree)[0])
    first, last = _choose_width_triples(around, deepest(tree))
    # The innermost accumulator first: outer ones can only lose what it has kept.
    inner = _measure_accumulator_width(term_sum, first)
    # A compensated sum keeps lost digits in a second number, so that no width describes it.
    if inner.nearest is not None and _is_compensated_sum(term_sum, around, last, inner.digits):
        raise NoTree(
            "small terms that are lost one by one survive together, as in a compensated sum"
        )
    return inner, inner if first == last else _measure_accumulator_width(term_sum, last)


def deepest(tree: Tree) -> Pair:
    """Return two terms that meet deepest. Raises ``NoTree`` if all are added at once."""
    depth = [sum(i in result for result in tree.subtrees) for i in range(tree.n)]
    i = int(np.argmax(depth))
    if max(depth) < 2:
        raise NoTree("all of its terms are added at once")
    return i, min(_list_subtrees_of_leaf(tree, i)[0] - {i})


def unlike(term_sum: TermSum, tree: Tree, known: tuple[Width, Width]) -> Pair | None:
    """Return two terms to which the ``known`` widths do not apply, where they meet or on the way, or None.

    Tested are evenly spread places where single terms meet, since all other additions are on the way from these. Where
    they meet, only those are tested whose sums then grow as that of the deepest terms does.
    """
    pairs = [
        sorted(f)[:2]
        for f, children in zip(tree.subtrees, tree.nodes, strict=True)
        if max(children) < tree.n
    ]
    chosen = np.unique(np.linspace(0, len(pairs) - 1, max(2, term_sum.columns // 4)).astype(int))
    at = [deepest(tree), *((pairs[k][0], pairs[k][1]) for k in chosen)]
    paths = [_list_subtrees_of_leaf(tree, i) for i, _ in at]
    # Terms that only meet in the whole sum leave no later addition to measure.
    triples = [
        _choose_width_triples(path, pair)
        for path, pair in zip(paths, at, strict=True)
        if len(path) > 1
    ]
    sizes = [[len(result) for result in path[:2]] for path in paths if len(path) > 1]
    near = [first for (first, _), size in zip(triples, sizes, strict=True) if size == sizes[0]]
    t, least = known[0].digits, known[1].digits
    # The last digit, a half and three quarters of it show the width and the rounding.
    probes = [] if known[0].more else [2.0 ** (1 - t), 2.0**-t, 1.5 * 2.0**-t]
    if known[0] == known[1]:
        # with an m from the first and from the last subtree of several terms that joins the sum of i
        i, _, j = triples[0][1]
        differences = [b - a for a, b in pairwise(paths[0][:-1])]
        added = [terms for terms in differences if len(terms) > 1 and terms in tree.known]
        first_and_last = dict.fromkeys((*added[:1], *added[-1:]))
        near += [(i, min(terms), j) for terms in first_and_last]
    inner = _find_differing_width_pair(term_sum, near, probes)
    return inner or _find_differing_width_pair(
        term_sum, [last for _, last in triples], [] if known[1].more else [2.0 ** (1 - least)]
    )


def _find_differing_width_pair(
    term_sum: TermSum, at: list[Triple], probes: list[float]
) -> Pair | None:
    """Return the first pair with other results than the first place, or None."""
    left = _measure_surviving_terms(term_sum, [(place, x) for place in at for x in probes]).reshape(
        len(at), len(probes)
    )
    for (i, m, _), here in zip(at, left, strict=True):
        if (np.abs(here - left[0]) > _NEAR * np.array(probes)).any():
            return i, m
    return None


def _list_subtrees_of_leaf(tree: Tree, i: int) -> list[frozenset[int]]:
    """Return the subtrees that contain i, from the smallest."""
    return [result for result in tree.subtrees if i in result]


def _choose_width_triples(path: list[frozenset[int]], pair: Pair) -> tuple[Triple, Triple]:
    """Return a pair that meets first on a path with the j that is added next, and with one that is added last."""
    added_next, added_last = path[1] - path[0], path[-1] - path[-2]
    return (*pair, min(added_next)), (*pair, min(added_last))


def _measure_accumulator_width(term_sum: TermSum, at: Triple) -> Width:
    """Return the width of the accumulator at a place. Raises ``NoTree``."""
    # In float16, a small term must not fall below the smallest number.
    most = (
        min(_MOST, 39 + int(np.log2(term_sum.numbers.weight)))
        if _choose_large_term(term_sum) != 1
        else _MOST
    )
    small = 2.0 ** -np.arange(1.0, most + 1)
    values = _measure_surviving_terms(term_sum, [(at, x) for x in small])
    if not np.isfinite(values).all():
        raise NoTree("small terms next to a large one give NaN or infinity")
    lost = np.flatnonzero(np.abs(values - small) > _NEAR * small)
    if not lost.size:
        return Width(most + 1, more=True)
    t = int(lost[0]) + 1
    below, above = _measure_surviving_terms(term_sum, [(at, x * 2.0**-t) for x in (0.5, 1.5)])
    # of less than half the last digit, half, and more
    left = np.array([below, values[t - 1], above]) * 2.0 ** (t - 1)
    for rounding, expected in _ROUNDED.items():
        if (np.abs(left - expected) < _NEAR).all():
            return Width(t, False, *rounding)
    raise NoTree("the small terms that survive fit no number of digits")


def _is_compensated_sum(
    term_sum: TermSum, path: list[frozenset[int]], at: Triple, digits: int
) -> bool:
    """Return whether the sum compensates for lost terms, as W. Kahan's does."""
    added = (b - a for a, b in pairwise(path[:-1]))
    single = [min(terms) for terms in added if len(terms) == 1][:_KEPT]
    if len(single) < _KEPT // 2:
        return False
    terms = np.zeros((term_sum.n, 1))
    # Small terms are added one by one between a large term and its negative.
    terms[single], terms[at[0]], terms[at[2]] = 2.0 ** -(digits + 2), 1.0, -1.0
    return bool(
        abs(term_sum.sums(terms * _choose_large_term(term_sum))[0])
        > terms[single[0], 0] * _choose_large_term(term_sum)
    )


def _choose_large_term(term_sum: TermSum) -> float:
    """Return the large term; in float16 the largest possible, so that small ones are within its range."""
    return term_sum.numbers.large if term_sum.numbers.large < 2.0**16 else 1.0


def _measure_surviving_terms(term_sum: TermSum, asks: list[tuple[Triple, float]]) -> np.ndarray:
    """Return what is left of small terms, in units of the large one."""
    terms = np.zeros((term_sum.n, len(asks)))
    for column, ((i, m, j), small) in enumerate(asks):
        terms[[i, m, j], column] = 1.0, small, -1.0
    return term_sum.sums(terms * _choose_large_term(term_sum)) / _choose_large_term(term_sum)
