"""Sums of monomials with rational coefficients and rational exponents: the values of the moment algebra."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

Monomial = tuple[tuple[str, Fraction], ...]
"""Letters with their exponents, sorted. A letter that is a prime, "2", stands for itself: √2 is 2^{1/2}."""


class Polynomial:
    """Σ c x₁^{e₁} ⋯ x_r^{e_r}, all c and e rational. Equal values have equal terms.

    Roots and negative powers are taken as if every letter were positive: who calls sees to that.
    """

    __slots__ = ("terms",)

    def __init__(self, terms: Iterable[tuple[Monomial, Fraction]] = ()) -> None:
        self.terms: dict[Monomial, Fraction] = {}
        for monomial, coefficient in terms:
            reduced, factor = _primes_out(monomial)
            total = self.terms.get(reduced, Fraction(0)) + coefficient * factor
            if total:
                self.terms[reduced] = total
            else:
                self.terms.pop(reduced, None)

    @staticmethod
    def number(value: int | Fraction) -> Polynomial:
        """A constant."""
        return Polynomial([((), Fraction(value))])

    @staticmethod
    def letter(name: str) -> Polynomial:
        """A letter."""
        return Polynomial([(((name, Fraction(1)),), Fraction(1))])

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
        """1/x. Raises ValueError unless x is one monomial."""
        monomial, coefficient = self._single("divided by")
        return Polynomial([(_scaled(monomial, Fraction(-1)), 1 / coefficient)])

    def root(self) -> Polynomial:
        """√x. Raises ValueError unless x is one monomial with a positive coefficient."""
        monomial, coefficient = self._single("under a root")
        if coefficient < 0:
            raise ValueError(f"a root of the negative {self}")
        half = Fraction(1, 2)
        primes = _factors(coefficient.numerator) + [(p, -e) for p, e in _factors(coefficient.denominator)]
        roots = [(((str(p), e * half),), Fraction(1)) for p, e in primes]
        out = Polynomial([(_scaled(monomial, half), Fraction(1))])
        for term in roots:
            out = out * Polynomial([term])
        return out

    def at(self, values: Mapping[str, Polynomial]) -> Polynomial:
        """The value where letters have the given values; a fractional power of a value is a root of it."""
        out = Polynomial()
        for monomial, coefficient in self.terms.items():
            term = Polynomial.number(coefficient)
            for letter, exponent in monomial:
                term = term * _power(values.get(letter, Polynomial.letter(letter)), exponent)
            out = out + term
        return out

    def degree(self, letter: str) -> Fraction:
        """The largest exponent of a letter; of 0, and without the letter, 0."""
        return max((dict(m).get(letter, Fraction(0)) for m in self.terms), default=Fraction(0))

    def constant(self) -> Fraction | None:
        """The value where there is no letter, else None."""
        if not self.terms:
            return Fraction(0)
        return self.terms[()] if list(self.terms) == [()] else None

    def _single(self, words: str) -> tuple[Monomial, Fraction]:
        if len(self.terms) != 1:
            raise ValueError(f"{self} {words}: only one monomial that is not 0 can be")
        return next(iter(self.terms.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __str__(self) -> str:
        return " + ".join("·".join([str(c), *(f"{x}^{e}" for x, e in m)]) for m, c in sorted(self.terms.items())) or "0"

    __repr__ = __str__


def _times(a: Monomial, b: Monomial) -> Monomial:
    exponents = dict(a)
    for letter, exponent in b:
        exponents[letter] = exponents.get(letter, Fraction(0)) + exponent
    return tuple(sorted((x, e) for x, e in exponents.items() if e))


def _scaled(monomial: Monomial, factor: Fraction) -> Monomial:
    return tuple((x, e * factor) for x, e in monomial)


def _primes_out(monomial: Monomial) -> tuple[Monomial, Fraction]:
    """Whole powers of prime letters become part of the coefficient: 2^{3/2} is 2 · 2^{1/2}."""
    factor = Fraction(1)
    rest = []
    for letter, exponent in monomial:
        whole = exponent.__floor__() if letter.isdigit() else 0
        factor *= Fraction(int(letter)) ** whole if whole else 1
        if exponent != whole:
            rest.append((letter, exponent - whole))
    return tuple(rest), factor


def _factors(n: int) -> list[tuple[int, int]]:
    """The prime factors of n with their exponents, by trial division."""
    found = []
    p = 2
    while n > 1:
        p = p if p * p <= n else n
        exponent = 0
        while n % p == 0:
            n //= p
            exponent += 1
        if exponent:
            found.append((p, exponent))
        p += 1
    return found


def _power(x: Polynomial, exponent: Fraction) -> Polynomial:
    if exponent.denominator == 1:
        return x ** int(exponent)
    if exponent.denominator == 2:
        return x.root() ** int(2 * exponent)
    raise ValueError(f"{x} to the power {exponent}")
