"""The kernels of the elementwise operations: midpoints c and radii r of results, with the bounds of ``elementwise``."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn.arrays.enclosing.bounds import DOWN, TINY, UP, U, product_error, sum_error


def sum(c: np.ndarray, r: np.ndarray, a: np.ndarray, ra: np.ndarray, b: np.ndarray, rb: np.ndarray) -> None:
    np.add(a, b, out=c)
    np.abs(c, out=r)
    r *= U
    r += ra
    r += rb
    r *= UP


def exact_sum(c: np.ndarray, r: np.ndarray, a: np.ndarray, ra: np.ndarray, b: np.ndarray, rb: np.ndarray) -> None:
    np.add(a, b, out=c)
    r[...] = sum_error(a, b, c)
    np.copyto(r, U * np.abs(c), where=np.isnan(r))
    r += ra
    r += rb
    r *= UP


def product(c: np.ndarray, r: np.ndarray, a: np.ndarray, ra: np.ndarray, b: np.ndarray, rb: np.ndarray) -> None:
    np.multiply(a, b, out=c)
    np.multiply(np.abs(a) + ra, rb, out=r)
    r += np.abs(b) * ra
    t = np.abs(c)
    t *= U
    r += t
    r *= UP
    r += TINY


def exact_product(c: np.ndarray, r: np.ndarray, a: np.ndarray, ra: np.ndarray, b: np.ndarray, rb: np.ndarray) -> None:
    np.multiply(a, b, out=c)
    off = product_error(a, b, c)
    x, y = np.abs(a), np.abs(b)
    largest = x + ra
    more = largest * rb + y * ra
    zero = ((largest == 0) | (y + rb == 0)) & (more == 0)  # 0 times no finite number is NaN
    r[...] = np.where(zero, 0.0, np.where(ra + rb == 0, off, (off + more) * UP + TINY))


def shifted(c: np.ndarray, r: np.ndarray, a: np.ndarray, ra: np.ndarray, b: np.ndarray) -> None:
    """A sum of which one number is exact."""
    np.add(a, b, out=c)
    np.abs(c, out=r)
    r *= U
    r += ra
    r *= UP


def times_power(
    c: np.ndarray, r: np.ndarray, a: np.ndarray, ra: np.ndarray, by: np.ndarray, size: np.ndarray, least: np.ndarray
) -> None:
    np.multiply(a, by, out=c)
    np.multiply(ra, size, out=r)
    r += least


def times_power_anywhere(c: np.ndarray, r: np.ndarray, *arguments: Any) -> None:
    """Where midpoints may be infinite, or overflow, radii are made NaN."""
    times_power(c, r, *arguments)
    r += np.where(np.isfinite(c), 0.0, np.nan)


def divided(
    c: np.ndarray,
    r: np.ndarray,
    a: np.ndarray,
    ra: np.ndarray,
    b: np.ndarray,
    _: object,
    inverse: np.ndarray,
    share: np.ndarray,
    tiny: np.ndarray,
) -> None:
    """UP is in ``inverse`` and ``share``."""
    np.divide(a, b, out=c)
    np.abs(c, out=r)
    r *= share
    t = ra * inverse
    r += t
    r += tiny


def larger(c: np.ndarray, r: np.ndarray, a: np.ndarray, ra: np.ndarray, b: np.ndarray, rb: np.ndarray) -> None:
    np.maximum(a, b, out=c)
    np.subtract(c, a, out=r)
    r *= DOWN
    np.subtract(ra, r, out=r)
    t = c - b
    t *= DOWN
    np.subtract(rb, t, out=t)
    np.fmax(r, t, out=r)
    r *= UP
