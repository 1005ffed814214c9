"""Polynomials that stand in exponents: small, so plain dicts from monomials to rational coefficients.

A letter is a number, and a monomial the letters with their powers, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

Monomial = tuple[tuple[int, int], ...]
Polynomial = dict[Monomial, Fraction]


def number(c: Fraction) -> Polynomial:
    """A constant."""
    return {(): c} if c else {}


def letter(key: int) -> Polynomial:
    """A letter."""
    return {((key, 1),): Fraction(1)}


def monomial(powers: Mapping[int, int]) -> Monomial:
    """The monomial with these powers; zeros are left out."""
    return tuple(sorted((k, e) for k, e in powers.items() if e))


def plus(fs: Iterable[Polynomial]) -> Polynomial:
    """Σ fs."""
    out: Polynomial = {}
    for f in fs:
        for m, c in f.items():
            d = out.get(m, Fraction(0)) + c
            if d:
                out[m] = d
            else:
                out.pop(m, None)
    return out


def times(f: Polynomial, g: Polynomial) -> Polynomial:
    """f g."""
    parts = []
    for m, a in f.items():
        for n, b in g.items():
            powers = dict(m)
            for k, e in n:
                powers[k] = powers.get(k, 0) + e
            parts.append({monomial(powers): a * b})
    return plus(parts)
