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
Forbidden = Callable[..., Any]


def computed(
    kernel: Kernel, shape: tuple[int, ...], pairs: tuple[Parts, ...], *more: Any, forbidden: Forbidden | None = None
) -> Parts:
    """What ``kernel`` writes into midpoints and radii, block by block, of those of the operands and ``more`` arrays.

    Where a radius comes out as no finite number the block is ``mended``.
    """
    boxed, count = shape or (1,), 2 * len(pairs)
    mid, rad, whole = np.empty(boxed), np.empty(boxed), True
    wide = [np.broadcast_to(x, boxed) for x in (*(z for p in pairs for z in (p.mid, p.rad)), *more)]
    with np.errstate(all="ignore"):
        for b in blocks(boxed):
            c, r, given = mid[b], rad[b], [x[b] for x in wide]
            kernel(c, r, *given)
            if r.size and not r.max() < np.inf:
                operands = tuple(Parts(*given[k : k + 2]) for k in range(0, count, 2))
                fixed = mended(Parts(c, r), operands, forbidden(*operands) if forbidden else False)
                c[...], r[...], whole = fixed.mid, fixed.rad, False
    return Parts(mid.reshape(shape), rad.reshape(shape), whole or None)


def mended(out: Parts, operands: tuple[Parts, ...], forbidden: Any = False) -> Parts:
    """The result with what is no finite number put right: −∞ where ``forbidden``, undefined or open where an operand
    is, and else, where a float overflowed, nothing said."""
    mid, rad = out.mid, out.rad
    none, undefined = np.zeros((2, *mid.shape), dtype=bool)
    for c, r, _ in operands:
        if np.isnan(c.min(initial=0)):
            none |= np.isnan(c)
            undefined |= np.isnan(c) & (r == 0)
    lost = ~np.isfinite(mid) | np.isnan(rad)
    mid = np.where(none, np.nan, np.where(forbidden, -np.inf, np.where(lost, 0.0, mid)))
    rad = np.where(undefined | (forbidden & ~none), 0.0, np.where(none | lost, np.inf, rad))
    return Parts(mid, rad)


def fine(out: Parts) -> bool:
    """Whether all midpoints and radii are finite."""
    return bool(np.isfinite(out.rad).all() and np.isfinite(out.mid).all())


def masked(x: Parts) -> Any:
    """Where −∞ stands; False if nowhere."""
    if x.finite:
        return False
    found = x.mid == -np.inf
    return found if found.any() else False


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


def shifted(c: Any, r: Any, a: Any, ra: Any, b: Any) -> None:
    """A sum of which one number is exact."""
    np.add(a, b, out=c)
    np.abs(c, out=r)
    r *= U
    r += ra
    r *= UP


def times_power(c: Any, r: Any, a: Any, ra: Any, by: Any, size: Any, least: Any) -> None:
    np.multiply(a, by, out=c)
    np.multiply(ra, size, out=r)
    r += least


def times_power_anywhere(c: Any, r: Any, *given: Any) -> None:
    """Where midpoints may be infinite, or overflow, radii are made NaN."""
    times_power(c, r, *given)
    r += np.where(np.isfinite(c), 0.0, np.nan)


def divided(c: Any, r: Any, a: Any, ra: Any, b: Any, _: Any, inverse: Any, share: Any, tiny: Any) -> None:
    """UP is in ``inverse`` and ``share``."""
    np.divide(a, b, out=c)
    np.abs(c, out=r)
    r *= share
    t = ra * inverse
    r += t
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
