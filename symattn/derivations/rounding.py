"""Weights rounded to a few decimals: to nearest, or so that every row keeps its sum. All decided exactly."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import flint

from symattn.arrays.field.quotient import Quotient
from symattn.derivations.walks_elements import flat, is_number
from symattn.errors import InputError, Undecided

ROUNDINGS = ("exact", "nearest", "sum")
_LIMIT = 1 << 14  # bits


def floor(x: Any) -> int:
    """⌊x⌋, decided: an irrational number is never a whole one, so that some precision tells."""
    rational = x.rational()
    if rational is not None:
        return int(rational // 1)
    precision = 64
    while precision <= _LIMIT:
        with flint.ctx.workprec(precision):
            whole = x.arb(precision).floor().unique_fmpz()
        if whole is not None:
            return int(whole)
        precision *= 2
    raise Undecided(f"the whole part of {x} at {_LIMIT} bits")


def nearest(x: Any, places: int) -> Quotient:
    """x to the nearest multiple of 10^−places; halfway, to the even one."""
    unit = Fraction(1, 10**places)
    scaled = x * 10**places
    rational = scaled.rational()
    whole = floor(scaled + Fraction(1, 2)) if rational is None else round(rational)
    return Quotient.of(whole * unit)


def keeping_sum(row: Sequence[Any], places: int) -> list[Quotient]:
    """The row in multiples of 10^−places with the sum of the row, by largest remainders.

    Every entry is rounded down; what is missing from the sum (a multiple of 10^−places, or InputError) goes, a unit
    each, to the entries with the largest remainders, the earlier one where they are equal.
    Source: Balinski, Young, Fair Representation (1982), the method of Hamilton.
    """
    scaled = [x * 10**places for x in row]
    total = sum(scaled, Quotient.of(0)).rational()
    if total is None or total.denominator != 1:
        shown = sum(row, Quotient.of(0))
        raise InputError(f"a row with the sum {shown} has no rounding to {places} places that keeps it")
    whole = [floor(x) for x in scaled]
    remainders = [x - n for x, n in zip(scaled, whole, strict=True)]
    for j in _largest(remainders, int(total) - sum(whole)):
        whole[j] += 1
    return [Quotient.of(Fraction(n, 10**places)) for n in whole]


def _largest(xs: Sequence[Any], count: int) -> list[int]:
    """The places of the ``count`` largest, earlier ones first among equals."""
    left = list(range(len(xs)))
    taken = []
    for _ in range(count):
        best = left[0]
        for j in left[1:]:
            if xs[best] < xs[j]:
                best = j
        left.remove(best)
        taken.append(best)
    return taken


def rounded(weights: Any, how: str, places: int) -> Any:
    """Nested rows of weights rounded as ``how`` says; a row that is undefined stays as it is."""
    if weights and isinstance(weights[0], (list, tuple)):
        return [rounded(row, how, places) for row in weights]
    if how == "exact" or not all(map(is_number, flat(weights))):
        return list(weights)
    return keeping_sum(weights, places) if how == "sum" else [nearest(x, places) for x in weights]
