"""Sums, maxima and orders of taped arrays: one part of the namespace of ``tape``."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from symattn.arrays.calls import offer_all
from symattn.arrays.tape import Pull, Taped
from symattn.arrays.vjp_rules import of_maximum, spread, to_shape


class TapedReductions:
    """``sum`` to ``sort``."""

    kind: Any
    under: Any

    def sum(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        value = self.under.sum(x.value, axis=axis, keepdims=keepdims)
        return self.kind(value, [(x, lambda g: spread(self.under, g, x.plain_shape, axis, keepdims))])

    def mean(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        value = self.under.mean(x.value, axis=axis, keepdims=keepdims)
        times = x.size // (int(np.prod(np.shape(value), dtype=int)) or 1)
        return self.kind(value, [(x, lambda g: spread(self.under, g, x.plain_shape, axis, keepdims) / times)])

    def cumulative_sum(self, x: Any, axis: int = -1) -> Any:
        sums, flip = self.under.cumulative_sum, self.under.flip

        def pull(g: Any) -> Any:
            """Σ over the places from each place on."""
            return flip(sums(flip(g, axis=axis), axis=axis), axis=axis)

        return self.kind(sums(x.value, axis=axis), [(x, pull)])

    def var(self, x: Any, axis: Any = None, keepdims: bool = False, correction: int = 0, ddof: int = 0) -> Any:
        mean = self.kind.xp.mean(x, axis=axis, keepdims=True)
        squares = (x - mean) * (x - mean)
        return self.kind.xp.sum(squares, axis=axis, keepdims=keepdims) / (x.size // mean.size - (correction or ddof))

    def std(self, x: Any, axis: Any = None, keepdims: bool = False, correction: int = 0, ddof: int = 0) -> Any:
        return self.kind.xp.sqrt(self.kind.xp.var(x, axis, keepdims, correction, ddof))

    def prod(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        xp = self.kind.xp
        axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
        for k in axes:
            rows = list(xp.moveaxis(x, k, 0))
            x = xp.expand_dims(reduce(lambda a, b: a * b, rows) if rows else xp.ones(x[:0].sum(axis=0).shape), axis=k)
        return x if keepdims or not axes else xp.squeeze(x, axis=axes)

    def max(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        axes = tuple(range(x.ndim)) if axis is None else axis
        top = self.under.max(x.value, axis=axes, keepdims=True)

        def pull(g: Any) -> Any:
            return of_maximum(self.kind, self.under.reshape(g, np.shape(top)), top, x.value, axes)

        return self.kind(top if keepdims else self.under.squeeze(top, axis=axes), [(x, pull)])

    def min(self, x: Any, axis: object = None, keepdims: bool = False) -> Any:
        return -self.kind.xp.max(-x, axis=axis, keepdims=keepdims)

    def maximum(self, a: Any, b: Any) -> Any:
        pair = [x.value if isinstance(x, Taped) else x for x in (a, b)]
        value = self.under.maximum(*pair)

        def pull(k: int) -> Pull:
            def run(g: Any) -> Any:
                both = self.under.stack([self.under.broadcast_to(self.under.asarray(x), g.shape) for x in pair])
                shares = of_maximum(self.kind, g[None], value[None], both, 0)
                return to_shape(self.under, shares[k], np.shape(pair[k]))

            return run

        return self.kind(value, [(x, pull(k)) for k, x in enumerate((a, b)) if isinstance(x, Taped)])

    def minimum(self, a: Any, b: Any) -> Any:
        return -self.kind.xp.maximum(-self.kind.of(a), -self.kind.of(b))

    def abs(self, x: Any) -> Any:
        return self.kind.xp.maximum(x, -x)

    def clip(self, x: Any, min: Any = None, max: object = None) -> Any:
        low = x if min is None else self.kind.xp.maximum(x, min)
        return low if max is None else self.kind.xp.minimum(low, max)

    def sort(self, x: Any, axis: int = -1, descending: bool = False) -> Any:
        how = {"descending": True} if descending else {}
        return self.kind.xp.take_along_axis(x, self.under.argsort(x.value, axis=axis, **how), axis=axis)

    cumsum, amax, amin = cumulative_sum, max, min


offer_all(TapedReductions)
