"""NumPy's floats as a kind with planes, for kinds that are made over others: ``dual(Float64)``."""

from __future__ import annotations

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
    def _add(cls, a: Self, b: Self) -> Self:
        return cls.lift(a.planes[0] + b.planes[0])

    @classmethod
    def _mul(cls, a: Self, b: Self) -> Self:
        return cls.lift(a.planes[0] * b.planes[0])

    @classmethod
    def _div(cls, a: Self, b: Self) -> Self:
        return cls.lift(a.planes[0] / b.planes[0])

    @classmethod
    def _maximum(cls, a: Self, b: Self) -> Self:
        return cls.lift(np.maximum(a.planes[0], b.planes[0]))

    @classmethod
    def _unary(cls, name: str, a: Self) -> Self:
        return cls.lift(of_floats(name, a.planes[0]))

    @classmethod
    def _sum(cls, a: Self, axis: int) -> Self:
        return cls.lift(np.sum(a.planes[0], axis=axis))

    @classmethod
    def _max(cls, a: Self, axis: int) -> Self:
        return cls.lift(np.max(a.planes[0], axis=axis))

    @classmethod
    def _matmul(cls, a: Self, b: Self) -> Self:
        return cls.lift(a.planes[0] @ b.planes[0])

    @classmethod
    def _less(cls, a: Self, b: Self) -> np.ndarray:
        return a.planes[0] < b.planes[0]

    @classmethod
    def _equal(cls, a: Self, b: Self) -> Any:
        return a.planes[0] == b.planes[0]

    @classmethod
    def _forbidden(cls, a: Self) -> np.ndarray:
        return np.isneginf(a.planes[0])

    @classmethod
    def _undefined(cls, a: Self) -> Any:
        return np.isnan(a.planes[0])


Float64.xp = Namespace(Float64)
