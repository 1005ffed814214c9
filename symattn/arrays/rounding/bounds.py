"""What rounding does to numbers of which only bounds are known: the rules of ``rounded`` that concern one operation.

The arithmetic of an implementation is that of a ``Precision``:

  A1  an operation gives (its exact result)(1 + δ) + η', |δ| ≤ u, and η' = 0 unless the result is below the normal
      numbers, then |η'| ≤ η; u and η are those of ``score``, in sums of ``accumulate``. What is a number of the format
      is not changed.
  A2  a function has a relative error of at most ε = 2·exp_ulps·u, besides η'; at 0 it has none, and so has √ where the
      root is a number of the format.
  A3  nothing overflows. Where it might, the bound is +∞: nothing is said.

g(n) = (1 + u)^n − 1: a product of n factors 1 + δ is within g(n) of 1. Bounds are float64, each computed by far fewer
than 2^12 operations and then enlarged by ``UP`` = 1 + 2^−40 and by ``TINY``, which float64's own rounding and underflow
do not reach.
Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms (2002), §2.2, §3.1 and §3.3 (running errors).
"""

from __future__ import annotations

from math import inf, isfinite
from typing import Any, NamedTuple

import flint
import numpy as np

from symattn.arrays.formats import Format
from symattn.arrays.special import Forbidden, Undefined

UP = 1 + 2.0**-40
TINY = 1e-300


def up(x: Any) -> np.ndarray:
    """Upper bounds of what was computed in float64; exact zeros stay. A caller ignores that the largest overflow."""
    return np.asarray(x * UP + (x != 0) * TINY)


def growth(f: Format, n: object) -> np.ndarray:
    """g(n), rounded up."""
    return up(np.expm1(np.asarray(n) * np.log1p(float(f.u))))


def rounding(size: np.ndarray, low: np.ndarray, relative: Any, f: Format, small: int = 1) -> np.ndarray:
    """The error of ``small`` roundings, by ``relative`` in all, of numbers x̂ with ``low`` ≤ |x̂| ≤ ``size``.

    None underflows where ``low`` is a normal number. +∞ where the result may overflow.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        error = relative * size + np.where(low >= float(f.smallest_normal), 0, small * float(f.eta) * (1 + relative))
        return np.where(size == 0, 0.0, np.where(size + error <= float(f.largest), up(error), np.inf))


def product(c: Any, e: Any) -> np.ndarray:
    """c e, rounded up, for c and e at least 0; what nothing is said of stays so."""
    found = np.where((np.asarray(c) == 0) | (np.asarray(e) == 0), 0.0, up(c * e))
    return np.where(np.isinf(e), np.inf, found)


class Floats(NamedTuple):
    """Exact numbers as float64: |x − ``near``| ≤ ``off``, which is 0 where float64 holds x; 0 where x is no number."""

    near: np.ndarray
    off: np.ndarray

    @property
    def size(self) -> np.ndarray:
        """At least |x|."""
        return np.where(self.off == 0, np.abs(self.near), up(np.abs(self.near) + self.off))

    @property
    def low(self) -> np.ndarray:
        """At most |x|."""
        below = np.maximum(np.abs(self.near) / UP - self.off * UP, 0)
        return np.asarray(np.where(self.off == 0, np.abs(self.near), below))


def floats(balls: np.ndarray) -> Floats:
    """The numbers in an array of balls and special elements."""
    near, off = _FLOATS(balls)
    return Floats(np.array(near, dtype=np.float64), np.array(off, dtype=np.float64))


def _float(x: Any) -> tuple[float, float]:
    if isinstance(x, (Forbidden, Undefined)):
        return 0.0, 0.0
    near = float(x.mid())
    if x.is_exact() and flint.arb(near) == x:
        return near, 0.0
    off = float(x.rad()) * UP + abs(near) * 2.0**-52 + TINY
    return (near, off) if isfinite(near) and isfinite(off) else (0.0, inf)


_FLOATS = np.frompyfunc(_float, 1, 2)


def holds(f: Format, values: Floats) -> np.ndarray:
    """Where a number is one of the format."""
    return np.asarray((values.off == 0) & (f.rounded(values.near) == values.near))
