"""``TermSum``: a sum inside a user's function, probed by columns of terms, and the counts in its results.

With M at term i, −M at term j and 1 at all others, M swallows every 1 that is added before the two have met, and every
other 1 survives: the result is n − l(i, j). M is so large that M + n = M in the accumulator. A column holds at most as
many ones as can be counted exactly; if more are needed, several columns of the same pair share them.

Source: P. Xie, Y. Gao, Y. Wang, J. Xue, Revealing Floating-Point Accumulation Orders in Software/Hardware
Implementations, USENIX ATC 2025.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from symattn.verification.summing.tree import NoTree, Pair, Tree, rebuilt

Array = np.ndarray
CALLS = 96  # limit for one tree
_NEAR = 0.25  # tolerance of a count, which must be a whole number
_CHECKED = 128  # random pairs that a tree must explain
_SEED = 11


@dataclass(frozen=True)
class TermNumbers:
    """The numbers that terms consist of: M, the unit ``one``, and how many units may be ``alive`` in a column.

    ``weight`` is the factor by which the function multiplies each term; ``exact`` means that it is a power of two, so
    that the product is not rounded.
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
    """A sum of n terms inside a function.

    ``call`` takes terms (n, columns) and returns the sums, each times ``numbers.weight``, or raises ``NoTree``; the
    number of columns is fixed, since another number may be added in another order. ``calls`` counts the calls.
    ``first`` is the index of the first term, if those before it are masked.
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
        """Return the sums of the columns, in units of a term. Raises ``NoTree``."""
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
        """Return a column: M at i, −M at j, and 1 at the others that are alive."""
        column = np.where(alive, self.numbers.one, 0.0)
        column[i], column[j] = self.numbers.large, -self.numbers.large
        return column

    def counts(self, columns: Sequence[Array]) -> list[int]:
        """Return how many ones survive in each column. Raises ``NoTree`` if a sum is no count of ones."""
        values = self.sums(np.stack(columns, axis=1)) / self.numbers.one
        if not np.isfinite(values).all():
            raise NoTree("large terms that cancel give NaN or infinity")
        whole = np.rint(values)
        if (np.abs(values - whole) > _NEAR).any() or (whole < 0).any():
            raise NoTree("the remainder after large terms cancel is not a count of ones")
        return [int(x) for x in whole]

    def sizes(self, pairs: Sequence[Pair]) -> list[int]:
        """Return l(i, j) of each pair."""
        counts = self.counts([self.terms(i, j, alive) for i, j in pairs for alive in self._ones])
        per = len(self._ones)
        return [self.n - sum(counts[k : k + per]) for k in range(0, len(counts), per)]

    def tree(self) -> Tree:
        """Return the order of the sum, checked on further random pairs. Raises ``NoTree``."""
        alone = self.counts([np.where(alive, self.numbers.one, 0.0) for alive in self._ones])
        if alone != [int(alive.sum()) for alive in self._ones]:
            raise NoTree("equal terms do not add up to their number")
        result = rebuilt(self.n, self.sizes)
        if not self.explains(result):
            raise NoTree("further pairs of terms contradict every order")
        return result

    def explains(self, tree: Tree) -> bool:
        """Return whether a tree predicts the counts for random pairs, with other terms alive. Raises ``NoTree``."""
        rng = np.random.default_rng(_SEED)
        drawn = [self._drawn(rng) for _ in range(_CHECKED)]
        left = [int(alive.sum() - alive[list(tree.common(i, j))].sum()) for i, j, alive in drawn]
        return self.counts([self.terms(*d) for d in drawn]) == left

    def _drawn(self, rng: np.random.Generator) -> tuple[int, int, Array]:
        """Draw a pair, and some of the others, no more than may be alive."""
        i, j = rng.choice(self.n, 2, replace=False)
        alive = np.zeros(self.n, dtype=bool)
        alive[rng.choice(self.n, min(self.numbers.alive, self.n // 2), replace=False)] = True
        alive[[i, j]] = False
        return int(i), int(j), alive
