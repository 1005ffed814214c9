"""K[e^K]: finite sums Σ_k c_k e^k with exponents k and coefficients c_k in K.

A sum is a dict from keys to coefficients and belongs to a ``Unit``, √a/m: the exponent of a key is key · √a/m. As long
as all exponents are integer multiples of one unit the keys are Python integers; otherwise the unit is 1 and keys are
elements of K. Coefficients are integers if possible. No coefficient is zero; sums are immutable.

By the theorem of Lindemann and Weierstrass (A. Baker, Transcendental Number Theory, 1975, Theorem 1.4) the numbers e^k
for distinct algebraic k are linearly independent over the algebraic numbers. K is algebraic, so a sum is zero iff its
dict is empty, and two sums over one unit are equal iff their dicts are.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import gcd, lcm
from typing import Any, NamedTuple, cast

import flint

from symattn.arrays.field import surds

Sum = dict[surds.K, surds.K]
# One object, so that ``is`` recognises it.
ONE: Sum = {0: 1}
_PAIRS_BY_HAND = 256  # products of more pairs of terms are computed as polynomials
_LONGEST = 1 << 16  # unless the polynomials are longer than this


class Unit(NamedTuple):
    """√radicand / denominator."""

    radicand: int
    denominator: int


# The unit of plain exponents: keys are elements of K.
PLAIN = Unit(1, 1)


# The limit bounds the memory; a unit that falls out is equal still, only slower to compare.
@lru_cache(maxsize=4096)
def unit(radicand: int, denominator: int) -> Unit:
    """Return the unit, usually the same object each time, so that ``is`` recognises it."""
    return PLAIN if radicand == denominator == 1 else Unit(radicand, denominator)


def power(k: surds.K) -> tuple[Unit, surds.K]:
    """Return the unit and the key of e^k."""
    if isinstance(k, surds.Surd):
        # Sums of roots are multiples of no single unit.
        if len(k.terms) > 1:
            return PLAIN, k
        ((a, c),) = k.terms.items()
        return unit(a, k.den), c
    return unit(1, k.denominator), k.numerator


def exponent(u: Unit, key: surds.K) -> surds.K:
    """key · √a/m, an element of K."""
    if u is PLAIN or not key:
        return key
    a, m = u
    if a == 1:
        return surds.plain(key * Fraction(1, m))
    return surds.Surd({a: 1}, m) * key


def joined(u: Unit, v: Unit) -> Unit:
    """Return a unit of which both are multiples, else 1 (with keys in K)."""
    # Multiples of one root have a common unit; other pairs need keys in K.
    if u.radicand == v.radicand:
        return unit(u.radicand, lcm(u.denominator, v.denominator))
    return PLAIN


def converted(f: Sum, u: Unit, v: Unit) -> Sum:
    """Convert the sum f from the unit u to v."""
    # A number without an exponential is the same over every unit.
    if u == v or (len(f) == 1 and 0 in f):
        return f
    if u.radicand == v.radicand and v.denominator % u.denominator == 0:
        factor = v.denominator // u.denominator
        return {k * factor: c for k, c in f.items()}
    if v.radicand != 1:
        raise ValueError(f"{u} is not a multiple of {v}")
    return {surds.plain(exponent(u, k) * v.denominator): c for k, c in f.items()}


def plus(f: Sum, g: Sum) -> Sum:
    """f + g."""
    # The sum with more terms is copied, the other one added.
    if len(f) < len(g):
        f, g = g, f
    out = f.copy()
    for k, c in g.items():
        if k in out and not (c := c + out[k]):
            del out[k]
        else:
            out[k] = c
    return out


def minus(f: Sum) -> Sum:
    """−f."""
    return {k: -c for k, c in f.items()}


def shifted(f: Sum, by: surds.K) -> Sum:
    """f · e^by, ``by`` a key."""
    return {k + by: c for k, c in f.items()} if by else f


def times(f: Sum, g: Sum) -> Sum:
    """f g."""
    if len(g) == 1:
        ((b, d),) = g.items()
        if not b and d == 1:
            return f
        if len(f) == 1:
            ((k, c),) = f.items()
            return {k + b: c * d}
        return {k + b: c * d for k, c in f.items()}
    if len(f) == 1:
        return times(g, f)
    # FLINT multiplies long polynomials faster than dictionaries do.
    many = len(f) * len(g) > _PAIRS_BY_HAND
    if many and (dense := _dense_product(f, g)) is not None:
        return dense
    if any(c.__class__ is not int for h in (f, g) for c in h.values()):
        return _product_of_surds(f, g)
    out: Sum = {}
    for k, c in f.items():
        for b, d in g.items():
            before = out.get(k + b, 0)
            out[k + b] = before + c * d
    # Terms that cancelled are dropped: no coefficient of a sum is 0.
    if all(out.values()):
        return out
    return {k: c for k, c in out.items() if c}


def _product_of_surds(f: Sum, g: Sum) -> Sum:
    """f g in integer multiples of roots over one common denominator, each coefficient in lowest terms at the end."""
    # One common denominator: integers are multiplied in between.
    p, q = (lcm(*[surds.integer_terms(c)[1] for c in h.values()]) for h in (f, g))
    left = [(k, surds.integer_terms(c * p)[0]) for k, c in f.items()]
    right = [(k, surds.integer_terms(c * q)[0]) for k, c in g.items()]
    out: dict[surds.K, dict[int, int]] = {}
    for (k, x), (b, y) in product(left, right):
        surds.with_product(out.setdefault(k + b, {}), x, y)
    return {k: whole for k, terms in out.items() if (whole := surds.reduced(terms, p * q))}


def content(f: Sum) -> Fraction:
    """Return the positive rational r for which f/r has coprime integer coordinates over the roots; f is not empty."""
    above, below = 0, 1
    for c in f.values():
        terms, den = surds.integer_terms(c)
        above = gcd(above, *terms.values())
        below = lcm(below, den)
    return Fraction(above, below)


def scaled(f: Sum, r: Fraction) -> Sum:
    """r f for a rational r ≠ 0."""
    return {k: surds.plain(c * r) for k, c in f.items()}


def polynomials(*sums: Sum) -> tuple[list[flint.fmpz_poly], list[int], int] | None:
    """Return polynomials p_i in t with f_i = e^(low_i) p_i(e^step), the low_i and the common step.

    None if a key or coefficient is not an integer, or the polynomials would be long for their number of terms.
    """
    if not all(isinstance(x, int) for f in sums for kc in f.items() for x in kc):
        return None
    dense = cast("tuple[dict[int, int], ...]", sums)
    # Shifted to exponents from 0, and divided by their common step, exponents are small.
    lows = [min(f) for f in dense]
    gaps = (k - low for f, low in zip(dense, lows, strict=True) for k in f)
    step = gcd(*gaps) or 1
    with_lows = zip(dense, lows, strict=True)
    spans = [(max(f) - low) // step for f, low in with_lows]
    # Sparse sums would be long lists of zeros.
    if max(spans) > min(_LONGEST, 64 * sum(map(len, dense))):
        return None
    result = []
    for f, low, span in zip(dense, lows, spans, strict=True):
        coefficients = [0] * (span + 1)
        for k, c in f.items():
            coefficients[(k - low) // step] = c
        result.append(flint.fmpz_poly(coefficients))
    return result, lows, step


def from_polynomial(p: Any, low: int, step: int) -> Sum:
    """e^low p(e^step)."""
    coefficients = enumerate(p.coeffs())
    return {low + i * step: int(c) for i, c in coefficients if c}


def ball(u: Unit, f: Sum) -> flint.arb:
    """Return a ball that contains the sum, at the working precision of the caller."""
    total = flint.arb(0)
    # Keys are multiples of the unit, so that its root is enclosed once for all terms.
    one = None if u == PLAIN else surds.enclosure(exponent(u, 1))
    for k, c in f.items():
        exponential = (surds.enclosure(k) if one is None else one * surds.enclosure(k)).exp()
        total += exponential * (c if isinstance(c, int) else surds.enclosure(c))
    return total


def _dense_product(f: Sum, g: Sum) -> Sum | None:
    results = polynomials(f, g)
    if results is None:
        return None
    (p, q), (low, also), step = results
    return from_polynomial(p * q, low + also, step)


# -- fractions n/d of two sums over one unit ---------------------------------------------------------------------------
def divided(n: Sum, m: Sum) -> tuple[Sum, Sum]:
    """Return n/m for m ≠ 0: a denominator of one term is divided out, except for a positive integer."""
    # Only a single term can be inverted.
    if len(m) > 1 or not n:
        return n, m if n else ONE
    ((k, c),) = m.items()
    n = shifted(n, -k)
    # A surd below is moved above: 1/√a = √a/a.
    if not isinstance(c, int):
        return in_lowest_terms(times(n, {0: surds.inverse(c)}), ONE)
    if c == 1:
        return n, ONE
    return in_lowest_terms(n if c > 0 else minus(n), {0: abs(c)})


def common(d: Sum, e: Sum) -> tuple[Sum, Sum, Sum]:
    """Return (a, b, c) with a common denominator c = a d = b e, the least one if it is found quickly."""
    if d is ONE or e is ONE:
        return (e, ONE, e) if d is ONE else (ONE, d, d)
    if len(d) == len(e) == 1:
        p = cast(int, d[0])
        q = cast(int, e[0])
        c = lcm(p, q)
        return {0: c // p}, {0: c // q}, {0: c}
    # Proportional denominators differ by a number, which needs no gcd of polynomials.
    ratio = proportion(d, e)
    if ratio is not None:
        a, b = ratio.denominator, ratio.numerator
        return {0: a}, {0: b}, {k: cast(int, c) * a for k, c in d.items()}
    results = polynomials(d, e)
    # Without polynomials there is no gcd; the product is a common denominator.
    if results is None:
        return e, d, times(d, e)
    (p, q), (low, also), step = results
    g = p.gcd(q)
    left = from_polynomial(q // g, also, step)
    right = from_polynomial(p // g, low, step)
    return left, right, times(left, d)


def proportion(d: Sum, e: Sum) -> Fraction | None:
    """Return d/e if it is obviously a number: the same exponents, and integer coefficients in one ratio; else None."""
    # Different exponents have no rational ratio.
    other_terms = len(d) != len(e) or d.keys() != e.keys()
    if other_terms:
        return None
    k = next(iter(d))
    p, q = d[k], e[k]
    if p.__class__ is not int or q.__class__ is not int or not q:
        return None
    # c q = e_j p for all j: one ratio, without a division.
    if any(
        c.__class__ is not int or e[j].__class__ is not int or c * q != cast(int, e[j]) * p
        for j, c in d.items()
    ):
        return None
    return Fraction(p, q)


def from_lowest(n: Sum, d: Sum) -> tuple[Sum, Sum]:
    """Return n/d with both shifted so that the lowest exponent of d is 0."""
    low = 0 if len(d) == 1 else min(cast("dict[int, surds.K]", d))
    if low:
        return (shifted(n, -low), shifted(d, -low))
    return (n, d)


def in_lowest_terms(n: Sum, d: Sum) -> tuple[Sum, Sum]:
    """Return n/d, in lowest terms if d is an integer: with integer coefficients, for surds integer coordinates."""
    if not n or len(d) > 1:
        return n, d if n else ONE
    q = cast(int, d[0])
    try:
        g = gcd(q, *cast("dict[surds.K, int]", n).values())
    except TypeError:  # not only integers
        c = content(n)
        lowest = c / q
        return scaled(n, lowest.numerator / c), ONE if lowest.denominator == 1 else {
            0: lowest.denominator
        }
    if g > 1:
        n = {k: cast(int, c) // g for k, c in n.items()}
    return n, ONE if q == g else {0: q // g}
