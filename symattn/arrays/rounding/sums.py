"""Sums and products of matrices of ``rounded``, in any order."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.base import offer_all
from symattn.arrays.namespace import Namespace
from symattn.arrays.reductions import _axes
from symattn.arrays.rounding.array import ComputedNumber, LinearErrors, sharply
from symattn.arrays.rounding.bounds import SLACK, common_ids, given_up, growth, holds, own, radii, rounding, table, up


class RoundedSums(ComputedNumber):
    """Sums over an axis, products of matrices."""

    @classmethod
    @sharply
    def _sum(cls, a: Self, axis: int) -> Self:
        """Sum; each of n numbers that are not 0 passes n − 1 roundings at most."""
        value, a, n = Ball._sum(a.value, axis), a.name_errors(), a.plain_shape[axis]
        ids, reach = common_ids([a.rows], a.size), a.reach
        part, count = table(a.rows, ids), (reach > 0).sum(axis=axis)
        rest = own(a.rows) + SLACK * n * radii(a.rows) + given_up(a.rows, part)
        terms = np.where(a.terms > 0, a.terms, reach).sum(axis=axis)
        return cls.made(
            value,
            LinearErrors(part.sum(axis=axis), ids, rest.sum(axis=axis), a.last.sum(axis=axis)),
            more=cls._summed(reach.sum(axis=axis), np.maximum(count - 1, 0), np.zeros(count.shape)),
            relative=np.where(count > 1, cls.rounded_once(), 0),
            terms=np.where((a.terms > 0).any(axis=axis), terms, 0),
        )

    @classmethod
    def _summed(cls, size: np.ndarray, roundings: np.ndarray, products: np.ndarray) -> np.ndarray:
        """The error of sums of numbers that together are at most ``size`` and pass so many roundings each.

        Σ x̂_l Π(1 + δ) is off by g(n) Σ|x̂_l|. The last rounding is common to all; where it is that of storing the sum it
        is left to that. Each product may underflow by η (1 + g(n)), the sum, too, and each part of it where subnormal
        numbers are flushed; else a part is exact if it is no normal number.
        """
        f = cls.precision.accumulate
        grown = growth(f, np.maximum(roundings - (f == cls.precision.score), 0))
        small = (products + (roundings if f.flushes else roundings > 0)) * float(f.eta)
        return np.where(up(size * (1 + grown)) <= float(f.largest), up(grown * size + small * (1 + grown)), np.inf)

    @classmethod
    @sharply
    def _matmul(cls, a: Self, b: Self) -> Self:
        """Multiply; each of n products that are not 0 passes n roundings at most, its own one and those of the sum."""
        a, b = a.name_errors(), b.name_errors()
        shape = (*np.broadcast_shapes(a.plain_shape[:-2], b.plain_shape[:-2]), a.plain_shape[-2], b.plain_shape[-1])
        largest = max(int(np.prod(shape)), *(z.size for z in (a, b) if radii(z.rows).any()), 0)
        ids = common_ids([a.rows, b.rows], largest)
        value, shared = np.empty(shape, dtype=object), np.empty((*shape, ids.size))
        rest, size, count = np.zeros((3, *shape))
        x, y = (z.map(lambda p: np.broadcast_to(p, (*shape[:-2], *p.shape[-2:]))) for z in (a, b))
        for i in np.ndindex(*shape[:-2]):
            value[i] = Ball._matmul(x[i].value, y[i].value).entries
            shared[i], rest[i], size[i], count[i] = cls._product(x[i], y[i], ids)
        return cls.made(
            Ball(value),
            LinearErrors(shared, ids, rest, np.zeros(shape)),
            more=cls._summed(size, count, count),
            relative=cls.rounded_once(),
            terms=up(size * (1 + growth(cls.precision.accumulate, count))),
            count=count,
        )

    @classmethod
    def _product(cls, a: Self, b: Self, ids: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return a product's coefficients, other errors, Σ|x̂_l ŷ_l|, and the number of products that are not 0.

        x̂ŷ − xy = y (x̂ − x) + x (ŷ − y) + (x̂ − x)(ŷ − y).
        """
        (s, p, e), (t, q, f), x, y = cls._operand(a, ids), cls._operand(b, ids), a.near, b.near
        shared = np.zeros((*x.near.shape[:1], *y.near.shape[1:], ids.size))
        if t is not None:
            shared += np.tensordot(x.near, t, 1)
        if s is not None:
            shared += np.moveaxis(np.tensordot(s, y.near, (1, 0)), 1, -1)
        slack = SLACK * a.plain_shape[-1]
        rest = x.size @ q + p @ y.size + e @ f + (x.off + slack * x.size) @ f + e @ (y.off + slack * y.size)
        u, v = up(x.size + e), up(y.size + f)
        return shared, rest, u @ v, (u > 0).astype(float) @ (v > 0).astype(float)

    @classmethod
    def _operand(cls, x: Self, ids: np.ndarray) -> tuple[Any, ...]:
        """Return the parts of an operand: coefficients, None if all are zero; other errors, all errors.

        ``fused``, what ``stored`` does not hold may first be rounded to it.
        """
        f, near, e = cls.precision.stored, x.near, x.error
        shared = table(x.rows, ids) if radii(x.rows).any() else None
        rest = own(x.rows) + x.last + (0 if shared is None else given_up(x.rows, shared))
        if cls.precision.contract == "fused":
            read = rounding(up(near.size + e), near.low - e, growth(f, 1), f)
            rest = rest + np.where((e == 0) & holds(f, near), 0, read)
        return shared, up(rest), up(radii(x.rows) + rest)


class _WholeSum:
    """Sums that elsewhere are made one after another."""

    kind: type[Any]

    def sum(self, a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """Over all the axes at once."""
        axes, whole = _axes(a, axis), a.name_errors()
        remaining = [k for k in range(a.ndim) if k not in axes]
        lines = whole.map(
            lambda p: p.transpose(*remaining, *axes).reshape([a.plain_shape[k] for k in remaining] + [-1])
        )
        total = self.kind._sum(lines, len(remaining)) if axes else a.copy()
        return self.kind.xp.expand_dims(total, tuple(sorted(axes))) if keepdims and axes else total

    def cumulative_sum(self, a: Any, axis: int | None = None) -> Any:
        """Each partial sum as a sum of its own."""
        x, k = (a.reshape(-1), 0) if axis is None else (a, axis)
        rows = self.kind.xp.moveaxis(x.name_errors(), k, 0)
        sums = [self.kind._sum(rows[: i + 1], 0) for i in range(len(rows))]
        return self.kind.xp.moveaxis(self.kind.xp.stack(sums), 0, k) if sums else x.copy()

    cumsum = cumulative_sum


offer_all(_WholeSum)


class RoundedNamespace(_WholeSum, Namespace):
    """The namespace of a rounded kind."""
