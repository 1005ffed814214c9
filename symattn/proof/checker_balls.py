"""Signs of numbers, for ``checker``: enclose an expression without letters, using integers only.

Ends of intervals are rounded outward to 128 bits. Exponentials are Taylor's series of x / 2ᵏ, with a bound on the
remainder, squared k times; a logarithm is that of a number between 2/3 and 4/3 plus that of a power of 2, by
Σ 2 z²ⁿ⁺¹/(2n + 1) with z = (x − 1)/(x + 1); erf is its alternating series, cut where terms decrease; π is Machin's
16 arctan(1/5) − 4 arctan(1/239). All of these functions increase, so their values at the ends of an interval enclose
those between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

from symattn.proof.checker_reading import MANY, CheckedNode, Rejected, expect, expect_few

# Bits of the ends of intervals.
BITS = 128
_FINE = 1 << 256  # series are summed in whole multiples of its reciprocal
_FARTHEST = 20_000  # powers of 2 by which a number is scaled
_HIGHEST = 2000  # largest exponent of e
_WIDEST = 6  # largest argument of erf
# Anything else, such as a letter or a size, has no single value.
_OF_NUMBERS = frozenset({"number", "sum", "product", "ratio", "exp", "function"})


class Interval(NamedTuple):
    """All numbers from ``low`` to ``high``."""

    low: Fraction
    high: Fraction


def is_positive_number(x: CheckedNode) -> bool:
    """Return whether an interval shows that ``x`` > 0; False if it contains anything but numbers."""
    every = x.all(into_functions=True)
    if any(y.kind not in _OF_NUMBERS for y in every):
        return False
    # Functions cost about ten times an operation.
    expect_few(sum(10 if y.kind in ("exp", "function") else 1 for y in every))
    try:
        return enclosure(x).low > 0
    except Rejected:
        return False


@lru_cache(MANY)
def enclosure(x: CheckedNode) -> Interval:
    """Return an interval that contains the value of ``x``. Raises Rejected if there is none."""
    if x.kind == "number":
        return Interval(x.label, x.label)
    below = [enclosure(y) for y in x.below]
    if x.kind == "sum":
        low = sum((y.low for y in below), Fraction(0))
        high = sum((y.high for y in below), Fraction(0))
        return _round_interval_outward(low, high)
    if x.kind == "product":
        result = Interval(Fraction(1), Fraction(1))
        for y in below:
            result = _multiply_intervals(result, y)
        return result
    if x.kind == "ratio":
        above, under = below
        # Across 0 the quotient has no bounds.
        expect(under.low > 0 or under.high < 0, "a divisor that may be zero")
        return _multiply_intervals(above, Interval(1 / under.high, 1 / under.low))
    rising = _RISING.get("exp" if x.kind == "exp" else x.label)
    # The function must rise, so that values at the ends enclose the others.
    if rising is None or len(below) != 1:
        raise Rejected(f"{x.label or x.kind} is not enclosed by the checker")
    return Interval(rising(below[0].low).low, rising(below[0].high).high)


def _multiply_intervals(a: Interval, b: Interval) -> Interval:
    ends = [x * y for x in a for y in b]
    return _round_interval_outward(min(ends), max(ends))


def _round_interval_outward(low: Fraction, high: Fraction) -> Interval:
    """Return the interval from ``low`` to ``high``, rounded outward to 128 bits."""
    return Interval(_round_to_128_bits(low, False), _round_to_128_bits(high, True))


def _round_to_128_bits(x: Fraction, up: bool) -> Fraction:
    """Return ``x`` rounded to 128 bits, up or down."""
    if not x:
        return x
    # The shift that leaves 128 bits before the point.
    shift = BITS - (abs(x.numerator).bit_length() - x.denominator.bit_length())
    expect(abs(shift) <= _FARTHEST, "a number beyond what balls are computed for")
    # Huge shifts would need numbers of as many bits.
    scale = Fraction(1 << shift) if shift >= 0 else Fraction(1, 1 << -shift)
    # Floor rounds down; its mirror image rounds up.
    whole = -((-x * scale) // 1) if up else (x * scale) // 1
    return Fraction(whole) / scale


# -- functions of one number -------------------------------------------------------------------------------------------
def _enclose_fine_units(units: int, off: int) -> Interval:
    """Return the interval around a sum of whole multiples of 1/_FINE, off by less than ``off`` of them."""
    return _round_interval_outward(Fraction(units - off, _FINE), Fraction(units + off, _FINE))


def _enclose_rational_exp(x: Fraction) -> Interval:
    expect(abs(x) <= _HIGHEST, f"e to a power beyond {_HIGHEST}")
    # Enough halvings for an argument of at most 1/2, where the series is fast.
    halvings = max(0, (2 * abs(x)).__ceil__().bit_length())
    r = _count_fine_units(x / (1 << halvings))  # |r| ≤ 1/2, off by 1 unit at most
    term = total = _FINE
    for n in range(1, 70):  # 2⁻⁷⁰/70! is less than a unit
        term = term * r // (n * _FINE)
        total += term
    result = _enclose_fine_units(total, 400)
    # Each squaring undoes one halving.
    for _ in range(halvings):
        result = _multiply_intervals(result, result)
    return result


def _enclose_rational_log(x: Fraction) -> Interval:
    expect(x > 0, "the logarithm of what may not be positive")
    # Near 1 after division by a power of 2, where the series is fast.
    k = x.numerator.bit_length() - x.denominator.bit_length()
    m = x / Fraction(2) ** k
    while m > Fraction(4, 3):
        m, k = m / 2, k + 1
    while m < Fraction(2, 3):
        m, k = m * 2, k - 1
    expect_few(abs(k))
    own = _twice_artanh((m - 1) / (m + 1))
    two = _twice_artanh(Fraction(1, 3))
    # k log 2 is added as an interval, since log 2 is no rational number.
    power = _multiply_intervals(two, Interval(Fraction(k), Fraction(k)))
    return _round_interval_outward(own.low + power.low, own.high + power.high)


def _twice_artanh(z: Fraction) -> Interval:
    """Return log((1 + z)/(1 − z)) for |z| ≤ 1/3."""
    return _odd_series(z, lambda n: 1)  # 3⁻²⁰⁰ is less than a unit


def _enclose_twice_arctangent(z: Fraction) -> Interval:
    """Return twice the arctangent of |z| ≤ 1/5."""
    return _odd_series(z, lambda n: (-1) ** n)


def _odd_series(z: Fraction, sign: Callable[[int], int]) -> Interval:
    """2 Σ ± z²ⁿ⁺¹/(2n + 1), by 100 terms."""
    unit = _count_fine_units(z)
    power, square, total = unit, unit * unit // _FINE, 0
    for n in range(100):
        total += sign(n) * (2 * power // (2 * n + 1))
        power = power * square // _FINE
    return _enclose_fine_units(total, 800)


def _enclose_error_function(x: Fraction) -> Interval:
    """2/√π Σ (−1)ⁿ x²ⁿ⁺¹/(n! (2n + 1)): terms alternate and, from n = x² on, decrease."""
    # erf is odd.
    if x < 0:
        low, high = _enclose_error_function(-x)
        return Interval(-high, -low)
    expect(x <= _WIDEST, f"erf beyond {_WIDEST}")
    unit = _count_fine_units(x)
    power, square, total, n = unit, unit * unit // _FINE, 0, 0
    # Only from n = x² on do terms decrease, so that the remainder is below the first one left out.
    while power > 1 or n <= _WIDEST**2:
        total += (-1) ** n * (power // (2 * n + 1))
        n += 1
        power = power * square // (n * _FINE)
    # errors of the first terms grow with x²ⁿ/n! ≤ e³⁶ < 2⁵³
    series = _enclose_fine_units(total, 1 << 64)
    five, far = (
        _enclose_twice_arctangent(Fraction(1, 5)),
        _enclose_twice_arctangent(Fraction(1, 239)),
    )
    # Machin's formula.
    pi_low = 8 * five.low - 2 * far.high
    pi = _round_interval_outward(pi_low, 8 * five.high - 2 * far.low)
    # The root rises, so its ends come from the ends of π.
    root = Interval(_enclose_rational_root(pi.low).low, _enclose_rational_root(pi.high).high)
    return _multiply_intervals(series, Interval(2 / root.high, 2 / root.low))


def _enclose_rational_root(x: Fraction) -> Interval:
    expect(x >= 0, "the root of what may be negative")
    # Floor, so the true root lies below the next unit.
    root = isqrt(x.numerator * _FINE * _FINE // x.denominator)
    return _round_interval_outward(Fraction(root, _FINE), Fraction(root + 1, _FINE))


def _count_fine_units(x: Fraction) -> int:
    return x.numerator * _FINE // x.denominator


_RISING: Mapping[str, Callable[[Fraction], Interval]] = {
    "exp": _enclose_rational_exp,
    "log": _enclose_rational_log,
    "erf": _enclose_error_function,
    "sqrt": _enclose_rational_root,
}
