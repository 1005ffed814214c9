"""Signs and digits of exact numbers, by Arb: balls whose precision grows until they decide.

This terminates, as no question is a borderline case. A sum that is not empty is not zero, so its ball excludes zero at
some precision; a value to be rounded is irrational, so it is not a tie. ``LIMIT`` bounds the work nevertheless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from math import inf

import flint

from symattn.arrays.field import sums, surds
from symattn.document.errors import Undecided

# Bounds the work for numbers that are extremely close, or large.
LIMIT = 1 << 17  # bits


def sign_of_sum(u: sums.Unit, f: sums.Sum) -> int:
    """Return the sign of a sum, without balls if all terms of its coefficients have the same one."""
    # Terms of one sign, all times powers of e > 0, need no digits.
    signs = {t > 0 for c in f.values() for t in surds.integer_terms(c)[0].values()}
    if len(signs) < 2:
        return 0 if not signs else 1 if True in signs else -1
    return sign(lambda: sums.ball(u, f))


def sign(value: Callable[[], flint.arb]) -> int:
    """Return the sign of a nonzero number; ``value`` encloses it at the working precision. Raises Undecided."""
    # The number is not 0, so some precision separates it from 0.
    for working in _yield_doubling_precisions(64):
        with flint.ctx.workprec(working):
            x = value()
        if x != 0:
            return 1 if x > 0 else -1
    raise AssertionError


def enclosure(u: sums.Unit, n: sums.Sum, d: sums.Sum, prec: int) -> flint.arb:
    """Return a ball that contains n/d, with about ``prec`` correct bits."""
    # Relative accuracy of 0 would never be reached.
    if not n:
        return flint.arb(0)
    return sharpened(lambda: sums.ball(u, n) / sums.ball(u, d), prec)


def sharpened(value: Callable[[], flint.arb], prec: int) -> flint.arb:
    """Return a ball with about ``prec`` correct bits of a nonzero number."""
    for working in _yield_doubling_precisions(prec + 32):
        with flint.ctx.workprec(working):
            x = value()
        if x.is_finite() and x.rel_accuracy_bits() >= prec:
            with flint.ctx.workprec(prec):
                return +x
    raise AssertionError


def nearest_double(enclose: Callable[[int], flint.arb]) -> float:
    """Return the double nearest to an irrational number; ``enclose`` takes the number of correct bits."""
    for working in _yield_doubling_precisions(64):
        x = enclose(working)
        with flint.ctx.workprec(working):
            low = _round_arb_to_double(x.lower())
            high = _round_arb_to_double(x.upper())
        if low == high:  # rounding is monotone
            return low
    raise AssertionError


def rational_double(r: Fraction) -> float:
    """Return the double nearest to r, ties to even (Python's division of integers is correctly rounded)."""
    try:
        return r.numerator / r.denominator
    except OverflowError:
        return inf if r > 0 else -inf


def decimal(enclose: Callable[[int], flint.arb], digits: int) -> str:
    """Return an irrational number to ``digits`` significant digits."""
    for working in _yield_doubling_precisions(64 + 4 * digits):
        if result := ball_decimal(enclose(working), digits, working):
            return result
    raise AssertionError


def ball_decimal(x: flint.arb, digits: int, working: int) -> str | None:
    """Return the number in a ball to ``digits`` significant digits, or None if the ball does not decide them."""
    with flint.ctx.workprec(working):
        size = abs(x)
        # An e too small by one, just below a power of ten, rounds up to that power and is as good.
        decimal_exponent = size.log() / flint.arb(10).log()
        e = decimal_exponent.lower().floor().unique_fmpz()
        # Both the exponent and the digits must be certain: a ball may span a boundary.
        whole = (
            e is not None
            and (size * flint.arb(10) ** (digits - 1 - e) + flint.arb(0.5)).floor().unique_fmpz()
        )
    return (
        _format_rounded_digits(x < 0, int(whole), int(e), digits, exact=False)
        if whole and whole <= 10**digits
        else None
    )


def rational_decimal(r: Fraction, digits: int) -> str:
    """Return a rational number to ``digits`` significant digits, ties to even; without trailing zeros if exact."""
    if not r:
        return "0"
    below_digits = len(str(flint.fmpz(r.denominator)))
    e = len(str(flint.fmpz(abs(r.numerator)))) - below_digits
    # The count of digits may be one too large.
    if abs(r) < Fraction(10) ** e:
        e -= 1
    shown = abs(r) * Fraction(10) ** (digits - 1 - e)
    return _format_rounded_digits(r < 0, round(shown), e, digits, exact=round(shown) == shown)


def _yield_doubling_precisions(first: int) -> Iterator[int]:
    """Yield first, 2 first, 4 first, … up to ``LIMIT``, then raise Undecided."""
    working = first
    while working <= max(LIMIT, 2 * first):
        yield working
        working *= 2
    raise Undecided(
        f"exact: {working // 2} bits do not decide; the numbers are too close or too large"
    )


def _round_arb_to_double(x: flint.arb) -> float:
    """Return the double nearest to an exact Arb number man · 2^exp."""
    man, exp = (int(part) for part in x.man_exp())
    # Far outside the range of doubles, before 2^exp is formed.
    if man == 0 or exp + man.bit_length() < -1080:
        return 0.0
    if exp + man.bit_length() > 1025:
        return inf if man > 0 else -inf
    return rational_double(man * Fraction(2) ** exp)


def _format_rounded_digits(negative: bool, whole: int, e: int, digits: int, *, exact: bool) -> str:
    """Return ± whole · 10^(e + 1 − digits) in the format of ``%g``; whole has ``digits`` digits, or is 10^digits."""
    # Rounding up may add a digit: 9.99 becomes 10.0.
    if whole == 10**digits:
        whole, e = whole // 10, e + 1
    s = str(whole)
    # As %g decides between both notations.
    if -4 <= e < digits:
        zeros = "0" * (-e - 1)
        s = f"{s[: e + 1]}.{s[e + 1 :]}" if e >= 0 else f"0.{zeros}{s}"
        tail = ""
    else:
        s = f"{s[0]}.{s[1:]}"
        tail = f"e{e:+03d}"
    # A rounded number keeps its zeros: they are digits that are known.
    s = s.rstrip("0") if exact else s
    return ("-" if negative else "") + s.removesuffix(".") + tail
