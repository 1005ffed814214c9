"""Enclosures held against balls: which elements are outside, and hostile numbers to try them with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import flint
import numpy as np

from symattn.arrays.ball import Ball, precision
from symattn.arrays.enclosure import Enclosure
from symattn.arrays.special import Forbidden, Undefined
from symattn.document.errors import Refused, Undecided

BITS = 200
NARROW = 1000  # intervals that are so much narrower must miss values


class Count(NamedTuple):
    """Elements compared, those whose interval misses the value, those that a narrower one would miss, those of which
    nothing is said, and those whose ball is too wide to tell."""

    compared: int = 0
    outside: int = 0
    missed: int = 0
    open: int = 0
    untold: int = 0

    def __add__(self, other: Any) -> Count:  # type: ignore[override]
        return Count(*map(sum, zip(self, other, strict=True)))


def outside(enclosures: Any, balls: Any) -> Count:
    """Every element of an array, or of several, against that of balls at the same place."""
    if isinstance(enclosures, (list, tuple)):
        pairs = zip(enclosures, balls, strict=True)
        return sum((outside(x, y) for x, y in pairs), Count())
    assert isinstance(enclosures, Enclosure)
    assert enclosures.plain_shape == balls.plain_shape
    mid, rad = enclosures.mid, enclosures.rad
    assert not np.isnan(rad).any()
    assert (rad >= 0).all()
    found = (_one(float(mid[i]), float(rad[i]), y) for i, y in np.ndenumerate(balls.entries))
    return sum(found, Count())


def _one(c: float, r: float, y: Any) -> Count:
    if r == np.inf:
        return Count(open=1)
    if isinstance(y, (Forbidden, Undefined)):
        special = c == -np.inf if isinstance(y, Forbidden) else c != c
        return Count(compared=1, outside=int(not special))
    if not np.isfinite(c):
        return Count(compared=1, outside=1)
    off = abs(y - flint.arb(c))
    if y.rad() > max(r, 2.0**-1074) / 16:
        return Count(untold=1, outside=int(bool(off > r)))
    return Count(1, int(bool(off > r)), int(bool(off > flint.arb(r) / NARROW)))


def compared(work: Callable[..., Any], *inputs: Any, bits: int = BITS) -> Count:
    """``work`` on enclosures against ``work`` on balls; nothing to count where balls refuse it or do not decide."""
    with precision(bits):
        try:
            wanted = work(*map(Ball.literal, inputs))
        except (Refused, Undecided):
            return Count()
        try:
            got = work(*map(Enclosure.literal, inputs))
        except Undecided:
            return Count(open=1)
        return outside(got, wanted)


SIZES = (0.0, 5e-324, 1e-310, 1e-200, 1e-30, 0.3, 1.0, 3.0, 40.0, 1e3, 1e20, 1e150, 1e300)


def hostile(rng: np.random.Generator, *shape: int, sizes: Iterable[float] = SIZES) -> np.ndarray:
    """Numbers of all magnitudes, among them equal ones, opposite ones, and short ones."""
    sizes = np.array(list(sizes))
    x = rng.standard_normal(shape) * rng.choice(sizes, shape)
    short = rng.random(shape) < 0.3
    x[short] = np.round(x[short] / np.maximum(np.abs(x[short]), 1e-300) * 8) / 8
    if x.size > 1:
        flat = x.reshape(-1)
        flat[rng.integers(x.size)] = -flat[rng.integers(x.size)]
        flat[rng.integers(x.size)] = np.nextafter(flat[rng.integers(x.size)], np.inf)
    return np.clip(x, -1e301, 1e301)
