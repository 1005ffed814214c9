"""``ball``: elements are Arb balls (python-flint), rigorous at any precision.

The precision is that of python-flint's context; ``rising`` repeats work at higher precision until all its comparisons
are decided, or raises Undecided. Arb guarantees that balls enclose the exact values (F. Johansson, Arb: efficient
arbitrary-precision midpoint-radius interval arithmetic, IEEE Trans. Comput. 66 (2017) 1281-1292).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, Self, TypeVar

import flint
import numpy as np

from symattn.arrays.entries import Entries
from symattn.arrays.field.quotient import Quotient
from symattn.arrays.functions import FUNCTIONS
from symattn.arrays.namespace import Namespace
from symattn.arrays.special import Forbidden, Undefined
from symattn.document.errors import Refused, Undecided

Result = TypeVar("Result")
# One lock for the process, because python-flint has one precision; reentrant, as work nests.
_alone = threading.RLock()


class OutsideDomain(Refused):
    """Raised for the logarithm of 0, and for the root or the logarithm of a negative number."""


class Ball(Entries):
    """Arrays of Arb balls."""

    name = "ball"
    holds = "balls, in each of which its number lies"

    @classmethod
    def scalar(cls, value: object) -> Any:
        if isinstance(value, flint.arb):
            return value
        if isinstance(value, float):
            return flint.arb(value)
        if isinstance(value, int):
            return flint.arb(flint.fmpz(value))
        if isinstance(value, Fraction):
            return flint.arb(flint.fmpq(value.numerator, value.denominator))
        # Other numbers go through the exact field, so that text and roots are read alike.
        return (value if hasattr(value, "arb") else Quotient.of(value)).arb(flint.ctx.prec)

    @classmethod
    def function(cls, name: str, x: Any) -> Any:
        if name not in FUNCTIONS:
            raise Refused(f"ball lacks {name}")
        # Certainly outside of the domain; a ball that only reaches there is undecided.
        if name in ("log", "sqrt") and (x < 0 or (x == 0 and name == "log")):
            raise OutsideDomain(f"ball: {name} of {'the negative number ' if x < 0 else ''}{x}")
        result = getattr(x, name)()
        if not result.is_finite():
            raise Undecided(f"ball: {name} of {x} at {flint.ctx.prec} bits")
        return result

    @classmethod
    def divide(cls, x: Any, y: Any) -> Any:
        if y == 0:
            raise ZeroDivisionError
        if y.contains(0):
            raise Undecided(f"ball: is the divisor {y} zero? ({flint.ctx.prec} bits)")
        return x / y

    @classmethod
    def less(cls, x: Any, y: Any) -> bool:
        if x < y:
            return True
        if x >= y:
            return False
        raise Undecided(f"ball: is {x} < {y}? ({flint.ctx.prec} bits)")

    @classmethod
    def same(cls, x: Any, y: Any) -> bool:
        # Disjoint balls are different numbers; only balls of one point can be equal.
        if not x.overlaps(y):
            return False
        if x.is_exact() and y.is_exact():
            return True
        raise Undecided(f"ball: is {x} = {y}? ({flint.ctx.prec} bits)")

    @classmethod
    def larger(cls, x: Any, y: Any) -> Any:
        return x.max(y)  # encloses the larger one without deciding which it is

    @classmethod
    def ordered(cls, line: Self, descending: bool = False) -> Self:
        """Return a line in ascending or descending order, without deciding which of two balls is the larger.

        The j-th smallest of the exact numbers lies between the j-th smallest lower end and the j-th smallest upper end.
        """
        entries = line.entries.tolist()
        for x in entries:
            if isinstance(x, Undefined):
                raise Undecided(f"ball: an order with {x!r}")
        numbers = [x for x in entries if not isinstance(x, Forbidden)]
        lower_ends = sorted(x.lower() for x in numbers)
        upper_ends = sorted(x.upper() for x in numbers)
        ends = zip(lower_ends, upper_ends, strict=True)
        # Forbidden elements come first: −∞ is below all numbers.
        result = [x for x in entries if isinstance(x, Forbidden)] + [
            low.union(high) for low, high in ends
        ]
        out = np.empty(len(result), dtype=object)
        out[:] = result[::-1] if descending else result
        return cls(out)

    @classmethod
    def _matmul(cls, a: Self, b: Self) -> Self:
        # Arb's product of matrices knows neither −∞ nor 0/0.
        finite = not any((cls._forbidden(x) | cls._undefined(x)).any() for x in (a, b))
        if not (a.ndim == b.ndim == 2 and finite and a.size and b.size):
            return super()._matmul(a, b)
        product = flint.arb_mat(a.tolist()) * flint.arb_mat(b.tolist())
        out = np.empty(a.plain_shape[0] * b.plain_shape[1], dtype=object)
        out[:] = product.entries()
        return cls(out.reshape(a.plain_shape[0], -1))

    def midpoints(self) -> np.ndarray:
        """Return the midpoints, rounded to float64: −∞ for forbidden scores, NaN for undefined elements."""
        out = np.where(self._forbidden(self), -np.inf, np.nan)
        finite = ~(self._forbidden(self) | self._undefined(self))
        finite_balls = self.planes[0][finite]
        out[finite] = [float(x.mid()) for x in finite_balls]
        return out


Ball.xp = Namespace(Ball)


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Work with ``bits`` bits inside the block. They are global to the process, so other threads wait."""
    with _alone:
        before, flint.ctx.prec = flint.ctx.prec, bits
        try:
            yield
        finally:
            flint.ctx.prec = before


def rising(work: Callable[[], Result], start: int = 64, limit: int = 8192) -> Result:
    """Return ``work()`` at the first precision, doubling from ``start``, at which all its comparisons are decided.

    ``work`` must lift its inputs itself, so that they are as sharp as the precision. Raises Undecided beyond ``limit``.
    """
    bits = start
    while True:
        try:
            with precision(bits):
                return work()
        except Undecided as doubt:
            if 2 * bits > limit:
                raise Undecided(f"still undecided at {bits} bits: {doubt}") from None
            bits *= 2
