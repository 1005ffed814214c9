"""Sums and maxima of ``enclosure``."""

from __future__ import annotations

from typing import Self

import numpy as np

from symattn.arrays.enclosing.array import Core
from symattn.arrays.enclosing.bounds import (
    BLOCK,
    DOWN,
    ETA,
    SMALL,
    TINY,
    UP,
    blocks,
    gamma,
    grid,
    sums_exactly,
)
from symattn.arrays.enclosing.work import EnclosedWork, Parts, fine, masked, mended
from symattn.document.errors import Refused

RUN = 256  # numbers per partial sum; a number passes at most 256 + n/256 roundings in a sum of n


class EnclosedSums(Core):
    """``_sum`` and ``_max``."""

    @classmethod
    def _sum(cls, a: Self, axis: int) -> Self:
        """Σ x_l, off by at most γ_m Σ|c_l| + Σ r_l, with m the number of roundings that a number passes."""
        cls._only_numbers(a)
        return cls.made(_sum_midpoints_and_radii(a.parts, axis, False))

    @classmethod
    def row_sums(cls, a: Self) -> Self:
        """Sum over the last axis, kept with length one; a factor common to a row is common to its sum, too."""
        cls._only_numbers(a)
        # A factor e^t goes through a sum; a shift does not.
        common = a.common if a.common is not None and not a.common.shift else None
        result = cls.made(
            _sum_midpoints_and_radii(a.parts if common is None else a.raw, -1, True), common
        )
        result.positive = a.positive  # a sum is 0 only if all its terms are
        return result

    @classmethod
    def _only_numbers(cls, a: Self) -> None:
        if np.any(masked(a.raw)):
            raise Refused(f"{cls.name}: a sum over -inf (masked scores are only exponentiated)")

    @classmethod
    def _max(cls, a: Self, axis: int) -> Self:
        """c̃ = max c_l; max x_l − c̃ is at most max(r_l − (c̃ − c_l)), and at least −r_l where c_l = c̃, one of these."""
        # Work is read by blocks of rows, so only the last axis can be reduced without storing.
        last = axis in (-1, a.ndim - 1)
        x = a.source if a.common is None and last else a.parts
        if isinstance(x, Parts) and not last:
            moved_mid = np.moveaxis(x.mid, axis, -1)
            x = Parts(moved_mid, np.moveaxis(x.rad, axis, -1))
        shape = list(a.plain_shape)
        mid, rad = _row_maxima_with_radii(x, shape.pop(axis), tuple(shape))
        if np.isfinite(mid).all():
            return cls.made(Parts(mid, rad, True))
        undefined = (np.isnan(a.mid) & (a.rad == 0)).any(axis=axis)
        overflown = np.isnan(mid) & ~undefined
        no_number = np.where(overflown, np.inf, 0.0)
        rad = np.where(np.isfinite(mid), rad, no_number)
        return cls.made(Parts(mid, rad))


def runs(n: int) -> list[slice]:
    return [slice(i, i + RUN) for i in range(0, n, RUN)]


def roundings(n: int) -> int:
    """Return the largest number of roundings of a term in a sum of n by runs, without that of its own product."""
    return min(n, RUN) + -(-n // RUN)


def _sum_floats_by_runs(x: np.ndarray, axis: int, keep: bool) -> np.ndarray:
    n = x.shape[axis]
    # Short sums pass few roundings as they are.
    if n <= 2 * RUN:
        return np.asarray(np.sum(x, axis=axis, keepdims=keep))
    lines = np.moveaxis(x, axis, -1)
    run_sums = [lines[..., run].sum(axis=-1) for run in runs(n)]
    parts = np.stack(run_sums, axis=-1).sum(axis=-1)
    return np.expand_dims(parts, axis) if keep else np.asarray(parts)


def _sum_midpoints_and_radii(a: Parts, axis: int, keep: bool) -> Parts:
    """Sum along an axis. A sum does not underflow; its computed error γΣ|c| may, for which TINY compensates."""
    n = a.mid.shape[axis]
    with np.errstate(all="ignore"):
        mid = _sum_floats_by_runs(a.mid, axis, keep)
        # Without negative terms Σ|c| is the sum itself.
        size = mid if a.mid.min(initial=0) >= 0 else _sum_floats_by_runs(np.abs(a.mid), axis, keep)
        rad = _sum_floats_by_runs(a.rad, axis, keep) if a.rad.any() else np.zeros(mid.shape)
        # Few terms on a common grid add exactly, and keep radius 0.
        small = a.mid.size <= SMALL
        if n > 1 and not (small and sums_exactly(grid(a.mid), float(np.max(size, initial=0)))):
            m = n if n <= 2 * RUN else roundings(n)
            underflow = np.where(size > 0, TINY, 0.0)
            rad = (size * gamma(m) + rad) * UP + underflow
        elif rad.any():
            rad = rad * UP
    out = Parts(mid, rad, True)
    if fine(out):
        return out
    none = np.isnan(a.mid)
    undefined = (none & (a.rad == 0)).any(axis=axis, keepdims=keep)
    any_none = none.any(axis=axis, keepdims=keep)
    infinite = np.where(undefined, 0.0, np.inf)
    bad = Parts(np.where(any_none, np.nan, 0.0), infinite)
    return mended(out, (bad,))


def _row_maxima_with_radii(
    x: Parts | EnclosedWork, n: int, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Return c̃ and max(r_l − (c̃ − c_l)) over the last axis, of length n; differences are rounded down."""
    mid, rad = np.empty(shape), np.zeros(shape)
    with np.errstate(all="ignore"):
        for b in blocks(shape, max(1, BLOCK // n)):
            c, r, _ = x.read(b)
            mid[b] = top = np.maximum.reduce(c, axis=-1)
            # Exact rows have an exact maximum.
            if r.any():
                t = np.asarray(top)[..., None] - c
                t *= DOWN
                np.subtract(r, t, out=t)
                rad[b] = np.maximum.reduce(t, axis=-1) * UP
    return mid, rad


# -- products of matrices ----------------------------------------------------------------------------------------------
_ROWS = 64  # the least number of rows of a product that are computed at a time


class Products(Core):
    """``_matmul``."""

    @classmethod
    def _matmul(cls, a: Self, b: Self) -> Self:
        """|X Y − C̃| ≤ |C_a| R_b + R_a |C_b| + R_a R_b + γ_m |C_a| |C_b| + n η, elementwise, m as for sums.

        A factor common to a row of X is common to that row of the product.
        """
        common = a.common if a.common is not None and not a.common.shift else None
        batch = np.broadcast_shapes(a.plain_shape[:-2], b.plain_shape[:-2])
        shape = (*batch, a.plain_shape[-2], b.plain_shape[-1])
        y = b.parts
        # the common unknown need not be merged into radii
        raw_suffices = a.common is None or common is not None
        x = a.parts if not raw_suffices else a.source if batch == a.plain_shape[:-2] else a.raw
        if (isinstance(x, Parts) and np.any(masked(x))) or np.any(masked(y)):
            raise Refused(f"{cls.name}: a product of matrices with -inf")
        with np.errstate(all="ignore"):
            # Small products of whole numbers keep radius 0.
            if isinstance(x, Parts) and _is_exact(x, y):
                mid = np.matmul(x.mid, y.mid)
                return cls.made(Parts(mid, np.zeros(mid.shape), True), common)
            out, bounded = _multiply_enclosed_matrices(x, y, shape, a.plain_shape)
        if bounded:
            return cls.made(out, common)
        # The correction needs the whole operand, so the work is settled and the product repeated.
        if isinstance(x, EnclosedWork):
            return cls._matmul(cls.made(x.settled(), common), b)
        arrays = ((x, -1), (y, -2))
        none = [np.isnan(z.mid).any(axis=k, keepdims=True) for z, k in arrays]
        sure = [
            (np.isnan(z.mid) & (z.rad == 0)).any(axis=k, keepdims=True)
            for z, k in ((x, -1), (y, -2))
        ]
        infinite = np.where(sure[0] | sure[1], 0.0, np.inf)
        bad = Parts(np.where(none[0] | none[1], np.nan, 0.0), infinite)
        return cls.made(mended(out, (bad,)), common)


def _is_exact(x: Parts, y: Parts) -> bool:
    """Return whether all products and their sums in any order are exact; False for large arrays, without checking."""
    # The test costs another product, which pays only for few elements.
    if x.mid.size > SMALL or y.mid.size > SMALL or x.rad.any() or y.rad.any():
        return False
    finite_x = np.isfinite(x.mid).all()
    finite = finite_x and np.isfinite(y.mid).all()
    if not finite:
        return False
    size = np.matmul(np.abs(x.mid), np.abs(y.mid))
    largest = float(np.max(size, initial=0))
    return sums_exactly(grid(x.mid) * grid(y.mid), largest)


class _Right:
    """The right factor: midpoints, their absolute values and radii, the latter two times UP."""

    def __init__(self, y: Parts, shape: tuple[int, ...]) -> None:
        wide = (*shape[:-2], *y.mid.shape[-2:])
        size = np.abs(y.mid)
        self.least = float(np.min(size, initial=np.inf, where=size > 0))
        self.rounded = bool(y.rad.any())
        parts = (y.mid, size * UP, y.rad * UP)
        self.mid, self.size, self.rad = (np.broadcast_to(z, wide) for z in parts)


def _multiply_enclosed_matrices(
    x: Parts | EnclosedWork, y: Parts, shape: tuple[int, ...], left: tuple[int, ...]
) -> tuple[Parts, bool]:
    """Return midpoints and radii, and whether all radii are below 2⁹⁰⁰, so that no midpoint overflows."""
    n, right, bounded = left[-1], _Right(y, shape), True
    mid, rad = np.empty(shape), np.empty(shape)
    g = gamma(n + 1 if n <= 2 * RUN else roundings(n) + 1)
    # Enough rows at a time for BLAS, few enough for the cache.
    lines = max(_ROWS, 4 * BLOCK // max(1, n, shape[-1]))
    x = x.spread((*shape[:-2], *left[-2:])) if isinstance(x, Parts) else x
    for i in np.ndindex(*shape[:-2]):
        for start in range(0, shape[-2], lines):
            rows = (*i, slice(start, start + lines))
            c, r, _ = x.read(rows)
            # Runs of the inner axis bound the roundings of each term.
            pieces = runs(c.shape[-1]) if c.shape[-1] > 2 * RUN else [slice(None)]
            first, *others = pieces
            out = mid[rows]
            first_rows = right.mid[i][first]
            np.matmul(c[:, first], first_rows, out=out)
            for run in others:
                out += c[:, run] @ right.mid[i][run]
            _compute_product_radii(c, r, right, i, g, rad[rows])
            bounded = bounded and bool(rad[rows].max(initial=0) < 2.0**900)
    return Parts(mid, rad, True), bounded


def _compute_product_radii(
    c: np.ndarray, r: np.ndarray, right: _Right, i: tuple[int, ...], g: float, out: np.ndarray
) -> None:
    """(R_a + γ|C_a| + ε)|C_b| + (|C_a| + R_a) R_b.

    ε compensates for underflow. It is γ 2⁻²⁰⁰ times the row's largest |C_a|, if that is at least 2⁻¹⁰⁰⁰ when
    multiplied by the least |C_b| > 0: then it is at least η, twice what γ|C_a| may lose, and half of it, multiplied by
    |C_b|, is more than what all products of midpoints may lose; no term underflows. Else, and for the second product,
    ε is η and TINY is added to the sums.
    """
    left, wide = np.abs(c), bool(r.any())
    floor = left.max(axis=-1, keepdims=True, initial=0) * (g * 2.0**-200)
    # Only if no term underflows may the floor stand in for η.
    covered = not right.rounded and bool((floor * right.least >= 2.0**-1000).all())
    t = left * g
    t += floor if covered else ETA
    if wide:
        t += r
    np.matmul(t, right.size[i], out=out)
    # The second factor's own radius.
    if right.rounded:
        out += (left + r if wide else left) @ right.rad[i]
    if not covered:
        out += TINY
