"""How results are computed block by block, and the kernels of the elementwise operations.

A kernel writes midpoints c and radii r, of midpoints and radii of the operands; the bounds are those that
``elementwise`` proves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from symattn.arrays.enclosing.array import Parts
from symattn.arrays.enclosing.bounds import DOWN, TINY, UP, U, blocks, product_error, sum_error

Kernel = Callable[..., None]


def computed(kernel: Kernel, shape: tuple[int, ...], *operands: Any) -> Parts:
    """What ``kernel`` writes into midpoints and radii, block by block."""
    boxed = shape or (1,)
    mid, rad = np.empty(boxed), np.empty(boxed)
    wide = [np.broadcast_to(x, boxed) for x in operands]
    with np.errstate(all="ignore"):
        for b in blocks(boxed):
            kernel(mid[b], rad[b], *[x[b] for x in wide])
    return Parts(mid.reshape(shape), rad.reshape(shape))


def mended(out: Parts, operands: tuple[Parts, ...], forbidden: Any = False) -> Parts:
    """The result with what is no finite number put right: −∞ where ``forbidden``, undefined or open where an operand
    is, and else, where a float overflowed, nothing said."""
    mid, rad = out
    if np.isfinite(rad).all() and np.isfinite(mid).all():
        return out
    forbidden = np.broadcast_to(forbidden, mid.shape)
    none, undefined = np.zeros((2, *mid.shape), dtype=bool)
    for c, r in operands:
        none |= np.isnan(c)
        undefined |= np.isnan(c) & (r == 0)
    lost = ~np.isfinite(mid) | np.isnan(rad)
    mid = np.where(none, np.nan, np.where(forbidden, -np.inf, np.where(lost, 0.0, mid)))
    rad = np.where(undefined | (forbidden & ~none), 0.0, np.where(none | lost, np.inf, rad))
    return Parts(mid, rad)


def sum(c: Any, r: Any, a: Any, ra: Any, b: Any, rb: Any) -> None:
    np.add(a, b, out=c)
    np.abs(c, out=r)
    r *= U
    r += ra
    r += rb
    r *= UP


def exact_sum(c: Any, r: Any, a: Any, ra: Any, b: Any, rb: Any) -> None:
    np.add(a, b, out=c)
    r[...] = sum_error(a, b, c)
    np.copyto(r, U * np.abs(c), where=np.isnan(r))
    r += ra
    r += rb
    r *= UP


def product(c: Any, r: Any, a: Any, ra: Any, b: Any, rb: Any) -> None:
    np.multiply(a, b, out=c)
    t = np.abs(a)
    t += ra
    np.multiply(t, rb, out=r)
    np.abs(b, out=t)
    t *= ra
    r += t
    np.abs(c, out=t)
    t *= U
    r += t
    r *= UP
    r += TINY


def exact_product(c: Any, r: Any, a: Any, ra: Any, b: Any, rb: Any) -> None:
    np.multiply(a, b, out=c)
    off = product_error(a, b, c)
    more = (np.abs(a) + ra) * rb + np.abs(b) * ra
    zero = ((a == 0) & (ra == 0) & np.isfinite(b) & np.isfinite(rb)) | (
        (b == 0) & (rb == 0) & np.isfinite(a) & np.isfinite(ra)
    )
    r[...] = np.where(zero, 0.0, np.where((ra == 0) & (rb == 0), off, (off + more) * UP + TINY))


def divided(c: Any, r: Any, a: Any, ra: Any, b: Any, inverse: Any, share: Any, tiny: Any) -> None:
    np.divide(a, b, out=c)
    np.abs(c, out=r)
    r *= share
    t = ra * inverse
    r += t
    r *= UP
    r += tiny


def larger(c: Any, r: Any, a: Any, ra: Any, b: Any, rb: Any) -> None:
    np.maximum(a, b, out=c)
    np.subtract(c, a, out=r)
    r *= DOWN
    np.subtract(ra, r, out=r)
    t = c - b
    t *= DOWN
    np.subtract(rb, t, out=t)
    np.fmax(r, t, out=r)
    r *= UP
