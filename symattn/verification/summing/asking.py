"""``TermSum``: a sum that somebody's function takes, asked through columns of terms, and the counts in its results.

With M at term i, −M at term j and 1 at all others, M swallows every 1 that is added before the two have met, and every
other 1 survives: the result is n − l(i, j). M is so large that M + n = M in the accumulator, and no more ones are alive
in a column than come back exactly; where more are needed, several columns of the same pair share them.

Source: P. Xie, Y. Gao, Y. Wang, J. Xue, Revealing Floating-Point Accumulation Orders in Software/Hardware
Implementations, USENIX ATC 2025.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from symattn.verification.summing.tree import NoTree, Pair, Tree, rebuilt

Array = np.ndarray
CALLS = 96  # at most, for one tree
_NEAR = 0.25  # how far from a whole number a count may be
_CHECKED = 128  # pairs at random that a tree has to explain
_SEED = 11


@dataclass(frozen=True)
class TermNumbers:
    """The numbers that terms are made of: M, what stands for 1, and how many of these may be alive in a column.

    ``weight`` is what the function multiplies each term by, and ``exact`` whether that is a power of two, so that
    nothing is rounded by it.
    """

    large: float
    one: float
    alive: int
    weight: float = 1.0

    @property
    def exact(self) -> bool:
        """Return whether the weight is a power of two."""
        return float(np.frexp(self.weight)[0]) == 0.5

    @staticmethod
    def of(format: str, n: int, weight: float = 1.0) -> TermNumbers:
        """Return the numbers of a format, for n terms.

        In float16, M = 2¹⁵ and sums of ones stay below 2⁻²⁵ M, so that float32 loses them; wider accumulators
        lose nothing there.
        """
        exact = TermNumbers(1.0, 1.0, 1, weight).exact
        if format == "float16":
            one = 2.0 ** min(-14, int(np.ceil(np.log2(1 / weight))) - (24 if exact else 21))
            return TermNumbers(2.0**15, one, max(1, min(2048 if exact else 32, int(2.0**-10 / one))), weight)
        large = 2.0**500 if format == "float64" else 2.0**100
        return TermNumbers(large, 1.0, (256 if exact else 32) if format == "bfloat16" else n, weight)


@dataclass
class TermSum:
    """A sum of n terms: ``call`` takes terms (n, columns), always as many columns, since other numbers of them may be
    added in another order, and gives the sums, each times ``numbers.weight``; it raises ``NoTree`` where it does not.
    ``calls`` counts what was asked. ``first`` is the number of the first term among all, of which others are masked.
    """

    n: int
    columns: int
    numbers: TermNumbers
    call: Callable[[Array], Array]
    calls: int = 0
    first: int = 0
    _ones: list[Array] = field(init=False)

    def __post_init__(self) -> None:
        groups = np.array_split(np.arange(self.n), -(-self.n // self.numbers.alive))
        self._ones = [np.isin(np.arange(self.n), group) for group in groups]

    def sums(self, terms: Array) -> Array:
        """The sums of the columns, in units of a term. Raises ``NoTree``."""
        count = terms.shape[1]
        full = np.pad(terms, ((0, 0), (0, -count % self.columns)))
        result = []
        for start in range(0, count, self.columns):
            if self.calls >= CALLS:
                raise NoTree(f"{CALLS} calls do not tell its order")
            self.calls += 1
            result.append(self.call(full[:, start : start + self.columns]))
        return np.concatenate(result)[:count] / self.numbers.weight if result else np.zeros(0)

    def terms(self, i: int, j: int, alive: Array) -> Array:
        """A column: M at i, −M at j, and 1 at the others that are alive."""
        column = np.where(alive, self.numbers.one, 0.0)
        column[i], column[j] = self.numbers.large, -self.numbers.large
        return column

    def counts(self, columns: Sequence[Array]) -> list[int]:
        """How many ones survive in each column. Raises ``NoTree`` where that is no number of ones."""
        values = self.sums(np.stack(columns, axis=1)) / self.numbers.one
        if not np.isfinite(values).all():
            raise NoTree("large terms that cancel give NaN or infinity")
        whole = np.rint(values)
        if (np.abs(values - whole) > _NEAR).any() or (whole < 0).any():
            raise NoTree("the remainder after large terms cancel is not a count of ones")
        return [int(x) for x in whole]

    def sizes(self, pairs: Sequence[Pair]) -> list[int]:
        """l(i, j) of each pair."""
        counts = self.counts([self.terms(i, j, alive) for i, j in pairs for alive in self._ones])
        per = len(self._ones)
        return [self.n - sum(counts[k : k + per]) for k in range(0, len(counts), per)]

    def tree(self) -> Tree:
        """The order of the sum, which has explained further pairs, drawn at random. Raises ``NoTree``."""
        alone = self.counts([np.where(alive, self.numbers.one, 0.0) for alive in self._ones])
        if alone != [int(alive.sum()) for alive in self._ones]:
            raise NoTree("equal terms do not add up to their number")
        result = rebuilt(self.n, self.sizes)
        if not self.explains(result):
            raise NoTree("further pairs of terms contradict every order")
        return result

    def explains(self, tree: Tree) -> bool:
        """Return whether a tree says what is left beside pairs at random, with other terms alive. Raises ``NoTree``."""
        rng = np.random.default_rng(_SEED)
        drawn = [self._drawn(rng) for _ in range(_CHECKED)]
        left = [int(alive.sum() - alive[list(tree.common(i, j))].sum()) for i, j, alive in drawn]
        return self.counts([self.terms(*d) for d in drawn]) == left

    def _drawn(self, rng: np.random.Generator) -> tuple[int, int, Array]:
        """A pair, and some of the others, no more than may be alive."""
        i, j = rng.choice(self.n, 2, replace=False)
        alive = np.zeros(self.n, dtype=bool)
        alive[rng.choice(self.n, min(self.numbers.alive, self.n // 2), replace=False)] = True
        alive[[i, j]] = False
        return int(i), int(j), alive
