"""Polynomials that stand in exponents: small, so plain dicts from monomials to rational coefficients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

Key = tuple[Any, ...]
Monomial = tuple[tuple[Key, int], ...]
Polynomial = dict[Monomial, Fraction]


def number(c: Fraction) -> Polynomial:
    """A constant."""
    return {(): c} if c else {}


def letter(key: Key) -> Polynomial:
    """A letter."""
    return {((key, 1),): Fraction(1)}


def monomial(powers: Mapping[Key, int]) -> Monomial:
    """The monomial with these powers; zeros are left out."""
    return tuple(sorted(((k, e) for k, e in powers.items() if e), key=repr))


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
