"""Steps 2 to 4 of ``bounds``: exponents from scores, for the kinds of number that the bound is evaluated in.

``balls`` takes them in balls, ``priori`` in single numbers that stand for all keys. (``exponents`` has the same in
place, for large arrays of floats.) Names are those of the statement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from symattn.arrays.formats import Format
from symattn.arrays.precision import Precision
from symattn.verification.bounding.counts import Counts


@dataclass(frozen=True)
class Numbers:
    """What a kind of number offers beside + and ×: g(n), λ, the larger of two, the largest of each row."""

    g: Callable[[int, Format], Any]
    rate: Callable[[Format], Any]
    maximum: Callable[[Any, Any], Any]
    largest: Callable[[Any], Any]


@dataclass(frozen=True)
class Given:
    """Of each key: τ'_j, |t_j|, m − t_j and B_j. Of each row: |m| and τ*. Of all: ln n and ε'.

    |t_j| and |m| hold what rows may be shifted by. ``values`` is what a value brings along, in exponents.
    """

    tau: Any
    size: Any
    fall: Any
    times: Any
    top: Any
    star: Any
    log_n: Any
    eps: Any
    values: Any = 0.0


@dataclass(frozen=True)
class Exponents:
    """r_j, r'_j and β*; a_j, s_j and b_j."""

    first: Any
    second: Any
    grown: Any
    a: Any
    alone: Any
    below: Any


def exponents(x: Given, precision: Precision, counts: Counts, numbers: Numbers) -> Exponents:
    """Errors of exponentials as they are summed, and what numerator and denominator do not share.

    Raises ``Undecided`` where log-sum-exps that are merged may move without bound.
    """
    p, rate = precision, numbers.rate(precision.accumulate)
    two, three, four, six = (numbers.g(n, p.score) for n in (2, 3, 4, 6))
    first = (x.size + (x.top + 2 * x.star)) * two + (x.fall + 2 * x.star) * three + (x.times + 1) * x.eps
    sums = (x.times + counts.below) * rate
    grown = numbers.largest(first + sums) + ((x.top + (x.log_n + 2 * x.star)) * four + 2 * x.eps * x.log_n)
    common, logarithms = x.log_n + 2 * x.star + grown, (x.log_n + grown) * (2 * x.eps)
    second = (x.fall + common) * three + x.eps
    shared: Any = 0.0
    if counts.merges:
        merging = (x.size + (x.top + common)) * six + (logarithms + x.eps)
        shared = merging * (counts.merges / counts.room(six + 2 * x.eps))
    alone = (x.times + counts.alone) * rate + shared + x.values
    if p.lse:
        shared = numbers.maximum(shared, first + second + ((x.top + common) * four + logarithms))
    a = x.tau + (numbers.maximum(first, second) if p.lse else first)
    return Exponents(first, second, grown, a, alone, sums + shared)
