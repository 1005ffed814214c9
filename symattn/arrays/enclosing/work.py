"""Midpoints and radii, and how those of results are computed: block by block, at once or when they are read.

A kernel computes midpoints c and radii r from those of the operands. ``mended`` corrects results that are NaN or +∞.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.enclosing.bounds import (
    BLOCK,
    DOWN,
    TINY,
    UP,
    U,
    blocks,
    product_error,
    sum_error,
)

Kernel = Callable[..., None]
Forbidden = Callable[..., Any]


class Parts(NamedTuple):
    """Midpoints and radii, and whether all midpoints are known to be finite."""

    mid: np.ndarray
    rad: np.ndarray
    finite: bool | None = None

    @property
    def pair(self) -> tuple[np.ndarray, np.ndarray]:
        return self.mid, self.rad

    def read(self, block: Any) -> Parts:
        return Parts(self.mid[block], self.rad[block], self.finite)

    def spread(self, shape: tuple[int, ...]) -> Parts:
        return Parts(
            _broadcast_plane_to(self.mid, shape), _broadcast_plane_to(self.rad, shape), self.finite
        )


def _broadcast_plane_to(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return x if x.shape == shape else np.broadcast_to(x, shape)


class EnclosedWork:
    """The result of ``kernel`` for the operands and ``more`` arrays, computed block by block.

    Operands are arrays, or the work that computes them, broadcast to the shape of the result. ``forbidden`` returns
    where the result is −∞ for a block of the operands, or refuses them.
    """

    def __init__(
        self,
        kernel: Kernel,
        shape: tuple[int, ...],
        operands: tuple[Parts | EnclosedWork, ...],
        *more: object,
        forbidden: Forbidden | None = None,
    ) -> None:
        self.kernel = kernel
        self.shape = shape
        self.forbidden = forbidden
        self.boxed = shape or (1,)
        self.operands = list(operands)
        self.more = [np.asarray(x) for x in more]
        if not shape or prod(shape) > BLOCK:  # else there is one block, in which NumPy broadcasts
            self.operands = [
                x if isinstance(x, EnclosedWork) else x.spread(self.boxed) for x in operands
            ]
            self.more = [_broadcast_plane_to(x, self.boxed) for x in self.more]
        self.reads = 0
        self.result: Parts | None = None

    def _compute_enclosed_block(
        self, operands: Sequence[Parts], block: Any, c: np.ndarray, r: np.ndarray
    ) -> bool:
        """Compute a block, and return whether all radii are finite."""
        operand_pairs = (z for x in operands for z in x.pair)
        more = (x[block] for x in self.more)
        self.kernel(c, r, *operand_pairs, *more)
        # Kernels turn what needs correction into NaN or ∞ in the radius.
        if not r.size or r.max() < np.inf:
            return True
        forbidden = self.forbidden(*operands) if self.forbidden else np.False_
        # A forbidden result is exact; what is left may be an overflow.
        np.copyto(r, 0.0, where=forbidden)
        if not r.max() < np.inf or np.isnan(c.max()):
            c[...], r[...] = mended(Parts(c, r), operands, forbidden).pair
        return False

    def read(self, block: object) -> Parts:
        """Return a block of the result, and compute it unless the whole is known."""
        # One block is the whole result, so it is stored at once.
        if self.result is not None or prod(self.boxed) <= BLOCK:
            return self.settled().read(block)
        operands = [x.read(block) for x in self.operands]
        c, r = np.empty((2, *operands[0].mid.shape))
        return Parts(c, r, self._compute_enclosed_block(operands, block, c, r) or None)

    def settled(self) -> Parts:
        """Return the whole result, which is computed once."""
        if self.result is None:
            mid = np.empty(self.boxed)
            rad = np.empty(self.boxed)
            with np.errstate(all="ignore"):
                each = [
                    self._compute_enclosed_block(
                        [x.read(b) for x in self.operands], b, mid[b], rad[b]
                    )
                    for b in blocks(self.boxed)
                ]
            finite = all(each) or None
            middle = mid.reshape(self.shape)
            self.result = Parts(middle, rad.reshape(self.shape), finite)
            # Frees the operands, which are not needed again.
            self.operands, self.more = [], []
        return self.result


def computed(
    kernel: Kernel,
    shape: tuple[int, ...],
    operands: tuple[Parts | EnclosedWork, ...],
    *more: object,
    forbidden: Any = None,
) -> Parts:
    """Return the whole result of a kernel at once."""
    return EnclosedWork(kernel, shape, operands, *more, forbidden=forbidden).settled()


def mended(out: Parts, operands: Iterable[Parts], forbidden: Any = False) -> Parts:
    """Return the result with non-finite elements corrected: −∞ if ``forbidden``, undefined or open if an operand is,
    else, if a float overflowed, a number of which nothing is known."""
    mid, rad = out.mid, out.rad
    none, undefined = np.zeros((2, *mid.shape), dtype=bool)
    for c, r, _ in operands:
        if np.isnan(c.min(initial=0)):
            none |= np.isnan(c)
            undefined |= np.isnan(c) & (r == 0)
    # A float overflowed although no operand says so.
    lost = ~np.isfinite(mid) | np.isnan(rad)
    without_number = np.where(forbidden, -np.inf, np.where(lost, 0.0, mid))
    mid = np.where(none, np.nan, without_number)
    no_radius = undefined | (forbidden & ~none)
    rad = np.where(no_radius, 0.0, np.where(none | lost, np.inf, rad))
    return Parts(mid, rad)


def fine(out: Parts) -> bool:
    """Return whether all midpoints and radii are finite."""
    finite_radius = np.isfinite(out.rad).all()
    return bool(finite_radius and np.isfinite(out.mid).all())


def masked(x: Parts) -> Any:
    """Return where elements are −∞; False if none is."""
    # Known to be finite: no pass over the array.
    if x.finite:
        return False
    result = x.mid == -np.inf
    return result if result.any() else False


# -- the kernels of the elementwise operations, with the bounds of ``elementwise`` -------------------------------------
def rounded_sum(
    c: np.ndarray, r: np.ndarray, a: np.ndarray, ra: np.ndarray, b: np.ndarray, rb: np.ndarray
) -> None:
    np.add(a, b, out=c)
    np.abs(c, out=r)
    r *= U
    r += ra
    r += rb
    r *= UP


def exact_sum(
    c: np.ndarray, r: np.ndarray, a: np.ndarray, ra: np.ndarray, b: np.ndarray, rb: np.ndarray
) -> None:
    np.add(a, b, out=c)
    r[...] = sum_error(a, b, c)
    # Where the exact error is NaN, by overflow of its parts, the bound takes its place.
    np.copyto(r, U * np.abs(c), where=np.isnan(r))
    r += ra
    r += rb
    r *= UP


def rounded_product(
    c: np.ndarray, r: np.ndarray, a: np.ndarray, ra: np.ndarray, b: np.ndarray, rb: np.ndarray
) -> None:
    np.multiply(a, b, out=c)
    # (|a| + ra) rb + |b| ra bounds what the radii contribute to a product.
    np.multiply(np.abs(a) + ra, rb, out=r)
    r += np.abs(b) * ra
    t = np.abs(c)
    t *= U
    r += t
    # The radius itself is computed with roundings, which this covers.
    r *= UP
    r += TINY


def exact_product(
    c: np.ndarray, r: np.ndarray, a: np.ndarray, ra: np.ndarray, b: np.ndarray, rb: np.ndarray
) -> None:
    np.multiply(a, b, out=c)
    off = product_error(a, b, c)
    x, y = np.abs(a), np.abs(b)
    largest = x + ra
    more = largest * rb + y * ra
    zero = ((largest == 0) | (y + rb == 0)) & (more == 0)  # 0 times no finite number is NaN
    # Exact operands have the rounding error alone as radius.
    bounded = (off + more) * UP + TINY
    nearest = np.where(ra + rb == 0, off, bounded)
    r[...] = np.where(zero, 0.0, nearest)


def shifted(c: np.ndarray, r: np.ndarray, a: np.ndarray, ra: np.ndarray, b: np.ndarray) -> None:
    """Add an exact number."""
    np.add(a, b, out=c)
    np.abs(c, out=r)
    r *= U
    r += ra
    r *= UP


def times_power(
    c: np.ndarray,
    r: np.ndarray,
    a: np.ndarray,
    ra: np.ndarray,
    by: np.ndarray,
    size: np.ndarray,
    least: np.ndarray,
) -> None:
    np.multiply(a, by, out=c)
    np.multiply(ra, size, out=r)
    r += least


def times_power_anywhere(c: np.ndarray, r: np.ndarray, *arguments: Any) -> None:
    """Multiply midpoints that may be infinite, or overflow; those radii become NaN."""
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
    """Divide; ``inverse`` and ``share`` contain the factor UP."""
    np.divide(a, b, out=c)
    np.abs(c, out=r)
    r *= share
    t = ra * inverse
    r += t
    r += tiny


def larger(
    c: np.ndarray, r: np.ndarray, a: np.ndarray, ra: np.ndarray, b: np.ndarray, rb: np.ndarray
) -> None:
    np.maximum(a, b, out=c)
    # If a is smaller, its radius reaches less far above the maximum.
    np.subtract(c, a, out=r)
    r *= DOWN
    np.subtract(ra, r, out=r)
    t = c - b
    t *= DOWN
    np.subtract(rb, t, out=t)
    # fmax drops NaN, as of ∞ − ∞.
    np.fmax(r, t, out=r)
    r *= UP
