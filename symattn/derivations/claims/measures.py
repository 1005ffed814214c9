"""Similarity of two vectors: dot product, cosine, angle and distance, exact and ordered exactly; rounded digits.

Cosine, angle and distance are compared by a monotone function of them without roots: sign(a·b) (a·b)²/(|a|²|b|²) and
|a − b|². So the order is decided even if a root would leave the exact field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint

from symattn.arrays.field import approximation
from symattn.arrays.field.quotient import Quotient
from symattn.derivations.claims.reading import half_unit
from symattn.document.errors import InputError, Refused
from symattn.document.notation import Decimal, Node, Product, Words


def sums_of_rounded(texts: list[str], row: list[Quotient]) -> tuple[Quotient, Quotient]:
    """Return the smallest and the largest sum of nonnegative numbers that round to these digits."""
    units = list(map(half_unit, texts))
    low = sum((y for x, u in zip(row, units, strict=True) if (y := x - Quotient.of(u)).sign() > 0), Quotient.of(0))
    high = sum((x + Quotient.of(u) for x, u in zip(row, units, strict=True)), Quotient.of(0))
    return low, high


def rounded_example(texts: list[str], row: list[Quotient]) -> list[Quotient]:
    """Return weights of sum 1 that round to the digits, each at one share of its range, or []; 0 stays 0, if exact."""
    low, high = sums_of_rounded(texts, row)
    if low == high or any(x.sign() < 0 for x in row):
        return []
    share, result = (1 - low) / (high - low), list[Quotient]()
    for x, u in zip(row, map(half_unit, texts), strict=True):
        least = max(x - Quotient.of(u), Quotient.of(0))
        result.append(least + share * (x + Quotient.of(u) - least))
    possible = all(x.sign() > 0 or not half_unit(text) for x, text in zip(result, texts, strict=True))
    return result if possible and 0 <= share <= 1 else []


def rounds_to(x: Quotient, digits: str) -> bool:
    """Return whether x rounds to the digits."""
    gap, unit = abs(x - Quotient.of(digits)), Quotient.of(half_unit(digits))
    return not (gap - unit).sign() > 0


# -- digits that were rounded ------------------------------------------------------------------------------------------
MEASURES = ("dot", "cosine", "angle", "distance")
_DEGREES = {Fraction(1): (0, 180), Fraction(3, 4): (30, 150), Fraction(1, 2): (45, 135), Fraction(1, 4): (60, 120)}
_DIGITS = 6


@dataclass(frozen=True)
class Likeness:
    """A measured similarity: ``order`` increases with it; ``exact`` is None if only digits are known."""

    order: Quotient
    exact: Quotient | None
    digits: str
    unit: str = ""

    def node(self) -> Node:
        """Return the exact number, else its digits."""
        shown: Node = Decimal(self.digits) if self.exact is None else self.exact.notation()
        return Product((shown, Words(self.unit))) if self.unit else shown

    def rounded(self) -> Node:
        """Return the digits."""
        return Product((Decimal(self.digits), Words(self.unit))) if self.unit else Decimal(self.digits)

    @property
    def decimal(self) -> float:
        """The digits as a float."""
        return float(self.digits)

    RECORD = "exact, decimal"


def measured(measure: str, a: tuple[Quotient, ...], b: tuple[Quotient, ...], digits: int = _DIGITS) -> Likeness:
    """Return the similarity of two vectors, rounded to ``digits`` digits. Raises InputError if it is undefined."""
    if len(a) != len(b):
        raise InputError(f"vectors of {len(a)} and {len(b)} entries have no {measure}; hint: give as many to both")
    return _MEASURES[measure](a, b, digits)


def dot(a: tuple[Quotient, ...], b: tuple[Quotient, ...]) -> Quotient:
    """a·b."""
    return sum((x * y for x, y in zip(a, b, strict=True)), Quotient.of(0))


def _dot(a: tuple[Quotient, ...], b: tuple[Quotient, ...], digits: int) -> Likeness:
    s = dot(a, b)
    return Likeness(s, s, s.decimal(digits))


def _square_of_cosine(a: tuple[Quotient, ...], b: tuple[Quotient, ...]) -> Quotient:
    lengths = dot(a, a) * dot(b, b)
    if lengths.is_zero():
        raise InputError("a vector of zeros has no direction, and so no cosine or angle")
    s = dot(a, b)
    return s * abs(s) / lengths


def _cosine(a: tuple[Quotient, ...], b: tuple[Quotient, ...], digits: int) -> Likeness:
    signed = _square_of_cosine(a, b)
    return Likeness(signed, *_signed_root(signed, digits))


def _distance(a: tuple[Quotient, ...], b: tuple[Quotient, ...], digits: int) -> Likeness:
    gap = tuple(x - y for x, y in zip(a, b, strict=True))
    square = dot(gap, gap)
    return Likeness(-square, *_signed_root(square, digits))


def _angle(a: tuple[Quotient, ...], b: tuple[Quotient, ...], digits: int) -> Likeness:
    """Return the angle in degrees; with a root of a fraction as cosine, only multiples of 30 and 45 are rational."""
    signed = _square_of_cosine(a, b)
    square = signed.rational()
    if square == 0 or (square is not None and abs(square) in _DEGREES):
        degrees = 90 if not square else _DEGREES[abs(square)][square < 0]
        return Likeness(signed, Quotient.of(degrees), str(degrees), "°")

    def enclose(precision: int) -> Any:
        return _at(precision, lambda: _root_ball(signed).acos() * 180 / flint.arb.pi())

    return Likeness(signed, None, approximation.decimal(enclose, digits), "°")


def _signed_root(signed: Quotient, digits: int) -> tuple[Quotient | None, str]:
    """Return sign(x) √|x|, or None if it leaves the exact field, and its digits."""
    try:
        exact = abs(signed).sqrt() * signed.sign()
    except Refused:
        return None, approximation.decimal(lambda precision: _at(precision, lambda: _root_ball(signed)), digits)
    return exact, exact.decimal(digits)


def _root_ball(signed: Quotient) -> Any:
    """Return a ball around sign(x) √|x|, sharp enough for the working precision."""
    return abs(signed).arb(2 * flint.ctx.prec).sqrt() * signed.sign()


def _at(precision: int, work: Callable[[], object]) -> Any:
    with flint.ctx.workprec(2 * precision):
        return work()


_MEASURES: dict[str, Callable[[tuple[Quotient, ...], tuple[Quotient, ...], int], Likeness]] = {
    "dot": _dot,
    "cosine": _cosine,
    "angle": _angle,
    "distance": _distance,
}
SYMBOLS = {"dot": "dot", "cosine": "cos", "angle": "angle", "distance": "distance"}
