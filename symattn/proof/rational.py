"""SymPy expressions as quotients of polynomials in letters and exponentials: equality is decided, not searched for.

The exponents are expanded into monomials, and e^{μ/l} becomes one generator for each monomial μ, with l the common
denominator of its coefficients. Exponentials of different monomials are algebraically independent over the letters
(J. Ax, On Schanuel's conjectures, Ann. of Math. 93 (1971); for numbers Lindemann–Weierstrass), so two quotients are
equal iff their polynomials agree after clearing denominators.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from math import lcm
from operator import mul
from typing import Any

import flint
import sympy

from symattn.errors import Refused, Undecided

Fraction = tuple[Any, Any]
"""A numerator and a denominator, polynomials of one ring."""


class Ring:
    """The quotients of polynomials that the given expressions need."""

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
        self.known: dict[Any, Fraction] = {}

    def fraction(self, x: Any) -> Fraction:
        """The numerator and denominator of an expression, not reduced."""
        if x not in self.known:
            self.known[x] = self._fraction(x)
        return self.known[x]

    def _fraction(self, x: Any) -> Fraction:
        if x in self.letters:
            return self.letters[x], self.one
        if x.is_Rational:
            return self.one * int(x.p), self.one * int(x.q)
        if x.is_Add:
            return reduce(_plus, map(self.fraction, x.args))
        if x.is_Mul:
            return reduce(_times, map(self.fraction, x.args))
        if _is_exponential(x):
            return reduce(_times, (self._exponential(*term) for term in _terms(x)), (self.one, self.one))
        top, bottom = self.fraction(x.base)
        n = int(x.exp)
        return (top**n, bottom**n) if n > 0 else (bottom**-n, top**-n)

    def equal(self, x: Any, y: Any) -> bool:
        """Whether x = y. Raises ``Undecided`` where opaque functions or surds keep a "no" from being sure."""
        (a, b), (c, d) = self.fraction(x), self.fraction(y)
        if not b or not d:
            raise Undecided("a denominator is zero")
        if a * d == c * b:
            return True
        if self.opaque:
            raise Undecided(f"whether {x} = {y}: normal forms differ, and some letters are no free letters")
        return False

    def all_equal(self, pairs: Iterable[tuple[Any, Any]]) -> bool:
        """Whether all pairs are equal."""
        return all(x == y or self.equal(x, y) for x, y in pairs)

    def nonnegative(self, x: Any) -> bool:
        """Whether x ≥ 0 for all letters ≥ 0 is plain to see: once reduced, no coefficient is negative."""
        top, bottom = self.fraction(x)
        common = top.gcd(bottom)
        coefficients = [c for part in (top / common, bottom / common) for c in part.coeffs()]
        return all(c >= 0 for c in coefficients) or all(c <= 0 for c in coefficients)

    def _exponential(self, coefficient: Any, monomial: Any) -> Fraction:
        power = int(coefficient * self.exponents[monomial])
        generator = self.exponentials[monomial]
        return (generator**power, self.one) if power > 0 else (self.one, generator**-power)

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


def equal(x: Any, y: Any) -> bool:
    """Whether two SymPy expressions are equal as functions of their letters. Raises ``Undecided``."""
    return bool(x == y) or Ring((x, y)).equal(x, y)


def all_equal(pairs: Iterable[tuple[Any, Any]]) -> bool:
    """Whether all pairs are equal, in one ring."""
    differing = [(x, y) for x, y in pairs if x != y]
    return Ring(x for pair in differing for x in pair).all_equal(differing)


def nonnegative(x: Any) -> bool:
    """Whether x ≥ 0 for all letters ≥ 0 is plain to see, see ``Ring.nonnegative``."""
    return Ring((x,)).nonnegative(x)


def _is_exponential(x: Any) -> bool:
    return isinstance(x, sympy.exp) or x is sympy.E or (x.is_Pow and x.base is sympy.E)


def _terms(x: Any) -> list[tuple[Any, Any]]:
    """The exponent of e^… as pairs of a rational coefficient and a monomial."""
    exponent = sympy.Integer(1) if x is sympy.E else sympy.expand(x.args[0] if isinstance(x, sympy.exp) else x.exp)
    return [term.as_coeff_Mul(rational=True) for term in sympy.Add.make_args(exponent) if term != 0]


def _is_surd(x: Any) -> bool:
    return bool(x.is_Pow and x.base.is_Rational and x.exp.is_Rational)


def _is_plain(factor: Any) -> bool:
    base, exponent = factor.as_base_exp()
    return bool(factor == 1 or _is_surd(factor) or (base.is_Symbol and exponent.is_Integer and exponent > 0))


def _plus(x: Fraction, y: Fraction) -> Fraction:
    if x[1] == y[1]:
        return x[0] + y[0], x[1]
    common = x[1].gcd(y[1])  # without it the denominators of long sums grow beyond use
    left, right = y[1] / common, x[1] / common
    return x[0] * left + y[0] * right, x[1] * left


def _times(x: Fraction, y: Fraction) -> Fraction:
    return mul(x[0], y[0]), mul(x[1], y[1])
