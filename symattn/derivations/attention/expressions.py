"""Run steps of attention on SymPy expressions, each on letters of its own, so that its entries stay short.

Steps that compare entries run on numbers. Equality of expressions is decided: they become quotients of polynomials in
letters and exponentials. The exponents are expanded into monomials, and e^{μ/l} becomes one generator for each
monomial μ, with l the common denominator of its coefficients. Exponentials of different monomials are algebraically
independent over the letters (J. Ax, On Schanuel's conjectures, Ann. of Math. 93 (1971); for numbers
Lindemann–Weierstrass), so two quotients are equal iff their polynomials agree after clearing denominators.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import reduce
from math import lcm
from operator import add, mul
from typing import Any

import flint
import numpy as np
import sympy
from sympy.core.function import AppliedUndef

from symattn.arrays.array import Array
from symattn.arrays.exact import Exact
from symattn.arrays.special import FORBIDDEN, Forbidden
from symattn.arrays.symbolic import Symbolic, overlap_at_a_point
from symattn.attention.flow import Step
from symattn.attention.inputs import lengths
from symattn.derivations.attention.inputs import DerivationRequest, stem
from symattn.derivations.walks.walk_entries import pairs, same
from symattn.document.errors import Refused, Undecided


def letters_like(name: str, array: Any) -> Symbolic:
    """Return letters in the shape of an array, with its forbidden entries."""
    stand = Symbolic.letters(stem(name), *array.shape).entries
    for index, entry in np.ndenumerate(array.entries):
        if entry is FORBIDDEN:
            stand[index] = FORBIDDEN
    return Symbolic(stand)


def run(step: Step, inputs: Mapping[str, object]) -> Any:
    """Run one step on its inputs."""
    return step.run(*(inputs[name] for name in step.of))


def agrees(
    request: DerivationRequest, step: Step, inputs: Mapping[str, object], output: Array
) -> bool:
    """Return whether every entry of the step's result equals its formulas. Raises Unread, Refused."""
    result = pairs(request, step, inputs, output, Symbolic)
    if any(isinstance(x, Forbidden) != isinstance(y, Forbidden) for x, y in result):
        return False
    # compare by normal forms or, if these do not decide it, as for roots of sums, by SymPy
    entries = [(x, y) for x, y in result if not isinstance(x, Forbidden)]
    try:
        return all_equal(entries)
    except Undecided:
        return all(bool(Symbolic.same(sympy.sympify(x), sympy.sympify(y))) for x, y in entries)


def row_sums(weights: Any, allowed: np.ndarray) -> bool:
    """Return whether every row of weights sums to 1, or to 0 if the query sees no key."""
    rows = weights.entries.reshape(-1, weights.shape[-1])
    visible = np.broadcast_to(allowed, weights.shape).reshape(rows.shape)
    sums = zip(rows, visible, strict=True)
    return all_equal((sympy.Add(*row), sympy.Integer(int(s.any()))) for row, s in sums)


def zeros(weights: Any, allowed: np.ndarray) -> bool:
    """Return whether exactly the forbidden weights are 0."""
    visible = np.broadcast_to(allowed, weights.shape)
    cells = zip(weights.entries.flat, visible.flat, strict=True)
    return all((w == 0) != s for w, s in cells)


def agrees_on_numbers(request: DerivationRequest, step: Step) -> bool:
    """Return whether a step agrees with its formulas on rational numbers. Raises Unread, Refused."""
    shapes = {name: lengths(name, request.spec, request.names, request.sizes) for name in step.of}
    inputs = {
        name: Exact.lift(_make_pseudorandom_twelfths(shape)) for name, shape in shapes.items()
    }
    entries = pairs(request, step, inputs, run(step, inputs), Exact)
    return all(same(x, y) for x, y in entries)


def _make_pseudorandom_twelfths(shape: tuple[int, ...]) -> np.ndarray:
    """Return pseudorandom twelfths between −2 and 2, always the same."""
    out = np.empty(shape, dtype=object)
    for place, index in enumerate(np.ndindex(*shape)):
        polynomial = 7 * place * place + 5 * place + 3
        out[index] = Fraction(polynomial % 49 - 24, 12)
    return out


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
        above = self.top * left + other.top * right
        return RationalQuotient(self.ring, above, self.bottom * left)

    def __mul__(self, other: RationalQuotient) -> RationalQuotient:
        return RationalQuotient(self.ring, self.top * other.top, self.bottom * other.bottom)

    def __pow__(self, n: int) -> RationalQuotient:
        if n >= 0:
            top, bottom = (self.top, self.bottom)
        else:
            top, bottom = (self.bottom, self.top)
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
            self._collect_ring_letters(expression)
        # Exponentials are letters as well: e^(x/2) and e^x are powers of one.
        count = len(self.letters) + len(self.exponents)
        names = [f"x{i}" for i in range(count)]
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
            self.known[expression] = self._convert_to_rational_quotient(expression)
        return self.known[expression]

    def _convert_to_rational_quotient(self, x: Any) -> RationalQuotient:
        if x in self.letters:
            return RationalQuotient(self, self.letters[x], self.one)
        if x.is_Rational:
            numerator = self.one * int(x.p)
            return RationalQuotient(self, numerator, self.one * int(x.q))
        if x.is_Add or x.is_Mul:
            return reduce(add if x.is_Add else mul, map(self.of, x.args))
        if _is_exponential(x):
            result = RationalQuotient(self, self.one, self.one)
            for coefficient, monomial in _split_exponent_terms(x):
                # The power is a whole number, as the letter is e^(x/n).
                power = int(coefficient * self.exponents[monomial])
                result = (
                    result * RationalQuotient(self, self.exponentials[monomial], self.one) ** power
                )
            return result
        return self.of(x.base) ** int(x.exp)

    def _collect_ring_letters(self, x: Any) -> None:
        if x.is_Rational or x in self.letters:
            return
        if _is_exponential(x):
            for coefficient, monomial in _split_exponent_terms(x):
                before = self.exponents.get(monomial, 1)
                # A common denominator of the exponents makes all powers whole.
                self.exponents[monomial] = lcm(before, int(coefficient.q))
                parts = sympy.Mul.make_args(monomial)
                self.opaque |= not all(_is_plain(f) for f in parts)
        elif x.is_Add or x.is_Mul or (x.is_Pow and x.exp.is_Integer):
            for part in x.args:
                self._collect_ring_letters(part)
        # A number that is neither rational nor a root has no normal form.
        elif x.is_number and not _is_surd(x):
            raise Refused(f"rational: no normal form for {x}")
        else:
            self.letters[x] = None
            self.opaque |= not x.is_Symbol


def all_equal(pairs: Iterable[tuple[object, object]]) -> bool:
    """Return whether the SymPy expressions of each pair are equal as functions. Raises ``Undecided``."""
    differing = [(x, y) for x, y in pairs if x != y]
    ring = Ring(x for pair in differing for x in pair)
    return all(_are_equal_in_ring(ring, x, y) for x, y in differing)


def _are_equal_in_ring(ring: Ring, x: Any, y: object) -> bool:
    try:
        return ring.of(x).equals(ring.of(y))
    except Undecided:
        difference = x - y
        if difference.atoms(AppliedUndef) or overlap_at_a_point(difference):
            raise
        return False  # disjoint balls at a point


def _is_exponential(x: Any) -> bool:
    return isinstance(x, sympy.exp) or x is sympy.E or bool(x.is_Pow and x.base is sympy.E)


def _split_exponent_terms(x: Any) -> list[tuple[Any, Any]]:
    """Return the exponent of e^… as pairs of a rational coefficient and a monomial."""
    exponent = (
        sympy.Integer(1)
        if x is sympy.E
        else sympy.expand(x.args[0] if isinstance(x, sympy.exp) else x.exp)
    )
    return [term.as_coeff_Mul(rational=True) for term in sympy.Add.make_args(exponent) if term != 0]


def _is_surd(x: Any) -> bool:
    return bool(x.is_Pow and x.base.is_Rational and x.exp.is_Rational)


def _is_plain(factor: Any) -> bool:
    base, exponent = factor.as_base_exp()
    return bool(
        factor == 1 or _is_surd(factor) or (base.is_Symbol and exponent.is_Integer and exponent > 0)
    )
