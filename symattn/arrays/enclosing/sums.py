"""Sums and maxima of ``enclosure``."""

from __future__ import annotations

from typing import Self

import numpy as np

from symattn.arrays.enclosing.array import Core
from symattn.arrays.enclosing.bounds import BLOCK, DOWN, SMALL, TINY, UP, blocks, gamma, grid, sums_exactly
from symattn.arrays.enclosing.work import Parts, Work, fine, masked, mended
from symattn.document.errors import InputError, Refused

RUN = 256  # numbers summed in one go; sums of these are summed again, so that a sum of n passes 256 + n/256 roundings


class Sums(Core):
    """Over an axis."""

    @classmethod
    def _sum(cls, a: Self, axis: int) -> Self:
        """Σ x_l: off by γ_m Σ|c_l| + Σ r_l at most, m the roundings that a number passes."""
        cls._only_numbers(a)
        return cls.made(_summed(a.parts, axis, False))

    @classmethod
    def row_sums(cls, a: Self) -> Self:
        """Over the last axis, which is kept with length one: what a row has in common its sum has, too."""
        cls._only_numbers(a)
        common = a.common if a.common is not None and not a.common.shift else None
        found = cls.made(_summed(a.parts if common is None else a.raw, -1, True), common)
        found.positive = a.positive  # a sum is 0 only if all its numbers are
        return found

    @classmethod
    def _only_numbers(cls, a: Self) -> None:
        if np.any(masked(a.raw)):
            raise Refused(f"{cls.name}: a sum over -inf (masked scores are only exponentiated)")

    @classmethod
    def _max(cls, a: Self, axis: int) -> Self:
        """c̃ = max c_l; max x_l − c̃ is at most max(r_l − (c̃ − c_l)), and at least −r_l where c_l = c̃, one of these."""
        if not a.plain_shape[axis]:
            raise InputError(f"{cls.name}: max over an empty axis (are there no keys?)")
        x = a.source if a.common is None and axis in (-1, a.ndim - 1) else a.parts
        if isinstance(x, Parts):
            x = Parts(np.moveaxis(x.mid, axis, -1), np.moveaxis(x.rad, axis, -1))
        mid, rad = _tops(x, tuple(np.delete(a.plain_shape, axis).tolist()), a.plain_shape[axis])
        if np.isfinite(mid).all():
            return cls.made(Parts(mid, rad, True))
        undefined = (np.isnan(a.mid) & (a.rad == 0)).any(axis=axis)
        rad = np.where(np.isfinite(mid), rad, np.where(np.isnan(mid) & ~undefined, np.inf, 0.0))
        return cls.made(Parts(mid, rad))


def runs(n: int) -> list[slice]:
    return [slice(i, i + RUN) for i in range(0, n, RUN)]


def roundings(n: int) -> int:
    """How many a number passes at most in a sum of n in runs, its own product's not counted."""
    return min(n, RUN) + -(-n // RUN)


def _total(x: np.ndarray, axis: int, keep: bool) -> np.ndarray:
    n = x.shape[axis]
    if n <= 2 * RUN:
        return np.asarray(np.sum(x, axis=axis, keepdims=keep))
    lines = np.moveaxis(x, axis, -1)
    parts = np.stack([lines[..., run].sum(axis=-1) for run in runs(n)], axis=-1).sum(axis=-1)
    return np.expand_dims(parts, axis) if keep else np.asarray(parts)


def _summed(a: Parts, axis: int, keep: bool) -> Parts:
    """A sum does not underflow; its error γΣ|c| may, when it is computed, which TINY makes up for."""
    n = a.mid.shape[axis]
    with np.errstate(all="ignore"):
        mid = _total(a.mid, axis, keep)
        size = mid if a.mid.min(initial=0) >= 0 else _total(np.abs(a.mid), axis, keep)
        rad = _total(a.rad, axis, keep) if a.rad.any() else np.zeros(mid.shape)
        if n > 1 and not (a.mid.size <= SMALL and sums_exactly(grid(a.mid), float(np.max(size, initial=0)))):
            m = n if n <= 2 * RUN else roundings(n)
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


def _tops(x: Parts | Work, shape: tuple[int, ...], n: int) -> tuple[np.ndarray, np.ndarray]:
    """c̃ and max(r_l − (c̃ − c_l)) over the last axis, of length n; the differences of midpoints are rounded down."""
    mid, rad = np.empty(shape), np.zeros(shape)
    with np.errstate(all="ignore"):
        for b in blocks(shape, max(1, BLOCK // n)):
            c, r, _ = x.read(b)
            mid[b] = top = np.maximum.reduce(c, axis=-1)
            if r.any():
                t = np.asarray(top)[..., None] - c
                t *= DOWN
                np.subtract(r, t, out=t)
                rad[b] = np.maximum.reduce(t, axis=-1) * UP
    return mid, rad
