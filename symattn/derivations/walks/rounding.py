"""Weights rounded to a few decimals: to nearest, or so that every row keeps its sum. All decided exactly."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import flint

from symattn.arrays.array import Array
from symattn.arrays.field.quotient import Quotient
from symattn.attention.codec.exact_arrays import flat
from symattn.derivations.elements import is_number
from symattn.derivations.enclosed import Enclosed
from symattn.document.errors import InputError

ROUNDINGS = ("exact", "nearest", "sum")


def floor(x: Any) -> int:
    """⌊x⌋: from a ball, and by an exact comparison where the ball holds a whole number."""
    rational = x.rational()
    if rational is not None:
        return int(rational // 1)
    bits = 64 + max(0, int(Quotient.of(abs(x).to_float()).rational() or 0).bit_length())
    with flint.ctx.workprec(bits):
        ball = x.arb(bits)
        low, high = (int(end.floor().unique_fmpz()) for end in (ball.lower(), ball.upper()))
    return low if low == high or x < high else high


def nearest(x: Array, places: int) -> Quotient:
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
    if any(isinstance(x, Enclosed) for x in row):
        raise InputError("weights that only balls are known of have no exact sum to keep; hint: --rounding nearest")
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
