"""SymPy expressions as quotients of polynomials in letters and exponentials, for which equality is decidable.

The exponents are expanded into monomials, and e^{μ/l} becomes one generator for each monomial μ, with l the common
denominator of its coefficients. Exponentials of different monomials are algebraically independent over the letters
(J. Ax, On Schanuel's conjectures, Ann. of Math. 93 (1971); for numbers Lindemann–Weierstrass), so two quotients are
equal iff their polynomials agree after clearing denominators.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from math import lcm
from operator import add, mul
from typing import Any

import flint
import sympy
from sympy.core.function import AppliedUndef

from symattn.arrays.symbolic import overlap_at_a_point
from symattn.document.errors import Refused, Undecided


class RationalQuotient:
    """A numerator over a denominator in the polynomials of one ring; only sums reduce it."""

    __slots__ = ("bottom", "ring", "top")

    def __init__(self, ring: Ring, top: Any, bottom: Any) -> None:
        self.ring, self.top, self.bottom = ring, top, bottom

    def __add__(self, other: RationalQuotient) -> RationalQuotient:
        if self.bottom == other.bottom:
            return RationalQuotient(self.ring, self.top + other.top, self.bottom)
        common = self.bottom.gcd(other.bottom)  # without it, the denominators of long sums explode
        left, right = other.bottom / common, self.bottom / common
        return RationalQuotient(self.ring, self.top * left + other.top * right, self.bottom * left)

    def __mul__(self, other: RationalQuotient) -> RationalQuotient:
        return RationalQuotient(self.ring, self.top * other.top, self.bottom * other.bottom)

    def __pow__(self, n: int) -> RationalQuotient:
        top, bottom = (self.top, self.bottom) if n >= 0 else (self.bottom, self.top)
        return RationalQuotient(self.ring, top ** abs(n), bottom ** abs(n))

    def equals(self, other: RationalQuotient) -> bool:
        """Return whether the quotients are equal. Raises ``Undecided`` if opaque terms make a "no" uncertain."""
        if not self.bottom or not other.bottom:
            raise Undecided("rational: a denominator is zero")
        if self.top * other.bottom == other.top * self.bottom:
            return True
        if self.ring.opaque:
            raise Undecided("rational: normal forms differ, and some letters are no free letters")
        return False


class Ring:
    """The ring of the polynomials that the given expressions need."""

    def __init__(self, expressions: Iterable[Any]) -> None:
        self.letters: dict[Any, Any] = {}
        self.exponents: dict[Any, int] = {}
        self.opaque = False
        for expression in expressions:
            self._collect(expression)
        names = [f"x{i}" for i in range(len(self.letters) + len(self.exponents))]
        self.context = flint.fmpz_mpoly_ctx.get(names, "lex")
        generators = iter(self.context.gens())
        self.letters = {x: next(generators) for x in self.letters}
        self.exponentials = {x: next(generators) for x in self.exponents}
        self.one = self.context.constant(1)
        self.known: dict[Any, RationalQuotient] = {}

    def of(self, x: object) -> RationalQuotient:
        """Return a number or an expression as a quotient in this ring."""
        expression = sympy.sympify(x)
        if expression not in self.known:
            self.known[expression] = self._of(expression)
        return self.known[expression]

    def _of(self, x: Any) -> RationalQuotient:
        if x in self.letters:
            return RationalQuotient(self, self.letters[x], self.one)
        if x.is_Rational:
            return RationalQuotient(self, self.one * int(x.p), self.one * int(x.q))
        if x.is_Add or x.is_Mul:
            return reduce(add if x.is_Add else mul, map(self.of, x.args))
        if _is_exponential(x):
            result = RationalQuotient(self, self.one, self.one)
            for coefficient, monomial in _terms(x):
                power = int(coefficient * self.exponents[monomial])
                result = result * RationalQuotient(self, self.exponentials[monomial], self.one) ** power
            return result
        return self.of(x.base) ** int(x.exp)

    def _collect(self, x: Any) -> None:
        if x.is_Rational or x in self.letters:
            return
        if _is_exponential(x):
            for coefficient, monomial in _terms(x):
                self.exponents[monomial] = lcm(self.exponents.get(monomial, 1), int(coefficient.q))
                self.opaque |= not all(_is_plain(f) for f in sympy.Mul.make_args(monomial))
        elif x.is_Add or x.is_Mul or (x.is_Pow and x.exp.is_Integer):
            for part in x.args:
                self._collect(part)
        elif x.is_number and not _is_surd(x):
            raise Refused(f"rational: no normal form for {x}")
        else:
            self.letters[x] = None
            self.opaque |= not x.is_Symbol


def all_equal(pairs: Iterable[tuple[object, object]]) -> bool:
    """Return whether the SymPy expressions of each pair are equal as functions. Raises ``Undecided``."""
    differing = [(x, y) for x, y in pairs if x != y]
    ring = Ring(x for pair in differing for x in pair)
    return all(_equal(ring, x, y) for x, y in differing)


def _equal(ring: Ring, x: Any, y: object) -> bool:
    try:
        return ring.of(x).equals(ring.of(y))
    except Undecided:
        difference = x - y
        if difference.atoms(AppliedUndef) or overlap_at_a_point(difference):
            raise
        return False  # disjoint balls at a point


def _is_exponential(x: Any) -> bool:
    return isinstance(x, sympy.exp) or x is sympy.E or bool(x.is_Pow and x.base is sympy.E)


def _terms(x: Any) -> list[tuple[Any, Any]]:
    """Return the exponent of e^… as pairs of a rational coefficient and a monomial."""
    exponent = sympy.Integer(1) if x is sympy.E else sympy.expand(x.args[0] if isinstance(x, sympy.exp) else x.exp)
    return [term.as_coeff_Mul(rational=True) for term in sympy.Add.make_args(exponent) if term != 0]


def _is_surd(x: Any) -> bool:
    return bool(x.is_Pow and x.base.is_Rational and x.exp.is_Rational)


def _is_plain(factor: Any) -> bool:
    base, exponent = factor.as_base_exp()
    return bool(factor == 1 or _is_surd(factor) or (base.is_Symbol and exponent.is_Integer and exponent > 0))
