"""Sums, products of matrices and maxima of ``enclosure``."""

from __future__ import annotations

from typing import Self

import numpy as np

from symattn.arrays.enclosing.array import Core, Parts
from symattn.arrays.enclosing.bounds import DOWN, ETA, SMALL, TINY, UP, blocks, gamma, grid, sums_exactly
from symattn.arrays.enclosing.kernels import fine, masked, mended
from symattn.errors import InputError, Refused

_RUN = 256  # numbers summed in one go; sums of these are summed again, so that a sum of n passes 256 + n/256 roundings
_ROWS = 64  # of a product of matrices, for which radii of the left factor are put together at a time


class Sums(Core):
    """Over an axis, and of products."""

    @classmethod
    def _sum(cls, a: Self, axis: int) -> Self:
        """Σ x_l: off by γ_m Σ|c_l| + Σ r_l at most, m the roundings that a number passes."""
        cls._only_numbers(a)
        return cls(*_summed(a.parts, axis, False))

    @classmethod
    def row_sums(cls, a: Self) -> Self:
        """Over the last axis, which is kept with length one: what a row has in common its sum has, too."""
        cls._only_numbers(a)
        common = a.common if a.common is not None and not a.common.shift else None
        return cls(*_summed(a.parts if common is None else a.raw, -1, True), common=common)

    @classmethod
    def _only_numbers(cls, a: Self) -> None:
        if np.any(masked(a.raw)):
            raise Refused(f"{cls.name}: a sum over -inf (masked scores are only exponentiated)")

    @classmethod
    def _max(cls, a: Self, axis: int) -> Self:
        """c̃ = max c_l; max x_l − c̃ is at most max(r_l − (c̃ − c_l)), and at least −r_l where c_l = c̃, one of these."""
        if not a.plain_shape[axis]:
            raise InputError(f"{cls.name}: max over an empty axis (are there no keys?)")
        c, r = (np.moveaxis(x, axis, -1) for x in a.parts.pair)
        with np.errstate(all="ignore"):
            mid = np.asarray(c.max(axis=-1))
            rad = _reaches(c, r, mid) if r.any() else np.zeros(mid.shape)
        if np.isfinite(mid).all():
            return cls(mid, rad, True)
        undefined = (np.isnan(c) & (r == 0)).any(axis=-1)
        rad = np.where(np.isfinite(mid), rad, np.where(np.isnan(mid) & ~undefined, np.inf, 0.0))
        return cls(mid, rad)

    # -- products of matrices -----------------------------------------------------------------------------------------
    @classmethod
    def _matmul(cls, a: Self, b: Self) -> Self:
        """|X Y − C̃| ≤ |C_a| R_b + R_a |C_b| + R_a R_b + γ_m |C_a| |C_b| + n η, elementwise, m as for sums."""
        x, y = a.raw if _factor(a) else a.parts, b.parts
        if np.any(masked(x)) or np.any(masked(y)):
            raise Refused(f"{cls.name}: a product of matrices with -inf")
        with np.errstate(all="ignore"):
            mid, depth = _product(x.mid, y.mid)
            if _is_exact(x, y):
                return cls(mid, np.zeros(mid.shape), True, a.common if _factor(a) else None)
            rad, bounded = _product_radius(x, y, mid.shape, gamma(depth))
        out = Parts(mid, rad, True)
        if not bounded:
            none = [np.isnan(z.mid).any(axis=k, keepdims=True) for z, k in ((x, -1), (y, -2))]
            sure = [(np.isnan(z.mid) & (z.rad == 0)).any(axis=k, keepdims=True) for z, k in ((x, -1), (y, -2))]
            bad = Parts(np.where(none[0] | none[1], np.nan, 0.0), np.where(sure[0] | sure[1], 0.0, np.inf))
            out = mended(out, (bad,))
        return cls(*out, common=a.common if _factor(a) else None)


def _factor(a: Core) -> bool:
    """Whether each row of the left factor of a product has a factor in common, which the product then has."""
    return a.common is not None and not a.common.shift


def _runs(n: int) -> list[slice]:
    return [slice(i, i + _RUN) for i in range(0, n, _RUN)]


def _roundings(n: int) -> int:
    """How many a number passes at most in a sum of n in runs, its own product's not counted."""
    return min(n, _RUN) + -(-n // _RUN)


def _total(x: np.ndarray, axis: int, keep: bool) -> np.ndarray:
    n = x.shape[axis]
    if n <= 2 * _RUN:
        return np.asarray(np.sum(x, axis=axis, keepdims=keep))
    lines = np.moveaxis(x, axis, -1)
    parts = np.stack([lines[..., run].sum(axis=-1) for run in _runs(n)], axis=-1).sum(axis=-1)
    return np.expand_dims(parts, axis) if keep else np.asarray(parts)


def _summed(a: Parts, axis: int, keep: bool) -> Parts:
    """A sum does not underflow; its error γΣ|c| may, when it is computed, which TINY makes up for."""
    n = a.mid.shape[axis]
    with np.errstate(all="ignore"):
        mid = _total(a.mid, axis, keep)
        size = mid if a.mid.min(initial=0) >= 0 else _total(np.abs(a.mid), axis, keep)
        rad = _total(a.rad, axis, keep) if a.rad.any() else np.zeros(mid.shape)
        if n > 1 and not (a.mid.size <= SMALL and sums_exactly(grid(a.mid), float(np.max(size, initial=0)))):
            m = n if n <= 2 * _RUN else _roundings(n)
            rad = (size * gamma(m) + rad) * UP + np.where(size > 0, TINY, 0.0)
        elif rad.any():
            rad = rad * UP
    out = Parts(mid, rad, True)
    if fine(out):
        return out
    none = np.isnan(a.mid)
    undefined = (none & (a.rad == 0)).any(axis=axis, keepdims=keep)
    bad = Parts(np.where(none.any(axis=axis, keepdims=keep), np.nan, 0.0), np.where(undefined, 0.0, np.inf))
    return mended(out, (bad,))


def _reaches(c: np.ndarray, r: np.ndarray, mid: np.ndarray) -> np.ndarray:
    """max(r_l − (c̃ − c_l)), the differences of midpoints rounded down."""
    out = np.empty(mid.shape)
    lines = out.reshape(-1, 1)
    shape = (lines.size, c.shape[-1])
    flat, wide, tops = c.reshape(shape), r.reshape(shape), mid.reshape(-1, 1)
    for b in blocks(shape):
        if len(b) > 1:  # rows longer than a block
            i = b[0]
            lines[i] = np.maximum.reduce(wide[i] - (tops[i] - flat[i]) * DOWN)
            continue
        t = tops[b] - flat[b]
        t *= DOWN
        np.subtract(wide[b], t, out=t)
        lines[b] = np.maximum.reduce(t, axis=-1, keepdims=True)
    return np.asarray(out * UP)


def _product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, int]:
    """C_a C_b, and how many roundings a product passes at most."""
    n = a.shape[-1]
    if n <= 2 * _RUN:
        return np.matmul(a, b), n + 1
    runs = iter(_runs(n))
    first = next(runs)
    out = np.matmul(a[..., first], b[..., first, :])
    for run in runs:
        out += np.matmul(a[..., run], b[..., run, :])
    return out, _roundings(n) + 1


def _is_exact(x: Parts, y: Parts) -> bool:
    """Whether all products and their sums in any order are exact, found out of few elements only."""
    if x.mid.size > SMALL or y.mid.size > SMALL or x.rad.any() or y.rad.any():
        return False
    if not (np.isfinite(x.mid).all() and np.isfinite(y.mid).all()):
        return False
    size = np.matmul(np.abs(x.mid), np.abs(y.mid))
    return sums_exactly(grid(x.mid) * grid(y.mid), float(np.max(size, initial=0)))


def _product_radius(x: Parts, y: Parts, shape: tuple[int, ...], g: float) -> tuple[np.ndarray, bool]:
    """(R_a + γ|C_a| + ε)|C_b| + (|C_a| + R_a) R_b, and whether all are below 2⁹⁰⁰, so that no midpoint overflows.

    ε makes up for what underflows. It is γ 2⁻²⁰⁰ times the row's largest |C_a|, if that is at least 2⁻¹⁰⁰⁰ when
    multiplied by the least |C_b| > 0: then it is at least η, twice what γ|C_a| may lose, and half of it, multiplied by
    |C_b|, is more than what all products of midpoints may lose; no term underflows. Else, and for the second product,
    ε is η and TINY is added to the sums. UP is in the right factors.
    """
    out, size, bounded = np.empty(shape), np.abs(y.mid), True
    least = np.min(size, initial=np.inf, where=size > 0)
    batch, lines = shape[:-2], max(_ROWS, (1 << 16) // max(1, x.mid.shape[-1], shape[-1]))
    c, r = (np.broadcast_to(z, (*batch, *z.shape[-2:])) for z in x.pair)
    size, wide = (np.broadcast_to(z * UP, (*batch, *z.shape[-2:])) for z in (size, y.rad))
    by_right, by_left = bool(y.rad.any()), bool(x.rad.any())
    for i in np.ndindex(*batch):
        for start in range(0, shape[-2], lines):
            rows = (*i, slice(start, start + lines))
            left, part = np.abs(c[rows]), out[rows]
            floor = left.max(axis=-1, keepdims=True, initial=0) * (g * 2.0**-200)
            covered = not by_right and bool((floor * least >= 2.0**-1000).all())
            t = left * g
            t += floor if covered else ETA
            if by_left:
                t += r[rows]
            np.matmul(t, size[i], out=part)
            if by_right:
                part += (left + r[rows] if by_left else left) @ wide[i]
            if not covered:
                part += TINY
            bounded = bounded and bool(part.max(initial=0) < 2.0**900)
    return out, bounded
