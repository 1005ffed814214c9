"""NumPy's floats as a kind with planes, for kinds made over others (``dual(Float64)``) and for stored formats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from symattn.arrays.functions import of_floats
from symattn.arrays.namespace import Namespace
from symattn.arrays.planes import Planes


class Float64(Planes):
    """Arrays of float64. NaN and overflow come out as in any floating arithmetic."""

    name = "float64"
    holds = "floating-point numbers"

    @classmethod
    def lift(cls, data: object) -> Self:
        return cls(np.asarray(data, dtype=np.float64))

    @classmethod
    def literal(cls, value: object) -> Self:
        return cls.lift(value)

    @classmethod
    def wide(cls, a: Self) -> np.ndarray:
        """The numbers in the format in which operations are done."""
        return a.planes[0]

    @classmethod
    def computed(cls, function: Callable[..., Any], *arrays: Self, **how: Any) -> Self:
        """A function of NumPy's, on arrays of the kind."""
        return cls.lift(function(*map(cls.wide, arrays), **how))

    @classmethod
    def _add(cls, a: Self, b: Self) -> Self:
        return cls.computed(np.add, a, b)

    @classmethod
    def _mul(cls, a: Self, b: Self) -> Self:
        return cls.computed(np.multiply, a, b)

    @classmethod
    def _div(cls, a: Self, b: Self) -> Self:
        return cls.computed(np.divide, a, b)

    @classmethod
    def _maximum(cls, a: Self, b: Self) -> Self:
        return cls.computed(np.maximum, a, b)

    @classmethod
    def _unary(cls, name: str, a: Self) -> Self:
        return cls.computed(lambda x: of_floats(name, x), a)

    @classmethod
    def _sum(cls, a: Self, axis: int) -> Self:
        return cls.computed(np.sum, a, axis=axis)

    @classmethod
    def _max(cls, a: Self, axis: int) -> Self:
        return cls.computed(np.max, a, axis=axis)

    @classmethod
    def _matmul(cls, a: Self, b: Self) -> Self:
        return cls.computed(np.matmul, a, b)

    @classmethod
    def _less(cls, a: Self, b: Self) -> Any:
        return np.less(cls.wide(a), cls.wide(b))

    @classmethod
    def _equal(cls, a: Self, b: Self) -> Any:
        return np.equal(cls.wide(a), cls.wide(b))

    @classmethod
    def _forbidden(cls, a: Self) -> Any:
        return np.isneginf(cls.wide(a))

    @classmethod
    def _undefined(cls, a: Self) -> Any:
        return np.isnan(cls.wide(a))


Float64.xp = Namespace(Float64)
