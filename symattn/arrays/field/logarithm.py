"""Logarithms before an exp: c + log f, which log-sum-exp needs and the decided field does not contain."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import total_ordering
from numbers import Rational
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

from symattn.arrays.field import approximation, surds
from symattn.arrays.field.quotient import (
    ONE_ELEMENT,
    Quotient,
    brief,
    constant,
    rational_times_power,
)
from symattn.arrays.functions import FUNCTIONS
from symattn.document.errors import Refused
from symattn.document.notation import Node, call

if TYPE_CHECKING:
    import flint


@total_ordering
class Logarithm:
    """c + log f with exact c and exact f > 0, where f is not e^k for a k in K: ``logarithm`` simplifies those.

    Sums and differences with exact numbers and logarithms, and multiples by an integer, are again exact numbers or
    logarithms. Of the functions only ``exp`` (and tanh) lead back: exp(c + log f) = e^c f.

    For c in K the number is not 0, since that means f = e^(−c), so Arb finds its sign. For other c this is not known,
    and a number that no precision separates from 0 raises Undecided.
    """

    __slots__ = ("c", "f")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, c: Quotient, f: Quotient) -> None:
        self.c = c
        self.f = f

    def __add__(self, other: object) -> Quotient | Logarithm:
        # Terms in log f join under one logarithm, so that equal ones cancel.
        if isinstance(other, Logarithm):
            return logarithm(self.c + other.c, self.f * other.f)
        return (
            Logarithm(self.c + Quotient.of(other), self.f)
            if _is_exact_number(other)
            else NotImplemented
        )

    __radd__ = __add__

    def __neg__(self) -> Logarithm:
        return Logarithm(-self.c, ONE_ELEMENT / self.f)

    def __pos__(self) -> Logarithm:
        return self

    def __sub__(self, other: object) -> Quotient | Logarithm:
        return self + -other if _is_number(other) else NotImplemented

    def __rsub__(self, other: object) -> Quotient | Logarithm:
        return -self + other if _is_exact_number(other) else NotImplemented

    def __mul__(self, other: object) -> Quotient | Logarithm:
        if not _is_number(other):
            return NotImplemented
        # Multiples by other numbers are roots or powers outside the field.
        r = None if isinstance(other, Logarithm) else Quotient.of(other).rational()
        if r is None or r.denominator != 1:
            raise Refused(
                f"exact: ({brief(self)})*({brief(other)}): a logarithm takes integer multiples only; use ball"
            )
        return logarithm(self.c * r, self.f ** int(r))

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> Quotient | Logarithm:
        # Any quotient by a logarithm is refused, in words that name both numbers.
        if isinstance(other, Logarithm):
            return other.__rtruediv__(self)
        return (
            self * (ONE_ELEMENT / Quotient.of(other)) if _is_exact_number(other) else NotImplemented
        )

    def __rtruediv__(self, other: object) -> NoReturn:
        raise Refused(
            f"exact: ({brief(other)})/({brief(self)}): division by a logarithm is not in the decided field; use ball"
        )

    def __abs__(self) -> Logarithm:
        return -self if self.sign() < 0 else self

    def exp(self) -> Quotient:
        """e^c f, for c in K."""
        return self.c.exp() * self.f

    def tanh(self) -> Quotient:
        """(e^{2x} − 1) / (e^{2x} + 1), for c in K."""
        e = self.exp() ** 2
        return (e - ONE_ELEMENT) / (e + ONE_ELEMENT)

    def is_zero(self) -> bool:
        """Return whether the number is 0, which is False or raises Undecided."""
        return self.sign() == 0

    def __bool__(self) -> bool:
        return not self.is_zero()

    def sign(self) -> int:
        """Return −1 or 1. Raises Undecided."""
        # For c in K it is not 0, as f = e^−c would be a plain number by ``logarithm``.
        return approximation.sign(self._enclose_logarithm_sum)

    def same(self, other: Quotient | Logarithm) -> bool:
        """Return whether the numbers are equal."""
        return (self - other).is_zero()

    def less(self, other: Quotient | Logarithm) -> bool:
        """Return whether self < other."""
        return (self - other).sign() < 0

    def __eq__(self, other: object) -> bool:
        return self.same(other) if _is_number(other) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self.less(other) if _is_number(other) else NotImplemented

    def constant(self) -> surds.K | None:
        """Return None: the number is not in K, or not known to be."""
        return None

    def rational(self) -> Fraction | None:
        """Return None: the number is not rational, or not known to be."""
        return None

    def arb(self, prec: int = 64) -> flint.arb:
        """Return a ball that contains the value, with about ``prec`` correct bits."""
        return approximation.sharpened(self._enclose_logarithm_sum, prec)

    def to_float(self) -> float:
        """Return the nearest double."""
        return approximation.nearest_double(self.arb)

    def decimal(self, digits: int = 6) -> str:
        """Return the value rounded to nearest with ``digits`` significant digits."""
        return approximation.decimal(self.arb, digits)

    def to_sympy(self) -> Any:
        """Return the number as a SymPy expression."""
        import sympy

        return self.c.to_sympy() + sympy.log(self.f.to_sympy())

    def notation(self) -> Node:
        """c + log f."""
        log = call("log", self.f.notation())
        return log if self.c.is_zero() else self.c.notation() + log

    def __str__(self) -> str:
        from symattn.arrays.field import writing

        return writing.text(self.notation())

    def __repr__(self) -> str:
        return f"Logarithm({self})"

    def _enclose_logarithm_sum(self) -> flint.arb:
        import flint

        # for f close to 1, log1p keeps the accuracy
        past = (self.f - ONE_ELEMENT).arb(flint.ctx.prec)
        log = past.log1p() if abs(past) < 1 / 2 else self.f.arb(flint.ctx.prec).log()
        return self.c.arb(flint.ctx.prec) + log


def _make_refusing_function(name: str) -> Callable[[Logarithm], NoReturn]:
    def run(self: Logarithm) -> NoReturn:
        """Raise Refused."""
        raise Refused(f"exact: {name}({brief(self)}) is not in the decided field; use ball")

    return run


for _name in FUNCTIONS:
    if not hasattr(Logarithm, _name):
        setattr(Logarithm, _name, _make_refusing_function(_name))


def logarithm(c: Quotient, f: Quotient) -> Quotient | Logarithm:
    """Return c + log f for f > 0: a plain number if f = e^k, and c + k + log r if f = r e^k."""
    r, k = rational_times_power(f)
    if r is None:
        return Logarithm(c, f)
    c = c + constant(k)
    return c if r == 1 else Logarithm(c, Quotient.of(r))


def _is_exact_number(x: object) -> bool:
    return isinstance(x, (Quotient, int, Rational))


def _is_number(x: object) -> TypeGuard[Quotient | Logarithm]:
    """Return whether an operand is a logarithm or an exact number."""
    return isinstance(x, Logarithm) or _is_exact_number(x)
