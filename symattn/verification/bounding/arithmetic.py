"""Arithmetic in balls for the bound: g(n), upper ends, sizes and maxima over rows."""

from __future__ import annotations

from typing import Any

import flint
import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.formats import Format

Balls = Any  # arrays of balls, as their untyped namespace gives them
xp = Ball.xp


def g(n: Any, f: Format) -> Any:
    """g(n) = e^{nλ} − 1, λ = u/(1 − u), in balls."""
    return xp.exp(Ball.lift(n) * rate(f)) - 1


def rate(f: Format) -> flint.arb:
    """λ."""
    u = flint.arb(float(f.u))
    return u / (1 - u)


def upper(balls: Balls) -> np.ndarray:
    """Upper ends as float64, rounded up."""
    ends = np.asarray(np.frompyfunc(lambda x: float(x.upper()), 1, 1)(balls.entries), dtype=np.float64)
    return np.asarray(np.nextafter(ends, np.inf))


def number(balls: Balls) -> Balls:
    """Zero in place of −∞ and undefined."""
    return xp.where(xp.isfinite(balls), balls, 0)


def size(balls: Balls) -> Balls:
    """Absolute values, of finite entries alone, in one pass."""
    return Ball(Ball.each(abs, balls))


def largest_row(balls: Balls) -> Balls:
    """The largest sum over the last axis."""
    return xp.max(xp.sum(balls, axis=-1))


def largest(balls: Balls, where: np.ndarray) -> Balls:
    """Row maxima over the places in ``where``, kept as an axis; 0 for a row without any."""
    m = xp.max(xp.where(where, balls, -np.inf), axis=-1, keepdims=True)
    return number(m)
