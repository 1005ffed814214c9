"""Steps 2 to 6 of ``worst_case``, for each kind of number that the bound is evaluated in, and the counts they use.

``balls`` takes them in balls, ``float_worst_case`` in float64 rounded up, ``formula`` in letters, one for all keys:
these are the equations that ``priori`` evaluates. (``formula`` has 5 and 6 for single numbers.)
Names are those of the statement.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.formats import Format
from symattn.arrays.precision import Precision
from symattn.document.errors import Undecided

Number = Any  # balls, floats, arrays of these, or letters


# -- how many roundings a term of a row may pass: the numbers of ``worst_case`` that are counted -----------------------
class Counts:
    """Counts for rows of n keys (a sink counts as one) of which ``seen`` are allowed, an array (…, n_q, 1).

    ``values`` counts the roundings of a value before it meets its weight; ``uneven`` says that each row has values of
    its own.

    tiles         number of tiles after which the running result may be normalised
    merges        number of successive merges
    path          number of roundings that a term of the numerator passes together with others
    partial_sums  number of roundings of partial sums in all; None if their errors are not relative to the sums
    alone         number of roundings that a term of the numerator passes by itself, besides those of rescaling: s_j
    below         number of roundings that a term of the denominator passes, besides those of rescaling
    underflowing  κ: the number of operations on a term after its score
    """

    def __init__(
        self,
        precision: Precision,
        n: int,
        seen: np.ndarray,
        values: int = 0,
        uneven: bool = False,
    ) -> None:
        p, others = precision, np.maximum(seen - 1, 0)
        self.values = values
        # One key is one tile, with nothing to normalise in between.
        self.tiles = 0 if n <= 1 else n if p.tiles is None else min(n, p.tiles)
        self.merges = min(n - 1, p.merges)
        # h: the number of additions that a term of a sum over the keys passes.
        additions = np.full_like(seen, n) if p.accumulate.aligned else others
        if p.height is not None:
            additions = np.minimum(additions, p.height)
        self.path = additions + 4 * self.tiles
        relative = not (p.accumulate.aligned or values or uneven)
        self.partial_sums = others + 4 * self.tiles if relative else None
        self.alone = 3 + 2 * self.merges
        self.below = self.path + 1 + 2 * self.merges
        self.underflowing = 6 + n + 4 * self.tiles + 2 * self.merges

    def room(self, each: Any) -> Any:
        """Return 1 − merges · ``each``: what is left of 1 if each merge moves a log-sum-exp by this part of itself.

        Raises ``Undecided`` if little is left, as there is no bound then.
        """
        left = 1 - self.merges * each
        if not left > 0.05:
            raise Undecided("log-sum-exps that are merged may move without bound in this precision")
        return left


def limited_rescalings(times: Any, precision: Precision) -> Any:
    """Return B_j, limited to the precision's number of rescalings."""
    most = precision.rescalings
    return times if most is None else np.minimum(times, most)


def rate_of(u: Fraction) -> Fraction:
    """Return λ = u/(1 − u), at least |ln(1 + δ)| for |δ| ≤ u."""
    return u / (1 - u)


# -- steps 2 to 4 ------------------------------------------------------------------------------------------------------
class NumberKind(NamedTuple):
    """The operations of a kind of number besides + and ×: g(n), λ, the larger of two, the largest of each row; e^x − 1,
    e^x, the smaller of two, elementwise choice, conversion from floats, and naming a number by a letter."""

    g: Callable[[int, Format], Number]
    rate: Callable[[Format], Number]
    maximum: Callable[[Number, Number], Number]
    largest: Callable[[Number], Number] = lambda x: x
    grown: Callable[[Number], Number] = lambda x: x
    up: Callable[[Number], Number] = lambda x: x
    minimum: Callable[[Number, Number], Number] = min
    where: Callable[[Number, Number, Number], Number] = np.where
    lifted: Callable[[Number], Number] = lambda x: x
    named: Callable[[str, Number], Number] = lambda letter, x: x


class RuleGivens(NamedTuple):
    """The inputs of the rule. Each key: τ'_j, |t_j|, m − t_j and B_j. Each row: |m| and τ*. All: ln n and ε'.

    |t_j| and |m| include the shifts of rows. ``values`` is the error of a value, in exponents.
    """

    tau: Number
    size: Number
    fall: Number
    times: Number
    top: Number
    star: Number
    log_n: Number
    eps: Number
    values: Number = 0


class RuleExponents(NamedTuple):
    """r_j, r'_j and β*; a_j, s_j and b_j."""

    first: Number
    second: Number
    grown: Number
    a: Number
    alone: Number
    below: Number


def exponents(
    x: RuleGivens, precision: Precision, counts: Counts, numbers: NumberKind
) -> RuleExponents:
    """Return the errors of exponentials as summed, and those that numerator and denominator do not share.

    Raises ``Undecided`` if merged log-sum-exps may move without bound.
    """
    p, rate = precision, numbers.rate(precision.accumulate)
    two, three, four, six = (numbers.g(n, p.score) for n in (2, 3, 4, 6))
    # r_j of step 2.
    first = (
        (x.size + (x.top + 2 * x.star)) * two
        + (x.fall + 2 * x.star) * three
        + (x.times + 1) * x.eps
    )
    first = numbers.named("r", first)
    # b⁰_j of step 4.
    sums = (x.times + counts.below) * rate
    # β* of step 3.
    of_merging = (x.top + (x.log_n + 2 * x.star)) * four
    grown = numbers.largest(first + sums) + (of_merging + 2 * x.eps * x.log_n)
    grown = numbers.named("β", grown)
    common = x.log_n + 2 * x.star + grown
    logarithms = (x.log_n + grown) * (2 * x.eps)
    # r'_j of step 3a.
    second = numbers.named("r′", (x.fall + common) * three + x.eps)
    shared: Number = 0
    # Step 3b: all merges together, enlarged for log-sum-exps that merges moved before.
    if counts.merges:
        of_common = (x.size + (x.top + common)) * six
        merging = of_common + (logarithms + x.eps)
        room = counts.room(six + 2 * x.eps)
        shared = numbers.named("μ", merging * (counts.merges / room))
    # s_j of step 4.
    alone = (x.times + counts.alone) * rate + shared + x.values
    # b_j of step 4, and a_j with r'_j, where weights are exp(score − log-sum-exp).
    if p.lse:
        of_logarithm = (x.top + common) * four + logarithms
        shared = numbers.maximum(shared, first + second + of_logarithm)
    a = x.tau + (numbers.maximum(first, second) if p.lse else first)
    return RuleExponents(first, second, grown, a, alone, sums + shared)


def limit(precision: Precision) -> float:
    """Return the largest number that no intermediate result may exceed (H7)."""
    return min(
        float(f.largest) for f in (precision.score, precision.accumulate, precision.returned)
    )


def shared_out(
    terms: tuple[Number, Number, Number],
    sizes: tuple[Number, Number, Number],
    parts: tuple[Number, ...],
) -> dict[str, Number]:
    """Split W, the terms of S and those of G among the steps, in proportion to the parts of their exponents.

    ``sizes`` are a, s and b; ``parts`` the shares of scores and of rescaling's exponentials in a, of rescaling's
    products in s and b, and of the other roundings in s and in b.
    """
    (moved, apart, lost), (every, own, below) = terms, sizes
    scores, rescaling, again, single, added = parts
    # What rescaling and sums leave of an exponent is from merges; rounding may leave less than 0.
    own_left = np.maximum(own - again - single, 0) / own
    left = own_left, np.maximum(below - again - added, 0) / below
    return {
        "scores": moved * scores / every,
        "exponent": moved * (every - scores - rescaling) / every,
        "rescaling": moved * rescaling / every + apart * again / own + lost * again / below,
        "merging": apart * left[0] + lost * left[1],
        "sums": apart * single / own + lost * added / below,
    }


# -- steps 4 to 6 ------------------------------------------------------------------------------------------------------
def weighed(
    sizes: tuple[Number, Number, Number],
    moved: Number,
    away: Number,
    lost: Number,
    precision: Precision,
    counts: Counts,
    numbers: NumberKind,
) -> tuple[Number, Number, Number, Number]:
    """Return, by step 5, P, (G' − 1)(|o| + W + P), the factor G' e^{2λ_P}, and E.

    They follow from X, S, |o|, W, Y and Σ w_j (e^{b_j} − 1). M is W, the first two, and the factor times S + E, but for
    underflow.
    """
    (whole, apart, output), stored = sizes, numbers.rate(precision.stored)
    scaled, every = numbers.up(stored * 2), whole + apart
    # P of step 5: weights stored in the numerator alone, or in both sums.
    rounded = (away + moved) * numbers.up(stored)
    storage_error = numbers.maximum(rounded, every) * numbers.grown(stored)
    centre, lost = output + moved + storage_error, lost * scaled
    # E of step 4, for terms whose absolute values sum to ``every``
    of_path = numbers.lifted(counts.path) * numbers.rate(precision.accumulate)
    sums = numbers.grown(of_path) * every
    # The second form of E needs N u well below 1, and errors relative to partial sums.
    events, u = counts.partial_sums, float(precision.accumulate.u)
    if events is not None:
        small = events * u < 0.5
        share = numbers.lifted(np.where(small, events * u, 0.0))
        largest_output = every + (centre + apart)
        least = numbers.minimum(sums, share / (1 - share) / 2 * largest_output)
        sums = least if small.all() else numbers.where(small, least, sums)
    return storage_error, lost * centre, (lost + 1) * scaled, sums


def losses(precision: Precision, counts: Counts, rise: Number) -> tuple[Number, Number]:
    """Return κη and η_P for sums of exponentials of at least 1/``rise``."""
    p = precision
    return rise * (
        max(float(p.score.eta), float(p.accumulate.eta)) * counts.underflowing
    ), rise * p.lost


def underflow(
    lost: tuple[Number, Number],
    total: Number,
    largest: Number,
    n: Number,
    projected: Number,
    divisor: Number,
) -> Number:
    """Return how far step 6 moves the quotient, from κη and η_P, Σ|v|_j, n max |v|_j F, n, nrF and D."""
    every, weight = lost
    lost_outputs = (every + weight) / divisor * (total + largest)
    return lost_outputs + every * (projected + n) / divisor
