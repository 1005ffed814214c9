"""K: the real numbers ℚ(√a₁, …, √a_r), with as many roots as a calculation needs.

An element is an ``int``, a ``Fraction``, or, when it is irrational, a ``Surd``. The square roots of distinct squarefree
integers are linearly independent over ℚ (A. S. Besicovitch, J. London Math. Soc. 15 (1940), 3–6), so the collected form
Σ_a c_a √a is unique: two elements are equal iff their forms are, and an element is zero iff its form is empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache, total_ordering
from math import gcd, isqrt, lcm
from typing import TypeAlias

import flint

from symattn.document.errors import Refused

_LONGEST = 64  # terms of a surd while its inverse is computed: six independent roots
_FACTORED_BITS = 128  # larger integers are factored by trial division only


@total_ordering
class Surd:
    """(Σ_a c_a √a) / den: squarefree a ≥ 1, integers c_a ≠ 0 without common factor with den, and some a > 1."""

    __slots__ = ("_hash", "den", "terms")

    def __init__(self, terms: dict[int, int], den: int) -> None:
        self.terms = terms
        self.den = den
        self._hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((frozenset(self.terms.items()), self.den))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Surd):
            return self.den == other.den and self.terms == other.terms
        # A surd is irrational, so it equals no rational number.
        return False if isinstance(other, (int, Fraction)) else NotImplemented

    def __add__(self, other: K) -> K:
        terms, den = integer_terms(other)
        common = lcm(self.den, den)
        mine, its = common // self.den, common // den
        out = {a: c * mine for a, c in self.terms.items()}
        for a, c in terms.items():
            out[a] = out.get(a, 0) + c * its
        return reduced(out, common)

    __radd__ = __add__

    def __neg__(self) -> Surd:
        negated = {a: -c for a, c in self.terms.items()}
        return Surd(negated, self.den)

    def __sub__(self, other: K) -> K:
        return self + -other

    def __rsub__(self, other: int | Fraction) -> K:
        return -self + other

    def __mul__(self, other: K) -> K:
        terms, den = integer_terms(other)
        return reduced(with_product({}, self.terms, terms), self.den * den)

    __rmul__ = __mul__

    def __lt__(self, other: K) -> bool:
        return sign(self - other) < 0

    def __repr__(self) -> str:
        return f"Surd({self.terms}, {self.den})"


K: TypeAlias = int | Fraction | Surd


def integer_terms(x: K) -> tuple[dict[int, int], int]:
    """``({a: c_a}, den)`` with x = (Σ c_a √a) / den."""
    if isinstance(x, Surd):
        return x.terms, x.den
    return ({1: x.numerator} if x else {}), x.denominator


def inverse(x: K) -> K:
    """1/x for x ≠ 0, by conjugates: (u + v√p)(u − v√p) has no √p. Raises Refused for sums of many independent roots."""
    factor: K = 1
    while isinstance(x, Surd):
        # Each conjugate may double the number of terms.
        if len(x.terms) > _LONGEST:
            raise Refused("exact: division by a sum of too many independent square roots; use ball")
        # Each round removes one prime from all radicands, so the loop ends.
        p = _smallest_prime(min(a for a in x.terms if a > 1))
        changed = {a: -c if a % p == 0 else c for a, c in x.terms.items()}
        conjugate = Surd(changed, x.den)
        factor, x = factor * conjugate, x * conjugate
    return plain(factor * (1 / Fraction(x)))


def root(x: int | Fraction) -> K:
    """√x for a rational x ≥ 0: √(p/q) = s_p √(a_p a_q) / (s_q a_q) where p = s_p² a_p, q = s_q² a_q."""
    if x == 0:
        return 0
    x = Fraction(x)
    s, a = square_part(x.numerator)
    t, b = square_part(x.denominator)
    return reduced({a * b: s}, t * b)


# Factoring is slow, and code takes roots of few numbers.
@lru_cache(maxsize=4096)
def square_part(n: int) -> tuple[int, int]:
    """(s, a) with n = s² a and a squarefree, for n ≥ 1. Raises Refused if n is too large to factor."""
    s = a = 1
    for p, e in _yield_radicand_factors(n):
        s *= p ** (e // 2)
        a *= p ** (e % 2)
    return s, a


def sign(x: K) -> int:
    """Return −1, 0 or 1. A surd is never zero, so raising the precision decides it."""
    if not isinstance(x, Surd):
        return (x > 0) - (x < 0)
    # One term has the sign of its coefficient.
    if len(x.terms) == 1:
        return 1 if next(iter(x.terms.values())) > 0 else -1
    bits = 64
    while True:
        with flint.ctx.workprec(bits):
            if (ball := enclosure(x)) != 0:
                return 1 if ball > 0 else -1
        bits *= 2


def enclosure(x: K) -> flint.arb:
    """Return a ball that contains x, at the working precision of the caller."""
    terms, den = integer_terms(x)
    ball = flint.arb(0)
    for a, c in terms.items():
        ball += c if a == 1 else flint.arb(a).sqrt() * c
    return ball if den == 1 else ball / den


def with_product(out: dict[int, int], x: dict[int, int], y: dict[int, int]) -> dict[int, int]:
    """Add the product of Σ c_a √a and Σ d_b √b to ``out``, which is returned."""
    for a, c in x.items():
        for b, d in y.items():
            # √a √b = g √(ab/g²) for g = gcd(a, b) keeps radicands squarefree.
            g = gcd(a, b)
            radicand = (a // g) * (b // g)
            out[radicand] = out.get(radicand, 0) + c * d * g
    return out


def reduced(terms: dict[int, int], den: int) -> K:
    """Return (Σ c_a √a) / den in lowest terms, without terms that are 0."""
    # The denominator takes part, so that the fraction is in lowest terms.
    g = gcd(den, *terms.values())
    terms = {a: c // g for a, c in terms.items() if c}
    den //= g
    if not terms:
        return 0
    # √1 alone is a rational number.
    if len(terms) == 1 and 1 in terms:
        return terms[1] if den == 1 else Fraction(terms[1], den)
    return Surd(terms, den)


def plain(x: K) -> K:
    """Return a fraction that is an integer as an int."""
    return x.numerator if isinstance(x, Fraction) and x.denominator == 1 else x


@lru_cache(maxsize=4096)
def _smallest_prime(n: int) -> int:
    return min(p for p, _ in _yield_radicand_factors(n))


def _yield_radicand_factors(n: int) -> Iterator[tuple[int, int]]:
    """Yield factors of n and their multiplicities; factors are prime, or roots of squares that were not factored."""
    whole = n.bit_length() <= _FACTORED_BITS
    factors = flint.fmpz(n).factor() if whole else flint.fmpz(n).factor(trial_limit=1000)
    for p, e in factors:
        p = int(p)
        if whole or p.bit_length() <= _FACTORED_BITS:
            if whole:
                yield p, e
            else:
                yield from ((int(q), e * m) for q, m in flint.fmpz(p).factor())
        # An unfactored square is harmless: its root leaves no radicand.
        elif isqrt(p) ** 2 == p:
            yield isqrt(p), 2 * e
        else:
            raise Refused(
                f"exact: the square root of a {n.bit_length()}-bit integer of unknown factors; use ball"
            )
