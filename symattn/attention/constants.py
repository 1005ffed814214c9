"""Constants of a specification as elements of a kind of array: quotients, powers, π.

A kind takes what it can represent: 10000^(−1/2) is rational, 2^(−1/2) a square root; 2^(−1/4) is neither and needs exp
and log, which ``exact`` refuses by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from symattn.arrays import functions
from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.document.errors import Refused

Number = int | float | Fraction


def number(value: Number, like: Array) -> Array:
    """Return a number as an element of the kind of ``like``: a quotient of two integers."""
    xp, exact = namespace_of(like), Fraction(value)
    return xp.asarray(exact.numerator, dtype=like.dtype) / xp.asarray(
        exact.denominator, dtype=like.dtype
    )


def numbers(values: Iterable[Number], like: Array) -> Array:
    """Return numbers as an array of the kind of ``like``. Shapes: (n,)."""
    return namespace_of(like).stack([number(x, like) for x in values])


def powers(base: Number, exponents: Iterable[Number], like: Array) -> Array:
    """base^e for base > 0: rational or a square root if it is one, else e^(exponent · log base). Shapes: (n,)."""
    xp = namespace_of(like)
    # All exponents share one base, so its logarithm is computed once.
    logarithm = cache(lambda x: xp.log(number(x, like)))

    def power(inside: Fraction, outside: Fraction) -> Any:
        if outside == 1:
            return number(inside, like)
        if outside == Fraction(1, 2):
            return xp.sqrt(number(inside, like))
        return xp.exp(logarithm(inside) * number(outside, like))

    return xp.stack(
        [power(*_simplest_root_of_power(Fraction(base), Fraction(e))) for e in exponents]
    )


@cache
def _simplest_root_of_power(base: Fraction, exponent: Fraction) -> tuple[Fraction, Fraction]:
    """Return (b, 1/n) with base^exponent = b^(1/n) and the smallest n, if it is 1 or 2; else both arguments."""
    if exponent < 0:
        base, exponent = 1 / base, -exponent
    # A rational value comes first, then a square root: exact kinds hold no other roots.
    for left in (1, 2):
        n = Fraction(exponent * left).denominator
        # the n-th root of x, if it is rational
        top, bottom = integer_root(base.numerator, n), integer_root(base.denominator, n)
        result = (
            Fraction(top, bottom)
            if top**n == base.numerator and bottom**n == base.denominator
            else None
        )
        if result is not None:
            return result ** (exponent * left * n).numerator, Fraction(1, left)
    return base, exponent


def integer_root(x: int, n: int) -> int:
    """⌊x^(1/n)⌋ for whole numbers x ≥ 0, n ≥ 1."""
    low, high = 0, 1 << (x.bit_length() // n + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**n <= x else (low, middle - 1)
    return low


def pi(like: Array) -> Array:
    """π: a ball around it, the letter, or the nearest float. Raises Refused if the kind cannot hold it."""
    xp = namespace_of(like)
    if "indexed" in getattr(getattr(xp, "kind", None), "name", ""):
        raise Refused("indexed lacks π")
    return xp.asarray(functions.pi(xp), dtype=like.dtype)


def made_wide(make: Callable[[Any], Any], like: Any) -> Any:
    """Return ``make(w)`` for an array w of the kind of ``like``; for shorter floats w is float64, the result rounded.

    Implementations do the same: angles of far positions would be lost in float16 or bfloat16, which cannot even
    represent 2049 and 257.
    """
    xp = namespace_of(like)
    if like.dtype is None or like.dtype == xp.float64:
        return make(like)
    return xp.asarray(make(np.zeros((), dtype=np.float64)), dtype=like.dtype)
