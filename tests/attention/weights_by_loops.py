"""Weights by loops over plain numbers: second computations that know nothing of arrays."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np

from tests.attention.by_loops import simplex, tsallis

SEEN = np.array([[True, True, True, True], [False, True, False, True], [False, False, False, False]])
#: No two keys of a row are equal, and no threshold is a score: floats decide the order as exact numbers do.
APART = [[0.75, -1.0, 0.5, 0.625], [0.25, 2.0, -1.0, 1.5], [0.125, 0.0, 1.0, 2.0]]


def rows(weigh: Any, seen: Any = SEEN) -> Any:
    """A function of the scores that a row may see, for each row; the others get 0."""

    def run(s: Any, *more: Any) -> Any:
        out = []
        for i, row in enumerate(s):
            some = [j for j in range(len(row)) if seen[i][j]]
            weights = dict(zip(some, weigh([row[j] for j in some], len(row), *more), strict=True))
            out.append([weights.get(j, mpmath.mpf(0)) for j in range(len(row))])
        return out

    return run


def nearest(row: Any, _: int) -> Any:
    """Sparsemax, which does not ask how many keys there are."""
    return simplex(row)


def halves(row: Any, _: int) -> Any:
    """1.5-entmax."""
    return tsallis(row)


def logsum(s: Any, sink: Any = None) -> Any:
    sums = [
        mpmath.fsum(mpmath.exp(x) for j, x in enumerate(row) if SEEN[i][j]) + (0 if sink is None else mpmath.exp(sink))
        for i, row in enumerate(s)
    ]
    return [[mpmath.log(z) if z else mpmath.mpf("-inf")] for z in sums]


def sigmoids(bias: Any) -> Any:
    return rows(
        lambda row, n: [
            1 / (1 + mpmath.exp(-x - (mpmath.log(1 / mpmath.mpf(n)) if bias is None else bias))) for x in row
        ]
    )


def rectified(power: Any) -> Any:
    return rows(lambda row, n: [(x if x > 0 else mpmath.mpf(0)) / mpmath.mpf(n) ** power for x in row])
