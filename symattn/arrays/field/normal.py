"""The one form in which an exact number is written.

    ± p N / (q D)     p, q coprime positive integers; N, D sums with coprime integer coefficients

The lowest exponent of D is 0; where D is 1 it is left out. Where exponents are multiples of one unit and coefficients
are integers, N and D have no common factor but a power of e. Terms stand by ascending exponent, or by descending
exponent where only that begins with a positive term: 1+4e², 5−e², 5e⁴−1. Where neither does, a minus stands in front.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar, cast

from symattn.arrays.field.fractions import from_lowest
from symattn.arrays.field.quotient import Quotient
from symattn.arrays.field.sums import Sum, content, exponent, from_polynomial, polynomials, scaled
from symattn.arrays.field.surds import K, integer_terms, sign

Terms = list[tuple[K, K]]  # exponents and coefficients
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Form:
    """sign · ratio · numerator / denominator, as the module says; ``denominator`` may be the one term 1."""

    sign: int
    ratio: Fraction
    numerator: Terms
    denominator: Terms


def normal(x: Quotient) -> Form:
    """The normal form of x ≠ 0."""
    unit, n, d = x.parts
    n, d = _without_common_factor(*from_lowest(n, d))
    above, below = content(n), content(d)
    ratio = above / below
    s, numerator = leading_positive(_ascending(scaled(n, 1 / above)), _sign_of_term)
    t, denominator = leading_positive(_ascending(scaled(d, 1 / below)), _sign_of_term)
    return Form(
        s * t,
        ratio,
        [(exponent(unit, k), c if s > 0 else -c) for k, c in numerator],
        [(exponent(unit, k), c if t > 0 else -c) for k, c in denominator],
    )


def leading_positive(terms: list[T], sign_of: Callable[[T], int]) -> tuple[int, list[T]]:
    """The terms as they are or reversed, so that the first is positive; sign −1 where no end is, then negate them."""
    if sign_of(terms[0]) > 0:
        return 1, terms
    return (1, terms[::-1]) if sign_of(terms[-1]) > 0 else (-1, terms)


def leading_sign(c: K) -> int:
    """The sign with which a coefficient is written: of a number with several terms, +1 where an end is positive."""
    terms = sorted(integer_terms(c)[0].items())
    return leading_positive(terms, lambda term: sign(term[1]))[0]


def _sign_of_term(term: tuple[K, K]) -> int:
    return leading_sign(term[1])


def _ascending(f: Sum) -> Terms:
    return [(k, f[k]) for k in sorted(cast("dict[int, K]", f))]


def _without_common_factor(n: Sum, d: Sum) -> tuple[Sum, Sum]:
    found = polynomials(n, d) if len(n) > 1 and len(d) > 1 else None
    if found is None:
        return n, d
    (p, q), (low, also), step = found
    g = p.gcd(q)
    if g.degree() < 1:
        return n, d
    return from_polynomial(p // g, low, step), from_polynomial(q // g, also, step)
