"""How many roundings a term of a row may pass: the numbers of ``worst_case`` that are counted, for both evaluations."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from symattn.arrays.precision import Precision
from symattn.document.errors import Undecided


@dataclass(frozen=True)
class Counts:
    """For rows of n keys (a sink counts as one) of which ``seen`` are allowed, an array (…, n_q, 1).

    ``values`` counts the roundings of a value before it meets its weight; ``uneven`` says that each row has values of
    its own.
    """

    precision: Precision
    n: int
    seen: np.ndarray
    values: int = 0
    uneven: bool = False

    @property
    def tiles(self) -> int:
        """After how many tiles the running result may be normalised."""
        given = self.precision.tiles
        return min(self.n, self.n if given is None else given) if self.n > 1 else 0

    @property
    def merges(self) -> int:
        """How many merges one after another."""
        return min(self.n - 1, self.precision.merges)

    def rescalings(self, found: Any) -> Any:
        """B_j, at most as many as the precision says."""
        most = self.precision.rescalings
        return found if most is None else np.minimum(found, most)

    @property
    def additions(self) -> np.ndarray:
        """h: how many additions a term of a sum over the keys passes."""
        every = np.full_like(self.seen, self.n) if self.precision.accumulate.aligned else np.maximum(self.seen - 1, 0)
        return every if self.precision.height is None else np.minimum(every, self.precision.height)

    @property
    def path(self) -> np.ndarray:
        """How many roundings a term of the numerator passes together with others."""
        return self.additions + 4 * self.tiles

    @property
    def partial_sums(self) -> np.ndarray | None:
        """How many roundings of partial sums there are in all; None where their errors are not relative to the sums."""
        if self.precision.accumulate.aligned or self.values or self.uneven:
            return None
        return np.asarray(np.maximum(self.seen - 1, 0) + 4 * self.tiles)

    @property
    def alone(self) -> int:
        """How many roundings a term of the numerator passes by itself, besides those of rescaling: s_j."""
        return 3 + 2 * self.merges

    @property
    def below(self) -> np.ndarray:
        """How many roundings a term of the denominator passes, besides those of rescaling."""
        return self.additions + 1 + 4 * self.tiles + 2 * self.merges

    def room(self, each: Any) -> Any:
        """1 − merges · ``each``: what is left of 1 if a log-sum-exp moves by this part of itself at each merge.

        Raises ``Undecided`` where little is left: then nothing is said.
        """
        left = 1 - self.merges * each
        if not left > 0.05:
            raise Undecided("log-sum-exps that are merged may move without bound in this precision")
        return left

    @property
    def underflowing(self) -> int:
        """κ: how many operations touch a term after its score."""
        return 6 + self.n + 4 * self.tiles + 2 * self.merges


def rate_of(u: Fraction) -> Fraction:
    """λ = u/(1 − u), at least |ln(1 + δ)| for |δ| ≤ u."""
    return u / (1 - u)
