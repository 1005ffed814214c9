"""``enclosure``: midpoints and radii in float64, at the speed of BLAS; every element encloses the exact value.

    x = Enclosure.lift(array)            exact, if float64 holds the numbers
    y = Attention(causal=True)(q, k, v)  enclosures of the exact output
    y.mid, y.rad                         |exact − mid| ≤ rad; +∞ says nothing
    y.low, y.high                        the same as bounds
    y.may_be(floats)                     where floats could be the exact value

Theorem. If the inputs enclose numbers, each element of a result encloses the value that the definition has at these
numbers: it is a number within the radius, or −∞ or undefined as said (``enclosing.array``). Each operation is proved
where it stands: + × ÷, the larger of two and comparisons in ``enclosing.elementwise``; sums and maxima in
``enclosing.sums``, products of matrices in ``enclosing.products``; exp in ``enclosing.exponential``; √ and tanh in
``enclosing.functions``, which leaves log, sin, cos and erf to Arb, element by element. How radii are rounded up without
switching the rounding mode is in ``enclosing.bounds``, with what is assumed of the machine.

A product of matrices costs two of NumPy's, three if both factors have radii. Where values were correlated, that is
forgotten, but for one case: a number that is added to a whole row, such as the largest score, and that cancels where
e^x is divided by its row's sum, is carried along as it is (``Common``), so that its radius is not felt.

Comparisons that are not decided raise Undecided. A divisor that may be zero, but is not known to be, leaves the element
open: nothing is said of it. Overflow leaves a number of which nothing is known.
Source: S. Rump, Fast and parallel interval arithmetic, BIT 39 (1999) 534-554, for products of matrices by midpoints
and radii; the bounds on rounding: N. Higham, Accuracy and Stability of Numerical Algorithms (2002), chapter 3.
"""

from __future__ import annotations

import numpy as np

from symattn.arrays.enclosing.bounds import UP
from symattn.arrays.enclosing.elementwise import Elementwise
from symattn.arrays.enclosing.functions import Functions
from symattn.arrays.enclosing.namespace import EnclosureNamespace
from symattn.arrays.enclosing.products import Products
from symattn.arrays.enclosing.sums import Sums


class Enclosure(Elementwise, Functions, Products, Sums):
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
        """The lower ends, rounded down: −∞ where nothing is said, or forbidden; NaN where undefined."""
        return self._end(-1.0)

    @property
    def high(self) -> np.ndarray:
        """The upper ends, rounded up."""
        return self._end(1.0)

    def _end(self, sign: float) -> np.ndarray:
        with np.errstate(all="ignore"):
            end = np.asarray(self.mid + sign * self.rad)
            exact = (self.rad == 0) | ~np.isfinite(end)
            return np.where(exact, end, np.nextafter(end, sign * np.inf))

    def midpoints(self) -> np.ndarray:
        """The midpoints, as balls have them."""
        return self.mid.copy()

    def may_be(self, got: object) -> np.ndarray:
        """Where floats could be the exact value: they are no further from the midpoint than the radius.

        NaN may be what is undefined or open, −∞ what is forbidden; where nothing is said everything may be.
        """
        x = np.asarray(got, dtype=np.float64)
        with np.errstate(all="ignore"):
            near = np.abs(x - self.mid) <= self.rad * UP
            same = (np.isnan(x) & np.isnan(self.mid)) | (np.isneginf(x) & np.isneginf(self.mid))
        return np.asarray(np.isinf(self.rad) | same | near)

    def __repr__(self) -> str:
        shown = np.array2string(self.balls().entries, separator=", ", formatter={"all": str})
        return f"{self.name}({shown})"


Enclosure.xp = EnclosureNamespace(Enclosure)
