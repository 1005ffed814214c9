"""The one form in which an exact number is written.

    ± p N / (q D)     p, q coprime positive integers; N, D sums with coprime integer coefficients

D is 1, or it has several terms, the highest coefficient of them positive, and the lowest exponent in N and D is 0.
Where exponents are multiples of one unit and coefficients are integers, N and D have no common factor. Terms stand by
ascending exponent, or by descending exponent where only that begins with a positive term: 1+4e², 5−e², 5e⁴−1. Where
neither does, a minus stands in front.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple, TypeVar, cast

from symattn.arrays.field.quotient import Quotient
from symattn.arrays.field.sums import Sum, content, exponent, from_polynomial, polynomials, scaled, shifted, times
from symattn.arrays.field.surds import K, Surd, integer_terms, inverse, sign

Terms = list[tuple[K, K]]  # exponents and coefficients
T = TypeVar("T")


class Form(NamedTuple):
    """sign · ratio · numerator / denominator, as the module says; ``denominator`` may be the one term 1."""

    sign: int
    ratio: Fraction
    numerator: Terms
    denominator: Terms


def normal(x: Quotient) -> Form:
    """The normal form of x ≠ 0."""
    unit, n, d = x.parts
    n, d = _cancelled(*_rational_below(n, d))
    above, below, flip = content(n), content(d), sign(_ascending(d)[-1][1])
    s, numerator = leading_positive(_ascending(scaled(n, flip / above)), _sign_of_term)
    t, denominator = leading_positive(_ascending(scaled(d, flip / below)), _sign_of_term)
    return Form(
        s * t,
        above / below,
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


def _rational_below(n: Sum, d: Sum) -> tuple[Sum, Sum]:
    """n/d with rational coefficients in d, where one factor makes all of them rational."""
    c = next(iter(d.values()))
    if not isinstance(c, Surd):
        return n, d
    factor: Sum = {0: inverse(c)}
    below = times(d, factor)
    return (n, d) if any(isinstance(c, Surd) for c in below.values()) else (times(n, factor), below)


def _cancelled(n: Sum, d: Sum) -> tuple[Sum, Sum]:
    """n/d without a common factor, as far as the module says, and with the lowest exponent 0 unless d has one term."""
    results = polynomials(n, d) if len(n) > 1 and len(d) > 1 else None
    if results is not None:
        (p, q), (low, also), step = results
        g = p.gcd(q)
        if g.degree() > 0:
            n, d = from_polynomial(p // g, low, step), from_polynomial(q // g, also, step)
    lowest = min(cast("dict[int, K]", d if len(d) == 1 else {**n, **d}))
    return shifted(n, -lowest), shifted(d, -lowest)
