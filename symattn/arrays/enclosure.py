"""``enclosure``: midpoints and radii in float64, at the speed of BLAS; every element encloses the exact value.

    x = Enclosure.lift(array)            exact, if float64 holds the numbers
    y = Attention(causal=True)(q, k, v)  enclosures of the exact output
    y.mid, y.rad                         |exact − mid| ≤ rad; a radius of +∞ means that nothing is known
    y.low, y.high                        the same as bounds
    y.may_be(floats)                     which floats could be the exact value

Theorem. If the inputs enclose numbers, each element of a result encloses the value that the definition has at these
numbers: it is a number within the radius, or −∞ or undefined if the element says so (``enclosing.array``). Each
operation is proved next to its code: + × ÷, the larger of two and comparisons in ``enclosing.elementwise``; sums and
maxima in ``enclosing.sums``, products of matrices in ``enclosing.products``; exp in ``enclosing.exponential``; √ and
tanh in ``enclosing.functions``, which leaves log, sin, cos and erf to Arb, element by element. How radii are rounded up
without switching the rounding mode is in ``enclosing.bounds``, with what is assumed of the machine.

A product of matrices costs two of NumPy's, three if both factors have radii. Correlations of values are forgotten, but
for one case: a number that is added to a whole row, such as the largest score, and cancels when e^x is divided by the
sum of its row, is kept separately (``Common``), so that its radius has no effect.

Comparisons that are not decided raise Undecided. A divisor that may be zero, but is not known to be, leaves the element
open: nothing is known of it. Overflow gives a number of which nothing is known.
Source: S. Rump, Fast and parallel interval arithmetic, BIT 39 (1999) 534-554, for products of matrices by midpoints
and radii; the bounds on rounding: N. Higham, Accuracy and Stability of Numerical Algorithms (2002), chapter 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn.arrays.base import ArrayBase, offer_all
from symattn.arrays.enclosing.bounds import UP
from symattn.arrays.enclosing.elementwise import EnclosedElementwise
from symattn.arrays.enclosing.functions import EnclosedFunctions
from symattn.arrays.enclosing.sums import EnclosedSums, Products
from symattn.arrays.enclosing.work import Parts
from symattn.arrays.namespace import Namespace
from symattn.arrays.reductions import _normalise_axis_numbers
from symattn.document.errors import Refused, Undecided


class Enclosure(EnclosedElementwise, EnclosedFunctions, Products, EnclosedSums):
    """Arrays of midpoints and radii.

    >>> third = Enclosure.lift(1) / Enclosure.lift(3)
    >>> third.mid.item(), third.rad.item() < 1e-16
    (0.3333333333333333, True)
    >>> from fractions import Fraction
    >>> Fraction(third.low.item()) < Fraction(1, 3) < Fraction(third.high.item())
    True
    """

    @property
    def low(self) -> np.ndarray:
        """The lower ends, rounded down: −∞ if nothing is known or the element is forbidden, NaN if it is undefined."""
        return self._enclosure_endpoint(-1.0)

    @property
    def high(self) -> np.ndarray:
        """The upper ends, rounded up."""
        return self._enclosure_endpoint(1.0)

    def _enclosure_endpoint(self, sign: float) -> np.ndarray:
        with np.errstate(all="ignore"):
            end = np.asarray(self.mid + sign * self.rad)
            # A radius of 0 needs no rounding outwards, and infinite ends cannot move.
            exact = (self.rad == 0) | ~np.isfinite(end)
            return np.where(exact, end, np.nextafter(end, sign * np.inf))

    def midpoints(self) -> np.ndarray:
        """Return the midpoints, like ``Ball.midpoints``."""
        return self.mid.copy()

    def may_be(self, got: object) -> np.ndarray:
        """Return which floats could be the exact value: they are no further from the midpoint than the radius.

        NaN may be an undefined or open element, −∞ a forbidden one; any float may be an element with infinite radius.
        """
        x = np.asarray(got, dtype=np.float64)
        with np.errstate(all="ignore"):
            # UP covers the rounding of the difference.
            near = np.abs(x - self.mid) <= self.rad * UP
            both_undefined = np.isnan(x) & np.isnan(self.mid)
            same = both_undefined | (np.isneginf(x) & np.isneginf(self.mid))
        return np.asarray(np.isinf(self.rad) | same | near)

    def __repr__(self) -> str:
        shown = np.array2string(self.balls().entries, separator=", ", formatter={"all": str})
        return f"{self.name}({shown})"


# -- the namespace -----------------------------------------------------------------------------------------------------
class _Whole:
    """Functions that preserve the common part of rows, and ``argsort`` by NumPy."""

    kind: type[Any]

    def sum(self, a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """Sum over any axes; over the last one alone, the common part of the rows is kept."""
        axes = _normalise_axis_numbers(a, axis)
        # Only sums that keep the row can keep what is common to it.
        if keepdims and axes == [a.ndim - 1]:
            return self.kind.row_sums(a)
        return Namespace.sum(self, a, axis=axis, keepdims=keepdims)  # type: ignore[arg-type]

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """Choose as elsewhere; if all elements are of one side, keep the common part of its rows."""
        for x, chosen in ((a, True), (b, False)):
            if (
                not isinstance(x, self.kind)
                or x.common is None
                or not np.all(np.equal(condition, chosen))
            ):
                continue
            # Broadcasting would make other rows.
            shapes = map(np.shape, (condition, a, b))
            if np.broadcast_shapes(*shapes) == x.plain_shape:
                return self.kind.like(x)
        if isinstance(condition, ArrayBase):
            raise Refused(f"{self.kind.name}: where needs a boolean condition")
        x = self.kind.written(a)
        y = self.kind.written(b)
        mid, rad = (
            np.asarray(np.where(condition, p, q))
            for p, q in zip(x.parts.pair, y.parts.pair, strict=True)
        )
        return self.kind.made(Parts(mid, rad))

    def argsort(self, a: Any, axis: int = -1, descending: bool = False) -> np.ndarray:
        """Return the stable order along an axis. Raises Undecided if intervals overlap without being equal."""
        c, r = (np.moveaxis(x, axis, -1) for x in a.parts.pair)
        if np.isnan(c).any():
            raise Undecided(f"{self.kind.name}: an order with undefined (0/0)")
        # Stable, so that equal scores have the same order in every kind.
        order = np.argsort(-c if descending else c, axis=-1, kind="stable")
        sorted_parts = (np.take_along_axis(x, order, axis=-1) for x in (c, r))
        lines = self.kind(*sorted_parts)
        first, second = lines[..., :-1], lines[..., 1:]
        low, high = (second, first) if descending else (first, second)
        self.kind._less(high, low)  # raises unless decided
        return np.moveaxis(order, -1, axis)


offer_all(_Whole)


class EnclosureNamespace(_Whole, Namespace):
    """The namespace of ``enclosure``."""


Enclosure.xp = EnclosureNamespace(Enclosure)
