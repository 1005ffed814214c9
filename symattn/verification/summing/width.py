"""How many digits an accumulator has: a small term is added to a large one, which then cancels; what is left of it?

With 1 at term i, 2⁻ᵏ at m and −1 at j, where i and m meet before j, the result is 2⁻ᵏ as long as 1 + 2⁻ᵏ is a number of
the accumulator, which has t digits for k up to t − 1. With 1.5 · 2⁻ᵗ in its place, rounding to nearest gives 2¹⁻ᵗ and
cutting off 0. Where i and j meet at last, partial results are stored in between, so the narrowest of these is told.

Source: M. Fasi, N. J. Higham, M. Mikaitis, S. Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ Computer
Science 7:e330 (2021); X. Li, A. Li, B. Fang, K. Swirydowicz, I. Laguna, G. Gopalakrishnan, FTTN: Feature-Targeted
Testing for Numerical Properties of NVIDIA & AMD Matrix Accelerators (2024). Both ask matrix units in this way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from symattn.verification.summing.asking import Sum
from symattn.verification.summing.tree import NoTree, Tree

_MOST = 64  # digits
_NEAR = 0.2  # how far from the last digit what comes back may be, which is rounded once more
_NAMES = {8: "bfloat16", 11: "float16", 24: "float32", 53: "float64"}
Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Width:
    """The digits t of an accumulator, at least so many where ``more``, and whether it rounds to nearest, None where
    that does not show."""

    digits: int
    more: bool = False
    nearest: bool | None = None

    @property
    def words(self) -> str:
        """Digits, their format, and how it rounds."""
        if self.more:
            return f"{self.digits} digits or more"
        name = f", as {_NAMES[self.digits]} has" if self.digits in _NAMES else ""
        rounds = {True: ", rounded to nearest", False: ", cut off", None: ""}[self.nearest]
        return f"{self.digits} digits{name}{rounds}"

    def record(self) -> dict[str, object]:
        """As JSON holds it."""
        return {"digits": self.digits, "more": self.more, "nearest": self.nearest}


def widths(asked: Sum, tree: Tree) -> tuple[Width, Width]:
    """The accumulator where terms first meet, and the narrowest on the way to the whole sum.

    Raises ``NoTree`` where weights round the terms, and where all terms are added at once.
    """
    if not asked.numbers.exact:
        raise NoTree(
            f"each term is rounded by its weight, 1/{1 / asked.numbers.weight:g}; mend: as many as a power of two"
        )
    first, last = _triples(tree)
    inner = _width(asked, first)
    return inner, inner if first == last else _width(asked, last)


def _triples(tree: Tree) -> tuple[Triple, Triple]:
    """i and m that meet deepest, with a j that comes to them next, and with one that comes last."""
    depth = [sum(i in found for found in tree.subtrees) for i in range(tree.n)]
    i = int(np.argmax(depth))
    around = [found for found in tree.subtrees if i in found]
    if len(around) < 2:
        raise NoTree("all of its terms are added at once")
    m = min(around[0] - {i})
    return (i, m, min(around[1] - around[0])), (i, m, min(around[-1] - around[-2]))


def _width(asked: Sum, at: Triple) -> Width:
    """What survives beside the large term."""
    half = asked.numbers.large < 2.0**16
    large = asked.numbers.large if half else 1.0
    most = min(_MOST, 39 + int(np.log2(asked.numbers.weight))) if half else _MOST
    found = _left(asked, at, large, [2.0**-k for k in range(1, most + 1)])
    lost = np.flatnonzero(found == 0)
    if not np.isfinite(found).all() or not lost.size:
        return Width(most + 1, more=True)
    digits = int(lost[0]) + 1
    ties = [1.5 * 2.0**-digits]
    left = float(_left(asked, at, large, ties)[0]) * 2.0 ** (digits - 1)
    return Width(digits, nearest=True if abs(left - 1) < _NEAR else False if left == 0 else None)


def _left(asked: Sum, at: Triple, large: float, small: list[float]) -> np.ndarray:
    """What comes back of small terms, in units of the large one."""
    terms = np.zeros((asked.n, len(small)))
    i, m, j = at
    terms[i], terms[m], terms[j] = large, np.array(small) * large, -large
    return asked.sums(terms) / large
