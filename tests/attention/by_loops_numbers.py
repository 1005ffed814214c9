"""Matrices as nested lists of mpmath numbers, for ``by_loops``."""

from fractions import Fraction
from typing import Any

import mpmath

Rows = list[list[Any]]
Given = dict[str, Any]
NAN, INF, ZERO = mpmath.nan, mpmath.inf, mpmath.mpf(0)


class Degenerate(Exception):
    """A vector of zeros was to have the length 1."""


def num(x: Any) -> Any:
    """A number of a specification."""
    f = Fraction(x)
    return mpmath.mpf(f.numerator) / f.denominator


def dot(a: Any, b: Any) -> Any:
    assert len(a) == len(b)
    total = ZERO
    for x, y in zip(a, b, strict=True):
        total += x * y
    return total


def times(x: Rows, w: Rows, b: Any = None, start: int = 0, width: int | None = None) -> Rows:
    """x W + b, of the columns from ``start`` on, ``width`` of them."""
    stop = len(w[0]) if width is None else start + width
    return [[dot(row, [line[c] for line in w]) + (b[c] if b else 0) for c in range(start, stop)] for row in x]


def in_heads(x: Rows, w: Rows, heads: int, b: Any = None) -> list[Rows]:
    width = len(w[0]) // heads
    return [times(x, w, b, h * width, width) for h in range(heads)]


def over(x: Any, y: Any) -> Any:
    if y == 0:
        raise Degenerate
    return x / y
