"""Reductions over any axes, with keepdims, and what is made of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cmp_to_key
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.calls import offer_all
from symattn.arrays.planes import Planes
from symattn.document.errors import InputError

Axes = int | tuple[int, ...] | None
"""The axes that a function reduces: one, several, or all."""


class Reductions:
    """``sum`` to ``argsort``."""

    kind: type[Planes]

    def sum(self, a: Any, axis: Axes = None, keepdims: bool = False) -> Any:
        return self._over(self.kind._sum, a, axis, keepdims)

    def max(self, a: Any, axis: Axes = None, keepdims: bool = False) -> Any:
        return self._over(self.kind._max, a, axis, keepdims)

    def min(self, a: Any, axis: Axes = None, keepdims: bool = False) -> Any:
        return -self.max(-a, axis, keepdims)

    def prod(self, a: Any, axis: Axes = None, keepdims: bool = False) -> Any:
        return self._over(self._prod, a, axis, keepdims)

    def mean(self, a: Any, axis: Axes = None, keepdims: bool = False) -> Any:
        return self.sum(a, axis, keepdims) / self._count(a, axis)

    def var(self, a: Any, axis: Axes = None, keepdims: bool = False, correction: int = 0, ddof: int = 0) -> Any:
        centred = a - self.mean(a, axis, True)
        return self.sum(centred * centred, axis, keepdims) / (self._count(a, axis) - (correction or ddof))

    def std(self, a: object, axis: Axes = None, keepdims: bool = False, correction: int = 0, ddof: int = 0) -> Any:
        return self.kind.offer("sqrt")(self.var(a, axis, keepdims, correction, ddof))

    def cumulative_sum(self, a: object, axis: int | None = None) -> Any:
        """Partial sums along one axis."""
        rows = self._to_front(a, axis)
        for i in range(1, len(rows)):
            rows[i] = rows[i] + rows[i - 1]
        return self.kind.offer("moveaxis")(rows, 0, axis if axis is not None else 0)

    def any(self, a: object, axis: Axes = None, keepdims: bool = False) -> Any:
        return np.any(np.asarray(a != 0), axis, keepdims=keepdims)

    def all(self, a: Any, axis: Axes = None, keepdims: bool = False) -> Any:
        return np.all(np.asarray(a != 0), axis, keepdims=keepdims)

    def sort(self, a: Any, axis: int = -1, descending: bool = False) -> Any:
        if not hasattr(self.kind, "ordered"):
            return self.kind.offer("take_along_axis")(a, self.argsort(a, axis, descending), axis=axis)
        rows = self._to_front(a, axis)
        for index in np.ndindex(rows.plain_shape[1:]):
            line = (slice(None), *index)
            rows[line] = self.kind.ordered(rows[line], descending)
        return self.kind.offer("moveaxis")(rows, 0, axis)

    def argsort(self, a: object, axis: int = -1, descending: bool = False) -> np.ndarray:
        """The order along an axis, ties in their first order; the comparisons that it needs must be decided."""
        rows = self._to_front(a, axis)
        order = np.empty(rows.plain_shape, dtype=np.int64)
        for index in np.ndindex(order.shape[1:]):
            key = cmp_to_key(self._compare(rows[(slice(None), *index)]))
            order[(slice(None), *index)] = sorted(range(len(rows)), key=key, reverse=descending)
        return np.moveaxis(order, 0, axis)

    def argmax(self, a: object, axis: int | None = None, keepdims: bool = False) -> Any:
        return self._first(a, axis, keepdims, descending=True)

    def argmin(self, a: object, axis: int | None = None, keepdims: bool = False) -> Any:
        return self._first(a, axis, keepdims, descending=False)

    amax, amin, cumsum = max, min, cumulative_sum

    def _first(self, a: Any, axis: int | None, keepdims: bool, descending: bool) -> Any:
        flat, k = (a.reshape(-1), 0) if axis is None else (a, axis)
        if not flat.plain_shape[k]:
            raise InputError(f"{self.kind.name}: the largest or smallest of an empty axis (are there no keys?)")
        found = np.take(self.argsort(flat, k, descending), 0, axis=k)
        return found if not keepdims else found.reshape((1,) * a.ndim) if axis is None else np.expand_dims(found, k)

    def _compare(self, line: Any) -> Callable[[int, int], int]:
        def less(i: int, j: int) -> int:
            return int(self.kind._less(line[i], line[j])[()])

        return lambda i, j: less(j, i) - less(i, j)

    def _over(self, step: Callable[[Any, int], Any], a: Any, axis: Axes, keepdims: bool) -> Any:
        """``step`` reduces one axis; here it is repeated over those asked for."""
        axes = sorted(_axes(a, axis), reverse=True)
        out = a if axes else a.copy()
        for k in axes:
            out = step(out, k)
        return self.kind.offer("expand_dims")(out, tuple(sorted(axes))) if keepdims and axes else out

    def _prod(self, a: object, axis: int) -> Planes:
        rows = self._to_front(a, axis)
        product = self.kind.lift(np.ones(rows.plain_shape[1:]))
        for i in range(len(rows)):
            product = product * rows[i]
        return product

    def _to_front(self, a: Any, axis: int | None) -> Any:
        """A copy with ``axis`` first; None flattens."""
        return a.reshape(-1).copy() if axis is None else self.kind.offer("moveaxis")(a, axis, 0).copy()

    def _count(self, a: Array, axis: Axes) -> int:
        return math.prod(int(a.shape[k]) for k in _axes(a, axis))


offer_all(Reductions)


def _axes(a: Any, axis: Axes) -> list[int]:
    axes = range(a.ndim) if axis is None else [axis] if isinstance(axis, (int, np.integer)) else list(axis)
    for k in axes:
        if not -a.ndim <= k < a.ndim:
            raise np.exceptions.AxisError(int(k), a.ndim)
    return [int(k) % a.ndim for k in axes]
