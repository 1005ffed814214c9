"""Arithmetic for the bound in balls, or in enclosures: g(n), upper ends, sizes and maxima over rows."""

from __future__ import annotations

from typing import Any

import flint
import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.enclosure import Enclosure
from symattn.arrays.formats import Format
from symattn.arrays.namespace import namespace_of
from symattn.arrays.special import Undefined
from symattn.bounds import growth

Balls = Any  # arrays of balls, or of enclosures, as their untyped namespaces give them
xp = Ball.xp


def g(n: Any, f: Format, kind: type[Any] = Ball) -> Any:
    """g(n) = e^{nλ} − 1, λ = u/(1 − u), in balls; for another ``kind`` it is a float, rounded up."""
    if kind is Ball:
        return xp.exp(Ball.lift(n) * rate(f)) - 1
    if not np.ndim(n):
        # Counts repeat over the elements, so each different g is computed once.
        return growth.g(int(n), f)
    lengths, places = np.unique(n, return_inverse=True)
    of_lengths = np.array([growth.g(int(length), f) for length in lengths])
    return of_lengths[places.reshape(np.shape(n))]


def rate(f: Format) -> flint.arb:
    """λ."""
    u = flint.arb(float(f.u))
    return u / (1 - u)


def upper(balls: Balls) -> np.ndarray:
    """Return upper ends as float64, rounded up; +∞ for an unbounded enclosure or an undefined number. Floats are their
    own upper ends."""
    if isinstance(balls, np.ndarray):
        return balls
    if isinstance(balls, Enclosure):
        finite = np.isfinite(balls.mid)
        return np.asarray(np.where(finite, balls.high, np.inf))
    # float() rounds to nearest, so one step up is needed for an upper end.
    end = np.frompyfunc(lambda x: np.inf if isinstance(x, Undefined) else float(x.upper()), 1, 1)
    upper_ends = np.asarray(end(balls.entries), dtype=np.float64)
    return np.asarray(np.nextafter(upper_ends, np.inf))


def number(balls: Balls) -> Balls:
    """Replace −∞ and undefined numbers by zero."""
    # Finite enclosures have nothing to replace.
    if isinstance(balls, Enclosure) and np.isfinite(balls.mid).all():
        return Enclosure.like(balls)
    xp = namespace_of(balls)
    return xp.where(xp.isfinite(balls), balls, 0)


def size(balls: Balls) -> Balls:
    """Return absolute values of finite entries, in one pass; of enclosures the upper ends |c| + r, as floats."""
    if isinstance(balls, Ball):
        return Ball(Ball.each(abs, balls))
    if not isinstance(balls, Enclosure):
        return abs(balls)
    mid, rad = balls.mid, balls.rad
    # An exact entry is its own end; the sum of others is rounded up.
    outer = np.nextafter(np.abs(mid) + rad, np.inf)
    ends = np.where(rad == 0, np.abs(mid), outer)
    return np.where(np.isfinite(mid), ends, np.inf)


def largest(balls: Balls, where: np.ndarray) -> Balls:
    """Return row maxima over the places in ``where``, with the axis kept; 0 for a row without any."""
    m = xp.max(xp.where(where, balls, -np.inf), axis=-1, keepdims=True)
    return number(m)


def extents(x: Any) -> tuple[int, ...]:
    """Return the shape, of floats as of balls."""
    lengths = x.shape if isinstance(x, np.ndarray) else x.plain_shape
    return tuple(int(n) for n in lengths)
