"""``rounded`` with its exact numbers in enclosures of float64 in place of balls, for large arrays.

The bounds read exact numbers as float64, each with a radius (``Floats``), and an enclosure is that pair. So it replaces
the balls, and the proof of ``rounded`` stands: it asks of the exact numbers only that they are enclosed. An element
costs nanoseconds in place of microseconds. The radius is near the roundoff of float64, far below the roundings of
formats that are narrower; for float64 itself balls are needed.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from symattn.arrays.enclosure import Enclosure
from symattn.arrays.functions import FUNCTIONS
from symattn.arrays.rounding import bounds
from symattn.arrays.rounding.array import ComputedNumber, MovedByRounding


class InEnclosures(ComputedNumber):
    """The exact numbers of ``rounded`` in enclosures. The first plane holds midpoints, −∞ or NaN for no number."""

    values = Enclosure

    @property
    def value(self) -> Any:
        """The exact values, in enclosures."""
        return Enclosure(self.planes[0], self.near.off)

    @classmethod
    def write_plane(cls, value: Any) -> np.ndarray:
        return _copied_in_shape(value.mid, value.plain_shape)

    @classmethod
    def read_floats(cls, value: Any, data: object = None) -> bounds.Floats:
        """Return the midpoints and radii; 0 with the radius ∞ where nothing is known, 0 where it is no number."""
        middle = cls.write_plane(value)
        radius = _copied_in_shape(value.rad, value.plain_shape)
        number = np.isfinite(middle) & np.isfinite(radius)
        return bounds.Floats(np.where(number, middle, 0.0), radius)

    @classmethod
    def find_special(cls, plane: np.ndarray) -> np.ndarray:
        return np.asarray(~np.isfinite(plane))

    @classmethod
    def invert_divisor(cls, b: Self, undefined: np.ndarray) -> Any:
        middle, radius = np.broadcast_arrays(b.planes[0], b.near.off)
        divisors = Enclosure(np.where(undefined, 1.0, middle), np.where(undefined, 0.0, radius))
        return 1 / divisors

    @classmethod
    def find_slopes(cls, name: str, x: Self, y: Any) -> bounds.Floats:
        number = np.isfinite(x.planes[0])
        # The placeholder 1 avoids slopes at what is no number.
        middle = np.where(number, x.planes[0], 1.0)
        argument = Enclosure(middle, np.where(number, x.near.off, 0.0))
        result = cls.read_floats(FUNCTIONS[name].slope(Enclosure.xp, argument, y))
        near = np.where(number, result.near, 0.0)
        return bounds.Floats(near, np.where(number, result.off, 0.0))

    @classmethod
    def multiply_matrices(cls, a: Self, b: Self, shape: tuple[int, ...]) -> Any:
        return Enclosure._matmul(a.value, b.value)

    @classmethod
    def check_decided(cls, words: str, a: Self, b: Self) -> None:
        x = a.near
        y = b.near
        e = bounds.up(a.error + b.error)
        # A lower bound of the distance: rounded down, less both radii.
        unknown = bounds.up(x.off + y.off)
        apart = np.abs(x.near - y.near) / bounds.UP - unknown
        numbers = np.isfinite(a.planes[0]) & np.isfinite(b.planes[0])
        numbers, e, apart = np.broadcast_arrays(numbers, e, apart)
        if (numbers & (e > 0) & ~(apart > e)).any():
            raise MovedByRounding(
                f"{cls.name}: is a number {words} another, if rounding moves them by {e.max():.2g}?"
            )


def _copied_in_shape(part: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return a copy in this shape; most arrays have it, and broadcasting takes longer than a small operation."""
    return np.array(part if part.shape == shape else np.broadcast_to(part, shape))
