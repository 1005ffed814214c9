"""``stored``: number formats that NumPy lacks (bfloat16, fp8, through ml_dtypes), each operation rounded once.

ml_dtypes alone promotes: bfloat16 times 0.5, or a product of matrices, comes out as float32. Here every operation is
done in float32 and its result rounded to the format, so that an array stays what it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Self

import ml_dtypes
import numpy as np

from symattn.arrays.namespace import Namespace
from symattn.arrays.planes import Planes
from symattn.errors import InputError, Refused

FORMATS = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


class Stored(Planes):
    """Arrays of a storage format. NaN and overflow come out as in any floating arithmetic."""

    @classmethod
    def lift(cls, data: Any) -> Self:
        plain = np.asarray(data, dtype=np.float64) if not isinstance(data, np.ndarray) else data
        if not np.isfinite(plain.astype(np.float64)).all():
            raise InputError(f"{cls.name}: NaN or infinity in the data; only a mask may hold -inf")
        return cls(np.asarray(plain).astype(cls.dtype))

    @classmethod
    def literal(cls, value: Any) -> Self:
        plain = np.asarray(value)
        if np.isneginf(plain.astype(np.float64)).any() and not np.isneginf(np.asarray(-np.inf).astype(cls.dtype)):
            raise Refused(f"{cls.name} has no infinity to write a mask with")
        return cls(plain.astype(cls.dtype))

    def numpy(self) -> np.ndarray:
        """The array as NumPy holds it, with ml_dtypes' type."""
        return self.planes[0]

    def __repr__(self) -> str:
        return f"{self.name}({self.planes[0].astype(np.float64)!r})"

    @classmethod
    def _in_float32(cls, function: Callable[..., Any], *arrays: Self, **kwargs: Any) -> Self:
        wide = function(*[a.planes[0].astype(np.float32) for a in arrays], **kwargs)
        return cls(np.asarray(wide).astype(cls.dtype))

    @classmethod
    def _add(cls, a: Self, b: Self) -> Self:
        return cls._in_float32(np.add, a, b)

    @classmethod
    def _mul(cls, a: Self, b: Self) -> Self:
        return cls._in_float32(np.multiply, a, b)

    @classmethod
    def _div(cls, a: Self, b: Self) -> Self:
        return cls._in_float32(np.divide, a, b)

    @classmethod
    def _maximum(cls, a: Self, b: Self) -> Self:
        return cls._in_float32(np.maximum, a, b)

    @classmethod
    def _unary(cls, name: str, a: Self) -> Self:
        function = getattr(np, name, None)
        if function is None:
            raise Refused(f"{cls.name} lacks {name}")
        return cls._in_float32(function, a)

    @classmethod
    def _sum(cls, a: Self, axis: int) -> Self:
        return cls._in_float32(np.sum, a, axis=axis)

    @classmethod
    def _max(cls, a: Self, axis: int) -> Self:
        if not a.plain_shape[axis]:
            raise InputError(f"{cls.name}: max over an empty axis (are there no keys?)")
        return cls._in_float32(np.max, a, axis=axis)

    @classmethod
    def _less(cls, a: Self, b: Self) -> Any:
        return np.less(a.planes[0], b.planes[0])

    @classmethod
    def _equal(cls, a: Self, b: Self) -> Any:
        return np.equal(a.planes[0], b.planes[0])

    @classmethod
    def _forbidden(cls, a: Self) -> Any:
        return np.isinf(a.planes[0].astype(np.float32))

    @classmethod
    def _undefined(cls, a: Self) -> Any:
        return np.isnan(a.planes[0].astype(np.float32))

    @classmethod
    def _matmul(cls, a: Self, b: Self) -> Self:
        return cls._in_float32(np.matmul, a, b)


@cache
def stored(name: str) -> type[Stored]:
    """The kind of arrays in the format ``name``, one of ``FORMATS``."""
    fields = {"name": name, "dtype": np.dtype(getattr(ml_dtypes, name))}
    made: type[Stored] = type(name, (Stored,), fields)
    made.xp = Namespace(made)
    return made
