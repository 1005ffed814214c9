"""``Computed``: balls that are rounded after every operation, like floating-point numbers.

``in_format`` rounds to nearest in a number format, ties to even; infinities and NaN are those of IEEE 754. ``in_model``
multiplies each result by (1 + δ) with an arbitrary |δ| ≤ u: the model of Muller et al., Handbook of Floating-Point
Arithmetic (2010), section 5.1. Sums are taken one term at a time, in an arbitrary order.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any, ClassVar, Self

import flint
import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.formats import Format
from symattn.arrays.namespace import Namespace
from symattn.arrays.planes import Planes
from symattn.arrays.special import Undefined
from symattn.document.errors import Undecided

Rounding = Callable[[str, Any], Any]
"""(operation, exact result) → computed result."""


class Computed(Ball):
    """Arrays of balls that are rounded after each operation. Inputs are not rounded; neither are products with 1 or −1
    and sums with 0, which are exact."""

    holds = "balls, rounded after each operation"
    rounding: ClassVar[Rounding]
    order: ClassVar[Random]

    @classmethod
    def after(cls, operation: str, exact: Self) -> Self:
        """Round every element."""
        return cls(cls.each(lambda x: cls.rounding(operation, x), exact))

    @classmethod
    def _add(cls, a: Self, b: Self) -> Self:
        def add(x: Any, y: Any) -> Any:
            # Sums with 0 are exact in every format.
            return x + y if 0 in (x, y) else cls.rounding("+", x + y)

        return cls(cls.each(add, a, b))

    @classmethod
    def _mul(cls, a: Self, b: Self) -> Self:
        exact = (1, -1)
        return cls(
            cls.each(
                lambda x, y: x * y if x in exact or y in exact else cls.rounding("×", x * y), a, b
            )
        )

    @classmethod
    def _div(cls, a: Self, b: Self) -> Self:
        return cls.after("/", super()._div(a, b))

    @classmethod
    def _unary(cls, name: str, a: Self) -> Self:
        return cls.after(name, super()._unary(name, a))

    @classmethod
    def _sum(cls, a: Self, axis: int) -> Self:
        parts = np.moveaxis(a.entries, axis, 0)
        terms = [cls(np.asarray(part, dtype=object)) for part in parts]
        if not terms:
            return super()._sum(a, axis)
        # The order of additions is what an implementation may choose.
        total, *others = cls.order.sample(terms, len(terms))
        for term in others:
            total = cls._add(total, term)
        return total

    _matmul = vars(Planes)["_matmul"]  # term by term, not by Arb's matrices


def in_format(f: Format) -> type[Computed]:
    """Return the kind with the arithmetic of a number format, each operation correctly rounded."""
    return _make_computed_kind(lambda _, x: nearest(f, x), Random(0))


def in_model(u: Any, powers: int, dice: Random) -> type[Computed]:
    """Return a kind whose relative errors are at most u, and for the exponential a factor (1 − u)^±``powers``."""
    # All errors at one end, at either end, or anywhere between: extremes come from the ends.
    shares = dice.choice([(8,), (-8,), (8, -8), range(-8, 9)])

    def rounding(operation: str, x: Any) -> Any:
        share = Ball.scalar(Fraction(dice.choice(shares), 8))
        return x * ((1 - u) ** (share * powers) if operation == "exp" else 1 + share * u)

    return _make_computed_kind(rounding, dice)


def _make_computed_kind(rounding: Rounding, order: Random) -> type[Computed]:
    class RoundedResult(Computed):
        pass

    RoundedResult.rounding, RoundedResult.order = staticmethod(rounding), order
    RoundedResult.xp = Namespace(RoundedResult)
    return RoundedResult


def nearest(f: Format, x: Any) -> Any:
    """Return the number of the format nearest to that in a ball; ±∞ and NaN stay, 0/0 is NaN. Raises Undecided."""
    if isinstance(x, Undefined):
        return flint.arb("nan")
    if not x.is_finite():
        return x
    # Far beyond the range rounding would form huge integers.
    if abs(x) > Ball.scalar(2 * f.power_beyond):
        return flint.arb("inf" if x > 0 else "-inf")
    if abs(x) < Ball.scalar(f.smallest / 4):
        return flint.arb(0)
    ends = (x.lower(), x.upper())
    low, high = (f.nearest(exactly(end)) for end in ends)
    # A tie inside the ball, which more bits may decide.
    if low != high:
        raise Undecided(f"{f.name}: what is {x} rounded to?")
    return flint.arb(low) if isinstance(low, float) else Ball.scalar(low)


def exactly(x: Any) -> Fraction:
    """Return the number in an exact ball, a dyadic one."""
    digits, exponent = x.man_exp()
    return Fraction(int(digits)) * Fraction(2) ** int(exponent)
