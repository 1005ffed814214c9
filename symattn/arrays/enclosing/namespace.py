"""What the namespace of ``enclosure`` does in one go, where others do it element by element or axis by axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn.arrays.base import ArrayBase
from symattn.arrays.calls import offer_all
from symattn.arrays.enclosing.work import Parts
from symattn.arrays.namespace import Namespace
from symattn.arrays.reductions import _axes
from symattn.document.errors import Refused, Undecided


class _Whole:
    """Functions that say what rows have in common, and orders by NumPy's sort."""

    kind: type[Any]

    def sum(self, a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """Over any axes; over the last one alone, what the row has in common stays so."""
        axes = _axes(a, axis)
        if keepdims and axes == [a.ndim - 1]:
            return self.kind.row_sums(a)
        return Namespace.sum(self, a, axis=axis, keepdims=keepdims)  # type: ignore[arg-type]

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """As everywhere; where one side is all that is taken, with what its rows have in common."""
        for x, chosen in ((a, True), (b, False)):
            if isinstance(x, self.kind) and x.common is not None and _alone(np.equal(condition, chosen), x, a, b):
                return self.kind.like(x)
        if isinstance(condition, ArrayBase):
            raise Refused(f"{self.kind.name}: where needs a boolean condition")
        x, y = self.kind.written(a), self.kind.written(b)
        mid, rad = (np.asarray(np.where(condition, p, q)) for p, q in zip(x.parts.pair, y.parts.pair, strict=True))
        return self.kind.made(Parts(mid, rad))

    def argsort(self, a: Any, axis: int = -1, descending: bool = False) -> np.ndarray:
        """The order along an axis, ties in their first order. Raises Undecided unless intervals are apart or equal."""
        c, r = (np.moveaxis(x, axis, -1) for x in a.parts.pair)
        if np.isnan(c).any():
            raise Undecided(f"{self.kind.name}: an order with undefined (0/0)")
        order = np.argsort(-c if descending else c, axis=-1, kind="stable")
        lines = self.kind(*(np.take_along_axis(x, order, axis=-1) for x in (c, r)))
        first, second = lines[..., :-1], lines[..., 1:]
        low, high = (second, first) if descending else (first, second)
        self.kind._less(high, low)  # raises unless decided
        return np.moveaxis(order, -1, axis)


def _alone(chosen: Any, x: Any, *both: Any) -> bool:
    """Whether x is chosen everywhere, and is not broadcast."""
    shape = np.broadcast_shapes(np.shape(chosen), *map(np.shape, both))
    return bool(np.all(chosen)) and shape == x.plain_shape


offer_all(_Whole)


class EnclosureNamespace(_Whole, Namespace):
    """The namespace of ``enclosure``."""
