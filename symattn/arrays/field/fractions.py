"""Fractions n/d of two sums over one unit: division, common denominators, lowest terms."""

from __future__ import annotations

from fractions import Fraction
from math import gcd, lcm
from typing import cast

from symattn.arrays.field.sums import (
    ONE,
    Sum,
    content,
    from_polynomial,
    minus,
    polynomials,
    scaled,
    shifted,
    times,
)
from symattn.arrays.field.surds import K, inverse


def divided(n: Sum, m: Sum) -> tuple[Sum, Sum]:
    """n/m for m ≠ 0: a denominator of one term goes into the numerator, but for a positive integer."""
    if len(m) > 1 or not n:
        return n, m if n else ONE
    ((k, c),) = m.items()
    n = shifted(n, -k)
    if not isinstance(c, int):
        return in_lowest_terms(times(n, {0: inverse(c)}), ONE)
    if c == 1:
        return n, ONE
    return in_lowest_terms(n if c > 0 else minus(n), {0: abs(c)})


def common(d: Sum, e: Sum) -> tuple[Sum, Sum, Sum]:
    """(a, b, c) with c = a d = b e a common denominator, the least where it is found quickly."""
    if d is ONE or e is ONE:
        return (e, ONE, e) if d is ONE else (ONE, d, d)
    if len(d) == len(e) == 1:
        p, q = cast(int, d[0]), cast(int, e[0])
        c = lcm(p, q)
        return {0: c // p}, {0: c // q}, {0: c}
    ratio = proportion(d, e)
    if ratio is not None:
        a, b = ratio.denominator, ratio.numerator
        return {0: a}, {0: b}, {k: cast(int, c) * a for k, c in d.items()}
    results = polynomials(d, e)
    if results is None:
        return e, d, times(d, e)
    (p, q), (low, also), step = results
    g = p.gcd(q)
    left, right = from_polynomial(q // g, also, step), from_polynomial(p // g, low, step)
    return left, right, times(left, d)


def proportion(d: Sum, e: Sum) -> Fraction | None:
    """d/e where that is a number seen at once: the same exponents, integer coefficients in one ratio."""
    if len(d) != len(e) or d.keys() != e.keys():
        return None
    k = next(iter(d))
    p, q = d[k], e[k]
    if p.__class__ is not int or q.__class__ is not int or not q:
        return None
    if any(c.__class__ is not int or e[j].__class__ is not int or c * q != cast(int, e[j]) * p for j, c in d.items()):
        return None
    return Fraction(p, q)


def from_lowest(n: Sum, d: Sum) -> tuple[Sum, Sum]:
    """n/d with both shifted so that the lowest exponent of d is 0."""
    low = 0 if len(d) == 1 else min(cast("dict[int, K]", d))
    return (shifted(n, -low), shifted(d, -low)) if low else (n, d)


def in_lowest_terms(n: Sum, d: Sum) -> tuple[Sum, Sum]:
    """n/d, and where d is an integer in lowest terms: integer coefficients, for surds integer coordinates."""
    if not n or len(d) > 1:
        return n, d if n else ONE
    q = cast(int, d[0])
    if all(c.__class__ is int for c in n.values()):
        g = gcd(q, *cast("dict[K, int]", n).values())
        if g > 1:
            n = {k: cast(int, c) // g for k, c in n.items()}
        return n, ONE if q == g else {0: q // g}
    c = content(n)
    lowest = c / q
    return scaled(n, lowest.numerator / c), ONE if lowest.denominator == 1 else {0: lowest.denominator}
