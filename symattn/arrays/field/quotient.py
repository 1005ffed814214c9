"""The element of the kind ``exact``: a quotient of two sums of exponentials.

    x = Σ_k n_k e^k / Σ_k d_k e^k,   n_k, d_k and k in K

Equality is decided: a/b = c/d iff a d − c b, collected, is the empty sum (Lindemann–Weierstrass, see ``sums``). Order
is decided by Arb once equality has been excluded: the sign of a nonzero difference is certain at some precision.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from numbers import Rational
from typing import TYPE_CHECKING, Any, cast

from symattn.arrays.field import (
    approximation,
    sums,  # fmt: skip
    surds,
)
from symattn.arrays.functions import FUNCTIONS
from symattn.document.errors import Refused

if TYPE_CHECKING:
    import flint

    from symattn.arrays.field.logarithm import Logarithm
    from symattn.document.notation import Node


def _make_quotient_comparison(
    holds: Callable[[Quotient, Quotient], bool],
) -> Callable[[Quotient, object], bool]:
    def run(self: Quotient, other: object) -> bool:
        y = _as_quotient(other)
        return NotImplemented if y is None else holds(self, y)

    return run


class Quotient:
    """An exact number. ``Quotient.of(x)`` makes one; ``+ − * / **`` take quotients, ``int`` and ``Fraction``.

    Internally, two sums over one unit (None while no exponential occurs). The denominator is a positive integer or has
    at least two terms. Elements are never changed; neither sum is reduced until it is compared or printed.
    """

    __slots__ = ("_d", "_n", "_unit")

    def __init__(self, unit: sums.Unit | None, numerator: sums.Sum, denominator: sums.Sum) -> None:
        self._unit = unit
        self._n = numerator
        self._d = denominator

    @staticmethod
    def of(x: object) -> Quotient:
        """Return the exact value of an int, Fraction, Decimal, float (dyadic), flint or SymPy number, or "4/sqrt(3)".

        Raises InputError for NaN, infinities, text that does not parse, and anything else.
        """
        if x.__class__ is Quotient:
            return x
        if x.__class__ is int:
            return Quotient(None, {0: x} if x else {}, sums.ONE)
        from symattn.arrays.field.parse import read

        return read(x)

    @property
    def parts(self) -> tuple[sums.Unit, sums.Sum, sums.Sum]:
        """The unit, the numerator and the denominator."""
        return self._unit or sums.PLAIN, self._n, self._d

    # --- arithmetic -------------------------------------------------------------------------------------------------
    def __add__(self, other: object) -> Quotient:
        y = other if other.__class__ is Quotient else _as_quotient(other)
        if y is None:
            return NotImplemented
        n, m = self._n, y._n
        if not m:
            return self
        if not n:
            return y
        u, v = self._unit, y._unit
        d, e = self._d, y._d
        # Units are usually the same object; other ones are aligned first.
        if u is not v:
            if u and v:
                u, n, d, m, e = _align_exponent_units(self, y)
            else:
                u = u or v
        # One denominator for both: the usual case in rows of scores.
        if d is e or d == e:
            return Quotient(u, sums.plus(n, m), d)
        a, b, below = sums.common(d, e)
        above = sums.plus(sums.times(n, a), sums.times(m, b))
        return Quotient(u, *sums.in_lowest_terms(above, below))

    __radd__ = __add__

    def __neg__(self) -> Quotient:
        return Quotient(self._unit, sums.minus(self._n), self._d)

    def __pos__(self) -> Quotient:
        return self

    def __sub__(self, other: object) -> Quotient:
        y = other if other.__class__ is Quotient else _as_quotient(other)
        if y is None:
            return NotImplemented
        # Equal objects cancel without arithmetic, as scores minus their maximum do.
        if y is self:
            return ZERO_ELEMENT
        if self._d is y._d and self._unit is y._unit:
            return Quotient(self._unit, sums.plus(self._n, sums.minus(y._n)), self._d)
        return self + -y

    def __rsub__(self, other: object) -> Quotient:
        return -self + other if _as_quotient(other) is not None else NotImplemented

    def __mul__(self, other: object) -> Quotient:
        if other is ONE_ELEMENT:
            return self
        y = other if other.__class__ is Quotient else _as_quotient(other)
        if y is None or self is ONE_ELEMENT:
            return NotImplemented if y is None else y
        u, v = self._unit, y._unit
        n, m = self._n, y._n
        d, e = self._d, y._d
        if u is not v:
            if u and v:
                u, n, d, m, e = _align_exponent_units(self, y)
            else:
                u = u or v
        # Such factors cancel without a gcd of sums.
        if d is m or e is n:  # the same object in numerator and denominator
            return Quotient(u, n, e) if d is m else Quotient(u, m, d)
        if d is sums.ONE:
            return Quotient(u, sums.times(n, m), e)
        below = d if e is sums.ONE else sums.times(d, e)
        return Quotient(u, sums.times(n, m), below)

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> Quotient:
        y = other if other.__class__ is Quotient else _as_quotient(other)
        if y is None:
            return NotImplemented
        if not y._n:
            raise ZeroDivisionError("exact: division by zero")
        n, m = self._n, y._n
        u, d, e = self._unit, self._d, y._d
        # Exponents are integer combinations of units, which have to agree.
        if u is not y._unit:
            u, n, d, m, e = _align_exponent_units(self, y)
        # A common denominator cancels at once.
        if d is e or d == e:
            # Several terms are not divided: the quotient stays a quotient.
            if len(m) > 1 and n:
                return Quotient(u, n, m)
            return Quotient(u, *sums.divided(n, m))
        above = n if e is sums.ONE else sums.times(n, e)
        below = m if d is sums.ONE else sums.times(m, d)
        return Quotient(u, *sums.divided(above, below))

    def __rtruediv__(self, other: object) -> Quotient:
        y = _as_quotient(other)
        return NotImplemented if y is None else y / self

    def __pow__(self, n: object) -> Quotient:
        if not isinstance(n, int):
            return NotImplemented
        if n < 0:
            return ONE_ELEMENT / self**-n
        out, square = ONE_ELEMENT, self
        # Squaring: as many steps as n has binary digits.
        while n:
            if n & 1:
                out = out * square
            n >>= 1
            if n:
                square = square * square
        return out

    def __abs__(self) -> Quotient:
        return -self if self.sign() < 0 else self

    # --- functions --------------------------------------------------------------------------------------------------
    def exp(self) -> Quotient:
        """Return e^x for x in K. Raises Refused for other numbers, as there is no second layer of exponentials."""
        if self._unit is None and (c := self._n.get(0, 0)).__class__ is int:
            # Not in lowest terms on purpose: neighbouring scores share their denominator, so their powers share a unit.
            if c:
                return Quotient(sums.unit(1, cast(int, self._d[0])), {c: 1}, sums.ONE)
            return ONE_ELEMENT
        k = self.constant()
        if k is None:
            raise Refused(
                f"exact: exp({brief(self)}): a second layer of exponentials leaves the decided field; use ball"
            )
        if not k:
            return ONE_ELEMENT
        u, key = sums.power(k)
        return Quotient(u, {key: 1}, sums.ONE)

    def sqrt(self) -> Quotient:
        """Return √x for a rational x ≥ 0, and √(x e^k) = √x e^{k/2}. Raises Refused for other numbers."""
        # √(r e^k) = √r e^(k/2) stays in the field.
        r, k = rational_times_power(self)
        if r is None:
            raise Refused(f"exact: sqrt({brief(self)}) is not in the decided field; use ball")
        # The field is one of real numbers.
        if r < 0:
            raise Refused(f"exact: sqrt({brief(self)}): the square root of a negative number")
        if k:
            return constant(surds.root(r)) * constant(k * Fraction(1, 2)).exp()
        return constant(surds.root(r))

    def log(self) -> Quotient | Logarithm:
        """Return log e^k = k, and for other positive numbers a ``Logarithm``, for use in exp. Raises Refused."""
        from symattn.arrays.field.logarithm import logarithm

        if self.sign() <= 0:
            raise Refused(
                f"exact: log({brief(self)}): the logarithm of a number that is not positive"
            )
        return logarithm(ZERO_ELEMENT, self)

    def tanh(self) -> Quotient:
        """Return (e^{2x} − 1) / (e^{2x} + 1) for x in K. Raises Refused for other numbers."""
        if self.constant() is None:
            raise Refused(f"exact: tanh({brief(self)}) is not in the decided field; use ball")
        e = (self + self).exp()
        return (e - ONE_ELEMENT) / (e + ONE_ELEMENT)

    # --- predicates -------------------------------------------------------------------------------------------------
    def is_zero(self) -> bool:
        """Return whether x = 0."""
        return not self._n

    def __bool__(self) -> bool:
        return bool(self._n)

    def sign(self) -> int:
        """Return −1, 0 or 1. Raises Undecided beyond ``approximation.LIMIT`` bits."""
        u, n, d = self.parts
        return approximation.sign_of_sum(u, n) * (
            1 if len(d) == 1 else approximation.sign_of_sum(u, d)
        )

    def same(self, other: Quotient) -> bool:
        """Return whether the numbers are equal."""
        u = self._unit
        n = self._n
        m = other._n
        d = self._d
        e = other._d
        if u is not other._unit:
            u, n, d, m, e = _align_exponent_units(self, other)
        if d is e or d == e:
            # Over one denominator numerators decide.
            return n == m
        # Shifted to a common lowest exponent, equal numbers often have equal sums.
        n, d = sums.from_lowest(n, d)
        m, e = sums.from_lowest(m, e)
        if d == e:
            return n == m
        return sums.times(n, e) == sums.times(m, d)

    def less(self, other: Quotient) -> bool:
        """Return whether self < other."""
        # Numbers without exponentials compare in K; their denominators are positive integers.
        if self._unit is None is other._unit:
            n, m = self._n.get(0, 0), other._n.get(0, 0)
            d, e = self._d, other._d
            if d is e:
                return n < m
            return n * e[0] < m * d[0]
        return (self - other).sign() < 0

    def __eq__(self, other: object) -> bool:
        y = _as_quotient(other)
        return NotImplemented if y is None else self.same(y)

    __lt__, __gt__ = (
        _make_quotient_comparison(lambda x, y: x.less(y)),
        _make_quotient_comparison(lambda x, y: y.less(x)),
    )
    __le__, __ge__ = (
        _make_quotient_comparison(lambda x, y: not y.less(x)),
        _make_quotient_comparison(lambda x, y: not x.less(y)),
    )

    def __hash__(self) -> int:
        """Return the hash of the rational number, else of the nearest double: equal numbers have equal hashes."""
        r = self.rational()
        return hash(self.to_float()) if r is None else hash(r)

    def constant(self) -> surds.K | None:
        """Return the value as an element of K, or None if it is outside: n/d is in K iff n = c d for a c in K."""
        n, d = self._n, self._d
        if not n:
            return 0
        # A quotient in K has the same exponents above and below.
        other_terms = len(n) != len(d) or n.keys() != d.keys()
        if other_terms:
            return None
        k = next(iter(d))
        c = n[k] * surds.inverse(d[k])
        proportional = len(d) == 1 or all(n[k] == c * e for k, e in d.items())
        return c if proportional else None

    def rational(self) -> Fraction | None:
        """Return the value as a fraction, or None if it is irrational."""
        c = self.constant()
        return None if c is None or isinstance(c, surds.Surd) else Fraction(c)

    # --- values and writing -----------------------------------------------------------------------------------------
    def arb(self, prec: int = 64) -> flint.arb:
        """Return a ball that contains the value, with about ``prec`` correct bits."""
        return approximation.enclosure(*self.parts, prec)

    def to_float(self) -> float:
        """Return the nearest double, ties to even, or an infinity beyond the largest."""
        r = self.rational()
        return (
            approximation.nearest_double(self.arb)
            if r is None
            else approximation.rational_double(r)
        )

    def decimal(self, digits: int = 6) -> str:
        """Return the value rounded to ``digits`` significant digits, without trailing zeros if exact."""
        r = self.rational()
        return (
            approximation.decimal(self.arb, digits)
            if r is None
            else approximation.rational_decimal(r, digits)
        )

    def to_sympy(self) -> Any:
        """Return the number as a SymPy expression."""
        from symattn.arrays.field import writing

        return writing.to_sympy(self)

    def notation(self) -> Node:
        """Return the number as a formula; ``str`` is the same form as text that ``sympy.sympify`` reads."""
        from symattn.arrays.field import writing

        return writing.notation(self)

    def __str__(self) -> str:
        from symattn.arrays.field import writing

        return writing.text(writing.notation(self))

    def __repr__(self) -> str:
        return f"Quotient.of({str(self)!r})"


def _only_at_zero(name: str, value: int) -> Callable[[Quotient], Quotient]:
    def run(self: Quotient) -> Quotient:
        if self:
            raise Refused(f"exact: {name}({brief(self)}) is not in the decided field; use ball")
        return Quotient.of(value)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"{name} 0 = {value}. Raises Refused for other numbers."
    return run


for _name, _function in FUNCTIONS.items():
    if not hasattr(Quotient, _name) and _function.at_zero is not None:
        setattr(Quotient, _name, _only_at_zero(_name, _function.at_zero))


def brief(x: object) -> str:
    """Return the number for a message: one line, shortened if it is long."""
    shown = str(x)
    return shown if len(shown) <= 80 else f"{shown[:77]}…"


# One object each, so that ``is`` recognises the most frequent numbers.
ZERO_ELEMENT = Quotient(None, {}, sums.ONE)
ONE_ELEMENT = Quotient(None, sums.ONE, sums.ONE)


def constant(k: surds.K) -> Quotient:
    """Return an element of K as an exact number."""
    if isinstance(k, surds.Surd):
        return Quotient(None, {0: k * k.den}, {0: k.den})
    return Quotient.of(k)


def rational_times_power(x: Quotient) -> tuple[Fraction | None, surds.K]:
    """Return (r, k) with x = r e^k, r rational and k in K; r is None if there are none."""
    u, n, d = x.parts
    if not n or x._unit is None:
        return x.rational(), 0
    # If n = r e^k d, then k is the difference of the lowest exponents of n and of d.
    lowest_above = min(cast("dict[int, surds.K]", n))
    k = sums.exponent(u, lowest_above - min(cast("dict[int, surds.K]", d)))
    return (x * constant(-k).exp()).rational(), k


def _as_quotient(x: object) -> Quotient | None:
    """Return an operand as a quotient, or None for a foreign type."""
    if x.__class__ is Quotient:
        return x
    return Quotient.of(x) if isinstance(x, (int, Rational)) else None


def _align_exponent_units(
    x: Quotient, y: Quotient
) -> tuple[sums.Unit | None, sums.Sum, sums.Sum, sums.Sum, sums.Sum]:
    """Return a common unit, then numerator and denominator of each number over it."""
    u, v = x._unit, y._unit
    # A rational number has no unit, so that the other's serves.
    if u is None or v is None:
        return v or u, x._n, x._d, y._n, y._d
    w = sums.joined(u, v)
    return (
        w,
        sums.converted(x._n, u, w),
        sums.converted(x._d, u, w),
        sums.converted(y._n, v, w),
        sums.converted(y._d, v, w),
    )
