"""Numbers of a walk that have left the decided field: e^{tanh x}, tanh of a tanh, roots of sums of exponentials.

Of such a number a ball is known and no closed form that could be compared with another. Its digits are proven, its
equality with another number never is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from numbers import Rational
from typing import Any, NoReturn

import flint

from symattn.arrays.field.quotient import Quotient
from symattn.arrays.special import Forbidden, Undefined
from symattn.document.errors import Refused, Undecided

_TEN = flint.arb(10)


def _operator(operation: Callable[[Any, Any], object]) -> Callable[[Enclosed, object], Any]:
    """A method that computes with balls, at the precision of the number."""

    def method(self: Enclosed, other: object) -> Any:
        y = None if isinstance(other, (Forbidden, Undefined)) else ball_of(other, self.bits)
        if y is None:
            return NotImplemented
        with flint.ctx.workprec(self.bits):
            return taken(operation(self.ball, y), self.bits)

    return method


class Enclosed:
    """A real number known by a ball. ``+ − * /`` take exact numbers too; what is computed has the ball's precision."""

    __slots__ = ("ball", "bits")

    def __init__(self, ball: flint.arb, bits: int) -> None:
        self.ball = ball
        self.bits = bits

    __add__ = __radd__ = _operator(lambda x, y: x + y)
    __sub__, __rsub__ = _operator(lambda x, y: x - y), _operator(lambda x, y: y - x)
    __mul__ = __rmul__ = _operator(lambda x, y: x * y)
    __truediv__, __rtruediv__ = _operator(lambda x, y: x / y), _operator(lambda x, y: y / x)

    def __neg__(self) -> Any:
        return 0 - self

    def __abs__(self) -> Enclosed:
        with flint.ctx.workprec(self.bits):
            return Enclosed(abs(self.ball), self.bits)

    def apply(self, name: str) -> Enclosed:
        """exp, log, sqrt, tanh, … of the number. Raises Undecided where the ball does not say whether there is one."""
        with flint.ctx.workprec(self.bits):
            result = getattr(self.ball, name)()
        if not result.is_finite():
            raise Undecided(f"{name} of {self}: {self.bits} bits do not say")
        return Enclosed(result, self.bits)

    def overlaps(self, other: object) -> bool:
        """Return whether the number can be equal to another, by all that is known of them."""
        y = ball_of(other, self.bits)
        return y is not None and bool(self.ball.overlaps(y))

    def sign(self) -> int:
        """−1 or 1. Raises Undecided for a ball with 0 in it."""
        if self.ball.contains(0):
            raise Undecided(f"the sign of {self}: {self.bits} bits do not say")
        return 1 if self.ball > 0 else -1

    def is_zero(self) -> bool:
        """False, or Undecided."""
        return self.sign() == 0

    def __lt__(self, other: object) -> bool:
        return bool((self - other).sign() < 0)

    def __gt__(self, other: object) -> bool:
        return bool((self - other).sign() > 0)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def constant(self) -> None:
        """None: nothing is known of a closed form."""

    def rational(self) -> None:
        """None, likewise."""

    def arb(self, prec: int = 64) -> flint.arb:
        """The ball, as sharp as it is."""
        return self.ball

    def to_float(self) -> float:
        """The double nearest to the middle of the ball."""
        return float(self.ball.mid())

    def proven(self) -> int:
        """How many significant digits the ball proves; 0 where it has 0 in it."""
        return max(0, int(self.ball.rel_accuracy_bits() * 0.30102) - 1) if not self.ball.contains(0) else 0

    def decimal(self, digits: int = 6) -> str:
        """The number rounded to nearest with ``digits`` significant digits. Raises Undecided."""
        if not self.ball.contains(0):
            with flint.ctx.workprec(self.bits + 64):
                size = abs(self.ball)
                e = (size.log() / _TEN.log()).lower().floor().unique_fmpz()
                whole = e is not None and (size * _TEN ** (digits - 1 - e) + flint.arb(0.5)).floor().unique_fmpz()
            if whole:
                return _written("-" if self.ball < 0 else "", int(whole), int(e), digits)
        raise Undecided(f"{digits} digits of {self}")

    def shown(self, digits: int) -> str:
        """So many digits as are proven, at most ``digits``; ``<1e-50`` for a number with 0 in its ball."""
        for count in range(digits, 0, -1):
            try:
                return self.decimal(count)
            except Undecided:
                pass
        return f"<{self._bound()}"

    def _bound(self) -> str:
        with flint.ctx.workprec(64):
            top = abs(self.ball).upper()
            e = (top.log() / _TEN.log()).upper().ceil().unique_fmpz() if top > 0 else 0
        return f"1e{int(e):+03d}"

    def __str__(self) -> str:
        return str(self.ball.str(max(6, self.proven())))

    def __float__(self) -> NoReturn:
        raise Refused("a ball is not a float")


def ball_of(x: object, bits: int) -> flint.arb | None:
    """A ball around a number with about so many bits; None for what is no number."""
    if isinstance(x, Enclosed):
        return x.ball
    if isinstance(x, bool):
        return None
    if isinstance(x, (int, Rational)):
        x = Quotient.of(x)
    return x.arb(bits) if hasattr(x, "arb") else None


def taken(ball: object, bits: int) -> Any:
    """An element of a computation in balls: a ball without radius is the number itself."""
    if not isinstance(ball, flint.arb):
        return ball
    if not ball.is_exact():
        return Enclosed(ball, bits)
    man, exp = (int(part) for part in ball.man_exp())
    return Quotient.of(man * Fraction(2) ** exp)


def least_proven(elements: Iterable[object]) -> int | None:
    """The least number of digits that is proven of any of them; None where all are exact."""
    return min((x.proven() for x in elements if isinstance(x, Enclosed)), default=None)


def _written(sign: str, whole: int, e: int, digits: int) -> str:
    """± whole · 10^(e + 1 − digits) as digits, in the manner of ``%g``; whole may have a digit too many."""
    if whole >= 10**digits:
        whole, e = whole // 10, e + 1
    s = str(whole)
    if -4 <= e < digits:
        s = f"{s[: e + 1]}.{s[e + 1 :]}" if e >= 0 else "0." + "0" * (-e - 1) + s
        return sign + s.removesuffix(".")
    return sign + f"{s[0]}.{s[1:]}".removesuffix(".") + f"e{e:+03d}"
