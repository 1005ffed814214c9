"""Sums of monomials with rational coefficients and rational exponents: the values of the moment algebra."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from flint import fmpq

from symattn.document.errors import Refused

Rational = Any  # flint's fmpq: several times as fast as Fraction
Monomial = tuple[tuple[str, Rational], ...]
"""Letters with their exponents, sorted. A letter that is a prime, "2", stands for itself: √2 is 2^{1/2}."""


class Polynomial:
    """Σ c x₁^{e₁} ⋯ x_r^{e_r}, all c and e rational. Equal values have equal terms.

    Roots and negative powers are taken as if every letter were positive: who calls sees to that.
    """

    __slots__ = ("terms",)

    def __init__(self, terms: Iterable[tuple[Monomial, Rational]] = ()) -> None:
        self.terms: dict[Monomial, Rational] = {}
        for monomial, coefficient in terms:
            reduced, factor = _primes_out(monomial)
            total = self.terms.get(reduced, _ZERO) + coefficient * factor
            if total:
                self.terms[reduced] = total
            else:
                self.terms.pop(reduced, None)

    @staticmethod
    def number(value: int | Fraction) -> Polynomial:
        """A constant."""
        return Polynomial([((), fmpq(value.numerator, value.denominator))])

    @staticmethod
    def letter(name: str) -> Polynomial:
        """A letter."""
        return Polynomial([(((name, _ONE),), _ONE)])

    def __add__(self, other: Polynomial) -> Polynomial:
        return Polynomial([*self.terms.items(), *other.terms.items()])

    def __neg__(self) -> Polynomial:
        return Polynomial((m, -c) for m, c in self.terms.items())

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + -other

    def __mul__(self, other: Polynomial) -> Polynomial:
        return Polynomial((_times(m, n), c * d) for m, c in self.terms.items() for n, d in other.terms.items())

    def __pow__(self, exponent: int) -> Polynomial:
        base = self if exponent >= 0 else self.inverse()
        out = Polynomial.number(1)
        for _ in range(abs(exponent)):
            out = out * base
        return out

    def inverse(self) -> Polynomial:
        """1/x. Raises ``Refused`` unless x is one monomial."""
        monomial, coefficient = self._single("divided by")
        return Polynomial([(_scaled(monomial, -_ONE), 1 / coefficient)])

    def root(self) -> Polynomial:
        """√x. Raises ``Refused`` unless x is one monomial with a positive coefficient."""
        monomial, coefficient = self._single("under a root")
        if coefficient < 0:
            raise Refused(f"a root of the negative {self}")
        half = fmpq(1, 2)
        primes = _factors(int(coefficient.p)) + [(p, -e) for p, e in _factors(int(coefficient.q))]
        roots = [(((str(p), e * half),), _ONE) for p, e in primes]
        out = Polynomial([(_scaled(monomial, half), _ONE)])
        for term in roots:
            out = out * Polynomial([term])
        return out

    def at(self, values: Mapping[str, Polynomial]) -> Polynomial:
        """The value where letters have the given values; a fractional power of a value is a root of it."""
        out = Polynomial()
        for monomial, coefficient in self.terms.items():
            term = Polynomial([((), coefficient)])
            for letter, exponent in monomial:
                term = term * _power(values.get(letter, Polynomial.letter(letter)), exponent)
            out = out + term
        return out

    def degree(self, letter: str) -> Fraction:
        """The largest exponent of a letter; of 0, and without the letter, 0."""
        return max((_fraction(dict(m).get(letter, _ZERO)) for m in self.terms), default=Fraction(0))

    def constant(self) -> Fraction | None:
        """The value where there is no letter, else None."""
        if not self.terms:
            return Fraction(0)
        return _fraction(self.terms[()]) if list(self.terms) == [()] else None

    def _single(self, words: str) -> tuple[Monomial, Rational]:
        if len(self.terms) != 1:
            raise Refused(f"{self} {words}: only one monomial that is not 0 can be")
        return next(iter(self.terms.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __str__(self) -> str:
        return " + ".join("·".join([str(c), *(f"{x}^{e}" for x, e in m)]) for m, c in sorted(self.terms.items())) or "0"

    __repr__ = __str__


_ZERO, _ONE = fmpq(0), fmpq(1)


def _fraction(x: Rational) -> Fraction:
    return Fraction(int(x.p), int(x.q))


def _times(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    exponents = dict(a)
    for letter, exponent in b:
        exponents[letter] = exponents.get(letter, _ZERO) + exponent
    return tuple(sorted((x, e) for x, e in exponents.items() if e))


def _scaled(monomial: Monomial, factor: Rational) -> Monomial:
    return tuple((x, e * factor) for x, e in monomial)


def _primes_out(monomial: Monomial) -> tuple[Monomial, Rational]:
    """Whole powers of prime letters become part of the coefficient: 2^{3/2} is 2 · 2^{1/2}."""
    if not any(letter[0].isdigit() for letter, _ in monomial):
        return monomial, _ONE
    factor = _ONE
    rest = []
    for letter, exponent in monomial:
        whole = int(exponent.floor()) if letter.isdigit() else 0
        factor *= fmpq(int(letter)) ** whole if whole else 1
        if exponent != whole:
            rest.append((letter, exponent - whole))
    return tuple(rest), factor


def _factors(n: int) -> list[tuple[int, int]]:
    """The prime factors of n with their exponents, by trial division."""
    result = []
    p = 2
    while n > 1:
        p = p if p * p <= n else n
        exponent = 0
        while n % p == 0:
            n //= p
            exponent += 1
        if exponent:
            result.append((p, exponent))
        p += 1
    return result


def _power(x: Polynomial, exponent: Rational) -> Polynomial:
    if exponent.q == 1:
        return x ** int(exponent.p)
    if exponent.q == 2:
        return x.root() ** int(exponent.p)
    raise Refused(f"{x} to the power {exponent}")
