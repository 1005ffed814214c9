"""``exact``: elements are quotients over K[e^K]; equality is decided, order is Arb's after equality is excluded."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from symattn.arrays.entries import Entries
from symattn.arrays.field import products
from symattn.arrays.field.logarithm import Logarithm
from symattn.arrays.field.quotient import Quotient
from symattn.arrays.met import meet
from symattn.arrays.namespace import Namespace
from symattn.arrays.notes import note
from symattn.document.errors import Refused

_TYPED = 1 << 30  # a float whose denominator is larger was computed or rounded, not typed as a dyadic number


class Exact(Entries):
    """Arrays of exact numbers."""

    name = "exact"
    holds = "exact numbers"
    sentinel = -1e4

    @classmethod
    def scalar(cls, value: object) -> Any:
        if isinstance(value, (Quotient, Logarithm)):
            return value
        meet(value)
        if isinstance(value, float) and value.as_integer_ratio()[1] > _TYPED:
            note(f"the float {value!r} was taken at its dyadic value")
        return Quotient.of(value)

    @classmethod
    def function(cls, name: str, x: object) -> Any:
        method = getattr(x, name, None)
        if method is None:
            raise Refused(f"exact lacks {name} of {x}")
        return method()

    @classmethod
    def _unary(cls, name: str, a: Self) -> Self:
        values = super()._unary(name, a)
        return cls(products.over_one_unit(values.entries)) if name == "exp" else values

    @classmethod
    def _sum(cls, a: Self, axis: int) -> Self:
        if a.plain_shape[axis] < 2 or cls._forbidden(a).any() or cls._logarithms(a):
            return super()._sum(a, axis)
        return cls(products.row_sums(np.moveaxis(a.entries, axis, -1)))

    @classmethod
    def _matmul(cls, a: Self, b: Self) -> Self:
        if a.plain_shape[-1] < 2 or cls._logarithms(a) or cls._logarithms(b):
            return super()._matmul(a, b)
        return cls(products.products(a.entries, b.entries))

    @classmethod
    def _logarithms(cls, a: Self) -> bool:
        """Return whether there are logarithms in it: with them no denominator can be cleared and put back."""
        return any(isinstance(x, Logarithm) for x in a.entries.flat)


Exact.xp = Namespace(Exact)
