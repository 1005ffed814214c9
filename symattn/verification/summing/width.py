"""How many digits an accumulator has: add a small term to a large one, cancel the large one, and see what is left.

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

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from symattn.verification.summing.asking import TermSum
from symattn.verification.summing.tree import NoTree, Tree

_MOST = 64  # digits
_NEAR = 0.2  # tolerance of a result, relative to the last digit, since it is rounded once more
_NAMES = {8: "bfloat16", 11: "float16", 24: "float32", 53: "float64"}
#: (to nearest, ties away from zero): what is left of 1/4, 1/2 and 3/4 of the last digit.
_ROUNDED = {(True, False): (0, 0, 1), (False, False): (0, 0, 0), (True, True): (0, 1, 1), (None, False): (1, 1, 1)}
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
        if self.more:
            return f"{self.digits} digits or more"
        name = f", as {_NAMES[self.digits]} has" if self.digits in _NAMES else ", which no usual format has"
        rounds = {True: ", rounded to nearest", False: ", cut off", None: ""}[self.nearest]
        return f"{self.digits} digits{name}{rounds}{', ties away from zero' if self.away else ''}"


def widths(term_sum: TermSum, tree: Tree) -> tuple[Width, Width]:
    """Return the accumulator where the deepest terms first meet, and the narrowest on their way to the whole sum.

    Raises ``NoTree`` if weights round the terms, if all terms are added at once, if the results fit no number of
    digits, and for compensated sums.
    """
    if not term_sum.numbers.exact:
        raise NoTree(
            f"each term is rounded by its weight, 1/{1 / term_sum.numbers.weight:g}; hint: as many as a power of two"
        )
    around = _path(tree, deepest(tree)[0])
    first, last = _triples(around, deepest(tree))
    inner = _width(term_sum, first)
    if inner.nearest is not None and _compensated(term_sum, around, last, inner.digits):
        raise NoTree("small terms that are lost one by one survive together, as in a compensated sum")
    return inner, inner if first == last else _width(term_sum, last)


def deepest(tree: Tree) -> Pair:
    """Return two terms that meet deepest. Raises ``NoTree`` if all are added at once."""
    depth = [sum(i in result for result in tree.subtrees) for i in range(tree.n)]
    i = int(np.argmax(depth))
    if max(depth) < 2:
        raise NoTree("all of its terms are added at once")
    return i, min(_path(tree, i)[0] - {i})


def unlike(term_sum: TermSum, tree: Tree, known: tuple[Width, Width]) -> Pair | None:
    """Return two terms to which the ``known`` widths do not apply, where they meet or on the way, or None.

    Tested are evenly spread places where single terms meet, since all other additions are on the way from these. Where
    they meet, only those are tested whose sums then grow as that of the deepest terms does.
    """
    pairs = [sorted(f)[:2] for f, children in zip(tree.subtrees, tree.nodes, strict=True) if max(children) < tree.n]
    chosen = np.unique(np.linspace(0, len(pairs) - 1, max(2, term_sum.columns // 4)).astype(int))
    at = [deepest(tree), *((pairs[k][0], pairs[k][1]) for k in chosen)]
    paths = [_path(tree, i) for i, _ in at]
    triples = [_triples(path, pair) for path, pair in zip(paths, at, strict=True) if len(path) > 1]
    sizes = [[len(result) for result in path[:2]] for path in paths if len(path) > 1]
    near = [first for (first, _), size in zip(triples, sizes, strict=True) if size == sizes[0]]
    t, least = known[0].digits, known[1].digits
    probes = [] if known[0].more else [2.0 ** (1 - t), 2.0**-t, 1.5 * 2.0**-t]
    if known[0] == known[1]:
        # with an m from the first and from the last subtree of several terms that joins the sum of i
        i, _, j = triples[0][1]
        added = [b - a for a, b in pairwise(paths[0][:-1]) if len(b - a) > 1 and b - a in tree.known]
        near += [(i, min(terms), j) for terms in dict.fromkeys((*added[:1], *added[-1:]))]
    inner = _differing(term_sum, near, probes)
    return inner or _differing(term_sum, [last for _, last in triples], [] if known[1].more else [2.0 ** (1 - least)])


def _differing(term_sum: TermSum, at: list[Triple], probes: list[float]) -> Pair | None:
    """Return the first pair with other results than the first place, or None."""
    left = _left(term_sum, [(place, x) for place in at for x in probes]).reshape(len(at), len(probes))
    for (i, m, _), here in zip(at, left, strict=True):
        if (np.abs(here - left[0]) > _NEAR * np.array(probes)).any():
            return i, m
    return None


def _path(tree: Tree, i: int) -> list[frozenset[int]]:
    """Return the subtrees that contain i, from the smallest."""
    return [result for result in tree.subtrees if i in result]


def _triples(path: list[frozenset[int]], pair: Pair) -> tuple[Triple, Triple]:
    """Return a pair that meets first on a path with the j that is added next, and with one that is added last."""
    return (*pair, min(path[1] - path[0])), (*pair, min(path[-1] - path[-2]))


def _width(term_sum: TermSum, at: Triple) -> Width:
    """Return the width of the accumulator at a place. Raises ``NoTree``."""
    most = min(_MOST, 39 + int(np.log2(term_sum.numbers.weight))) if _large(term_sum) != 1 else _MOST
    small = 2.0 ** -np.arange(1.0, most + 1)
    values = _left(term_sum, [(at, x) for x in small])
    if not np.isfinite(values).all():
        raise NoTree("small terms next to a large one give NaN or infinity")
    lost = np.flatnonzero(np.abs(values - small) > _NEAR * small)
    if not lost.size:
        return Width(most + 1, more=True)
    t = int(lost[0]) + 1
    below, above = _left(term_sum, [(at, x * 2.0**-t) for x in (0.5, 1.5)])
    left = np.array([below, values[t - 1], above]) * 2.0 ** (t - 1)  # of less than half the last digit, half, and more
    for rounding, expected in _ROUNDED.items():
        if (np.abs(left - expected) < _NEAR).all():
            return Width(t, False, *rounding)
    raise NoTree("the small terms that survive fit no number of digits")


def _compensated(term_sum: TermSum, path: list[frozenset[int]], at: Triple, digits: int) -> bool:
    """Return whether the sum compensates for lost terms, as W. Kahan's does."""
    single = [min(b - a) for a, b in pairwise(path[:-1]) if len(b - a) == 1][:_KEPT]
    if len(single) < _KEPT // 2:
        return False
    terms = np.zeros((term_sum.n, 1))
    terms[single], terms[at[0]], terms[at[2]] = 2.0 ** -(digits + 2), 1.0, -1.0
    return bool(abs(term_sum.sums(terms * _large(term_sum))[0]) > terms[single[0], 0] * _large(term_sum))


def _large(term_sum: TermSum) -> float:
    """Return the large term; in float16 the largest possible, so that small ones are within its range."""
    return term_sum.numbers.large if term_sum.numbers.large < 2.0**16 else 1.0


def _left(term_sum: TermSum, asks: list[tuple[Triple, float]]) -> np.ndarray:
    """Return what is left of small terms, in units of the large one."""
    terms = np.zeros((term_sum.n, len(asks)))
    for column, ((i, m, j), small) in enumerate(asks):
        terms[[i, m, j], column] = 1.0, small, -1.0
    return term_sum.sums(terms * _large(term_sum)) / _large(term_sum)
