"""Reductions over any axes, with keepdims, and what is made of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cmp_to_key
from typing import Any

import numpy as np

from symattn.arrays.base import Array
from symattn.arrays.planes import Planes


class Reductions:
    """``sum`` to ``argsort``."""

    kind: type[Planes]

    def sum(self, a: Any, axis: Any = None, keepdims: bool = False, **_: Any) -> Any:
        return (
            self._over(self.kind._sum, a, axis, keepdims)
            if isinstance(a, Array)
            else np.sum(a, axis, keepdims=keepdims)
        )

    def max(self, a: Any, axis: Any = None, keepdims: bool = False, **_: Any) -> Any:
        return (
            self._over(self.kind._max, a, axis, keepdims)
            if isinstance(a, Array)
            else np.max(a, axis, keepdims=keepdims)
        )

    def min(self, a: Any, axis: Any = None, keepdims: bool = False, **_: Any) -> Any:
        return -self.max(-a, axis, keepdims) if isinstance(a, Array) else np.min(a, axis, keepdims=keepdims)

    amax, amin = max, min

    def prod(self, a: Any, axis: Any = None, keepdims: bool = False, **_: Any) -> Any:
        return (
            self._over(self._prod, a, axis, keepdims) if isinstance(a, Array) else np.prod(a, axis, keepdims=keepdims)
        )

    def mean(self, a: Any, axis: Any = None, keepdims: bool = False, **_: Any) -> Any:
        return self.sum(a, axis, keepdims) / self._count(a, axis)

    def var(
        self, a: Any, axis: Any = None, keepdims: bool = False, correction: int = 0, ddof: int = 0, **_: Any
    ) -> Any:
        centred = a - self.mean(a, axis, True)
        return self.sum(centred * centred, axis, keepdims) / (self._count(a, axis) - (correction or ddof))

    def std(
        self, a: Any, axis: Any = None, keepdims: bool = False, correction: int = 0, ddof: int = 0, **_: Any
    ) -> Any:
        return self.kind.offer("sqrt")(self.var(a, axis, keepdims, correction, ddof))

    def cumulative_sum(self, a: Any, axis: int | None = None, **_: Any) -> Any:
        """Partial sums along one axis."""
        if not isinstance(a, Array):
            return np.cumulative_sum(a, axis=axis)
        rows = self._to_front(a, axis)
        for i in range(1, len(rows)):
            rows[i] = rows[i] + rows[i - 1]
        return self.kind.offer("moveaxis")(rows, 0, axis if axis is not None else 0)

    cumsum = cumulative_sum
    any, all = staticmethod(np.any), staticmethod(np.all)

    def sort(self, a: Any, axis: int = -1, descending: bool = False, **_: Any) -> Any:
        return self.kind.offer("take_along_axis")(a, self.argsort(a, axis, descending), axis=axis)

    def argsort(self, a: Any, axis: int = -1, descending: bool = False, **_: Any) -> Any:
        """The order along an axis, ties in their first order; needs every comparison to be decided."""
        rows = self._to_front(a, axis)
        order = np.empty(rows.plain_shape, dtype=np.int64)
        for index in np.ndindex(order.shape[1:]):
            line = rows[(slice(None), *index)]
            below = np.asarray(line[:, None] < line[None, :])
            order[(slice(None), *index)] = sorted(range(len(line)), key=_by(below), reverse=descending)
        return np.moveaxis(order, 0, axis)

    def argmax(self, a: Any, axis: int | None = None, keepdims: bool = False, **_: Any) -> Any:
        flat, k = (a.reshape(-1), 0) if axis is None else (a, axis)
        found = np.take(self.argsort(flat, k, descending=True), 0, axis=k)
        return np.expand_dims(found, k) if keepdims else found

    def argmin(self, a: Any, axis: int | None = None, keepdims: bool = False, **_: Any) -> Any:
        return self.argmax(-a, axis, keepdims)

    def _over(self, step: Callable[[Any, int], Any], a: Any, axis: Any, keepdims: bool) -> Any:
        """``step`` reduces one axis; here it is repeated over those asked for."""
        axes = sorted(_axes(a, axis), reverse=True)
        for k in axes:
            a = step(a, k)
        return self.kind.offer("expand_dims")(a, tuple(sorted(axes))) if keepdims and axes else a

    def _prod(self, a: Any, axis: int) -> Any:
        rows = self._to_front(a, axis)
        product = self.kind.lift(np.ones(rows.plain_shape[1:]))
        for i in range(len(rows)):
            product = product * rows[i]
        return product

    def _to_front(self, a: Any, axis: int | None) -> Any:
        """A copy with ``axis`` first; None flattens."""
        return a.reshape(-1).copy() if axis is None else self.kind.offer("moveaxis")(a, axis, 0).copy()

    def _count(self, a: Any, axis: Any) -> int:
        return math.prod(int(a.shape[k]) for k in _axes(a, axis))


def _by(below: np.ndarray) -> Callable[[int], Any]:
    """A sorting key from the table of which element is less than which."""
    return cmp_to_key(lambda i, j: int(below[j, i]) - int(below[i, j]))


def _axes(a: Any, axis: Any) -> list[int]:
    axes = range(a.ndim) if axis is None else [axis] if isinstance(axis, (int, np.integer)) else list(axis)
    for k in axes:
        if not -a.ndim <= k < a.ndim:
            raise np.exceptions.AxisError(int(k), a.ndim)
    return [int(k) % a.ndim for k in axes]
