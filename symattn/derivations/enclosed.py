"""Numbers of a walk outside the decidable field: e^{tanh x}, tanh of a tanh, roots of sums of exponentials.

Such a number is known by a ball, without a closed form that could be compared with another. Its digits can be proven,
its equality with another number never. The notation of one element is a formula, digits, or its JSON form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from numbers import Rational
from typing import Any, NoReturn

import flint

from symattn.arrays.field.approximation import ball_decimal
from symattn.arrays.field.quotient import Quotient
from symattn.arrays.shown import formula
from symattn.arrays.special import Forbidden, Undefined
from symattn.document.errors import Refused, Undecided
from symattn.document.notation import Decimal, Node, Words


def _make_ball_operator(
    operation: Callable[[Any, Any], object],
) -> Callable[[Enclosed, object], Any]:
    """Return a method that computes with balls, at the precision of the number."""

    def method(self: Enclosed, other: object) -> Any:
        y = None if isinstance(other, (Forbidden, Undefined)) else ball_of(other, self.bits)
        if y is None:
            # Python then tries the operation of the other operand.
            return NotImplemented
        with flint.ctx.workprec(self.bits):
            return taken(operation(self.ball, y), self.bits)

    return method


class Enclosed:
    """A real number known by a ball. ``+ − * /`` take exact numbers too; results have the ball's precision."""

    __slots__ = ("ball", "bits")

    def __init__(self, ball: flint.arb, bits: int) -> None:
        self.ball = ball
        self.bits = bits

    __add__ = __radd__ = _make_ball_operator(lambda x, y: x + y)
    __sub__, __rsub__ = (
        _make_ball_operator(lambda x, y: x - y),
        _make_ball_operator(lambda x, y: y - x),
    )
    __mul__ = __rmul__ = _make_ball_operator(lambda x, y: x * y)
    __truediv__, __rtruediv__ = (
        _make_ball_operator(lambda x, y: x / y),
        _make_ball_operator(lambda x, y: y / x),
    )

    def __neg__(self) -> Any:
        return 0 - self

    def __abs__(self) -> Enclosed:
        with flint.ctx.workprec(self.bits):
            return Enclosed(abs(self.ball), self.bits)

    def apply(self, name: str) -> Enclosed:
        """Return exp, log, sqrt, tanh, … of the number. Raises Undecided if the ball allows undefined values."""
        with flint.ctx.workprec(self.bits):
            result = getattr(self.ball, name)()
        # Not finite: part of the ball is outside of the domain, or bits are too few.
        if not result.is_finite():
            raise Undecided(f"{name} of {self}: {self.bits} bits do not say")
        return Enclosed(result, self.bits)

    def overlaps(self, other: object) -> bool:
        """Return whether the number's ball overlaps another number or its ball."""
        y = ball_of(other, self.bits)
        return y is not None and bool(self.ball.overlaps(y))

    def sign(self) -> int:
        """Return −1 or 1. Raises Undecided for a ball that contains 0."""
        if self.ball.contains(0):
            raise Undecided(f"the sign of {self}: {self.bits} bits do not say")
        return 1 if self.ball > 0 else -1

    def is_zero(self) -> bool:
        """Return False. Raises Undecided for a ball that contains 0."""
        # A ball with 0 has no sign, so a sign is never 0.
        return self.sign() == 0

    def __lt__(self, other: object) -> bool:
        return bool((self - other).sign() < 0)

    def __gt__(self, other: object) -> bool:
        return bool((self - other).sign() > 0)

    def __eq__(self, other: object) -> bool:
        # Identity: equality of balls would be no equality of numbers.
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def constant(self) -> None:
        """Return None, as no closed form is known."""

    def rational(self) -> None:
        """Return None, likewise."""

    def arb(self, prec: int = 64) -> flint.arb:
        """Return the ball, however sharp it is."""
        return self.ball

    def to_float(self) -> float:
        """Return the double nearest to the midpoint of the ball."""
        return float(self.ball.mid())

    def proven(self) -> int:
        """Return how many significant digits the ball proves; 0 if it contains 0."""
        # Digits per bit, rounded down, less one for the rounding of the last digit.
        return (
            max(0, int(self.ball.rel_accuracy_bits() * 0.30102) - 1)
            if not self.ball.contains(0)
            else 0
        )

    def decimal(self, digits: int = 6) -> str:
        """Return the number rounded to nearest with ``digits`` significant digits. Raises Undecided."""
        if not self.ball.contains(0) and (
            # More bits than the ball has, so that rounding adds no doubt.
            result := ball_decimal(self.ball, digits, self.bits + 64)
        ):
            return result
        raise Undecided(f"{digits} digits of {self}")

    def shown(self, digits: int) -> str:
        """Return the proven digits, at most ``digits``; ``<1e-50`` for a number whose ball contains 0."""
        # Fewer digits may be decided where more are not.
        for count in range(digits, 0, -1):
            try:
                return self.decimal(count)
            except Undecided:
                pass
        with flint.ctx.workprec(64):
            top = abs(self.ball).upper()
            # The power of ten above the whole ball.
            e = 0
            if top > 0:
                decimal_exponent = top.log() / flint.arb(10).log()
                e = decimal_exponent.upper().ceil().unique_fmpz()
        return f"<1e{int(e):+03d}"

    def __str__(self) -> str:
        return str(self.ball.str(max(6, self.proven())))

    def __float__(self) -> NoReturn:
        raise Refused("a ball is not a float")


def ball_of(x: object, bits: int) -> flint.arb | None:
    """Return a ball around a number with about ``bits`` bits; None for anything else."""
    if isinstance(x, Enclosed):
        return x.ball
    # A truth value is an integer for Python, and no number here.
    if isinstance(x, bool):
        return None
    if isinstance(x, (int, Rational)):
        x = Quotient.of(x)
    return x.arb(bits) if hasattr(x, "arb") else None


def taken(ball: object, bits: int) -> Any:
    """Return an element computed in balls as an array element; an exact ball becomes an exact number."""
    if not isinstance(ball, flint.arb):
        return ball
    if not ball.is_exact():
        return Enclosed(ball, bits)
    # A ball without radius is an exact dyadic number.
    man, exp = (int(part) for part in ball.man_exp())
    return Quotient.of(man * Fraction(2) ** exp)


def least_proven(elements: Iterable[object]) -> int | None:
    """Return the smallest number of proven digits of any element; None if all are exact."""
    return min((x.proven() for x in elements if isinstance(x, Enclosed)), default=None)


_DOUBLE = 15  # digits that a double holds
_FAR = 9999  # beyond this power of ten, digits are of no use


def nested(function: Callable[[Any], object], entries: object) -> Any:
    """Apply ``function`` to every entry of nested lists, and return nested tuples."""
    if isinstance(entries, (list, tuple)):
        return tuple(nested(function, entry) for entry in entries)
    return function(entries)


def is_number(x: object) -> bool:
    """Return whether the element is an exact number: neither −∞, undefined, a truth value nor a table's integer."""
    return not isinstance(x, (int, Forbidden, Undefined))


def digits(x: Any, count: int) -> Any:
    """Return the element rounded to ``count`` significant digits, for a column of decimals."""
    if not is_number(x):
        return formula(x)
    if isinstance(x, Enclosed):
        if x.ball.contains(0):
            return Words(x.shown(count))
        return x.shown(count)
    try:
        shown = str(x.decimal(count))
    except (
        Undecided
    ):  # e.g. 1 − e^(−10¹²): so near to a round number that no ball decides on which side it is
        shown = f"{x.to_float():.{min(count, _DOUBLE)}g}"
    power = shown.partition("e")[2]
    if power and abs(int(power)) > _FAR:
        return Words(f"<1e-{_FAR}" if power[0] == "-" else f"beyond 1e{_FAR}")
    return shown


def decimal(x: object, count: int) -> Node:
    """Return the digits as a part of a formula."""
    shown = digits(x, count)
    return shown if isinstance(shown, Node) else Decimal(shown)


def exact_json(x: object) -> Any:
    """Return a string that ``sympy.sympify`` reads, ``-oo`` for −∞, None for undefined and enclosed numbers."""
    if isinstance(x, int):
        return x
    if isinstance(x, Forbidden):
        return "-oo"
    return None if isinstance(x, (Undefined, Enclosed)) else str(x)


def ball_json(x: object) -> Any:
    """Return the ball of an enclosed number, ``[0.3127 +/- 4.2e-70]``; None for an exact number."""
    return str(x) if isinstance(x, Enclosed) else None


def decimal_json(x: Any) -> Any:
    """Return the nearest double, or digits as a string beyond the range of doubles."""
    if isinstance(x, int):
        return x
    if not is_number(x):
        return "-inf" if isinstance(x, Forbidden) else None
    double = x.to_float()
    if isinstance(x, Enclosed):
        return double
    infinite = double in (float("inf"), float("-inf"))
    beyond = infinite or (double == 0.0 and not x.is_zero())
    return x.decimal(17) if beyond else double
