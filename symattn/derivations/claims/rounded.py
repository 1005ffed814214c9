"""Digits that were rounded: what exact numbers they can stand for."""

from __future__ import annotations

from fractions import Fraction

from symattn.arrays.field.quotient import Quotient
from symattn.derivations.claims.reading import half_unit


def rows(texts: list[str], row: list[Quotient]) -> tuple[Quotient, Quotient]:
    """The smallest and the largest sum of numbers that are none of them negative and round to these digits."""
    units = list(map(half_unit, texts))
    low = sum((_not_negative(x - Quotient.of(u)) for x, u in zip(row, units, strict=True)), Quotient.of(0))
    high = sum((x + Quotient.of(u) for x, u in zip(row, units, strict=True)), Quotient.of(0))
    return low, high


def example(texts: list[str], row: list[Quotient]) -> list[Quotient]:
    """Positive numbers of sum 1 that round to the digits, all moved by the same share of their half units; or none."""
    units = list(map(half_unit, texts))
    gap, room = 1 - sum(row, Quotient.of(0)), Quotient.of(sum(units, Fraction(0)))
    if room.is_zero():
        return []
    share = gap / room
    found = [x + share * Quotient.of(u) for x, u in zip(row, units, strict=True)]
    within = share <= Quotient.of(1) and share >= Quotient.of(-1)
    return found if within and all(x.sign() > 0 for x in found) else []


def rounds_to(x: Quotient, digits: str) -> bool:
    """Whether the digits are x, rounded."""
    gap, unit = abs(x - Quotient.of(digits)), Quotient.of(half_unit(digits))
    return not (gap - unit).sign() > 0


def _not_negative(x: Quotient) -> Quotient:
    return x if x.sign() > 0 else Quotient.of(0)
