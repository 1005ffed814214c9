"""NumPy's floats as kinds with planes: float64, as the base of other kinds (``dual(Float64)``), and stored formats.

Stored formats are those that NumPy lacks (bfloat16, fp8, from ml_dtypes). ml_dtypes alone promotes: bfloat16 times 0.5,
or a product of matrices, is float32. Here every operation is done in float32 and its result rounded to the format, so
that arrays keep their dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Self

import ml_dtypes
import numpy as np

from symattn.arrays.base import ArrayBase, offered
from symattn.arrays.formats import odd
from symattn.arrays.functions import of_floats
from symattn.arrays.namespace import Namespace
from symattn.arrays.plain import numbers
from symattn.arrays.planes import Planes
from symattn.document.errors import Refused


def _make_float_primitive(function: Callable[..., object]) -> Any:
    """Return a function of NumPy's as a primitive of the kind."""
    return classmethod(lambda cls, *arrays: cls.computed(function, *arrays))


def _make_float_reduction(function: Callable[..., object]) -> Any:
    return classmethod(lambda cls, a, axis: cls.computed(function, a, axis=axis))


def _make_boolean_primitive(function: Callable[..., object]) -> Any:
    """Return a primitive that gives NumPy's booleans."""
    return classmethod(lambda cls, *arrays: function(*map(cls.wide, arrays)))


class Float64(Planes):
    """Arrays of float64. NaN and overflow behave as in any floating-point arithmetic."""

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
        """Return the numbers in the format in which operations are done."""
        return a.planes[0]

    @classmethod
    def computed(cls, function: Callable[..., object], *arrays: Self, **how: object) -> Self:
        """Apply a function of NumPy to arrays of the kind."""
        return cls.lift(function(*map(cls.wide, arrays), **how))

    _add, _mul, _div = (
        _make_float_primitive(np.add),
        _make_float_primitive(np.multiply),
        _make_float_primitive(np.divide),
    )
    _maximum, _matmul = _make_float_primitive(np.maximum), _make_float_primitive(np.matmul)
    _sum, _max = _make_float_reduction(np.sum), _make_float_reduction(np.max)
    _less, _equal, _forbidden, _undefined = (
        _make_boolean_primitive(np.less),
        _make_boolean_primitive(np.equal),
        _make_boolean_primitive(np.isneginf),
        _make_boolean_primitive(np.isnan),
    )

    @classmethod
    def _unary(cls, name: str, a: Self) -> Self:
        return cls.computed(lambda x: of_floats(name, x), a)


Float64.xp = Namespace(Float64)


class Stored(Float64):
    """Arrays of a storage format. NaN and overflow behave as in any floating-point arithmetic."""

    holds = "numbers of this format"

    @classmethod
    def lift(cls, data: object) -> Self:
        wide = numbers(cls.name, data)
        return cls(odd(wide).astype(cls.dtype))

    @classmethod
    def literal(cls, value: object) -> Self:
        plain = np.asarray(value)
        # Some formats of 8 bits turn −∞ into NaN or the largest number, silently.
        has_infinity = np.isneginf(plain.astype(np.float64)).any()
        if has_infinity and not np.isneginf(np.asarray(-np.inf).astype(cls.dtype)):
            raise Refused(f"{cls.name} has no infinity to write a mask with")
        return cls(plain.astype(cls.dtype))

    def numpy(self) -> np.ndarray:
        """Return the NumPy array of ml_dtypes' type."""
        return self.planes[0]

    def __repr__(self) -> str:
        return f"{self.name}({self.planes[0].astype(np.float64)!r})"

    @classmethod
    def wide(cls, a: Self) -> np.ndarray:
        return a.planes[0].astype(np.float32)

    @classmethod
    def computed(cls, function: Callable[..., object], *arrays: Self, **how: object) -> Self:
        """Apply a function of NumPy in float32, and round its result once."""
        widened = map(cls.wide, arrays)
        return cls(np.asarray(function(*widened, **how)).astype(cls.dtype))

    @classmethod
    def _unary(cls, name: str, a: Self) -> Self:
        function = getattr(np, name, None)
        if function is None:
            raise Refused(f"{cls.name} lacks {name}")
        return cls.computed(function, a)

    @classmethod
    def _max(cls, a: Self, axis: int) -> Self:
        return cls.computed(np.max, a, axis=axis)


@cache
def stored(name: str) -> type[Stored]:
    """Return the kind of arrays in the format ``name``, which NumPy lacks."""
    fields = {"name": name, "dtype": np.dtype(getattr(ml_dtypes, name))}
    result: type[Stored] = type(name, (Stored,), fields)
    result.xp = RoundedStore(result)
    return result


class RoundedStore(Namespace):
    """The namespace of a stored format: composed functions are rounded once, too."""

    kind: type[Stored]

    def isdtype(self, dtype: Any, kind: Any) -> bool:
        """Return NumPy's answer, with the format, which it does not know, as a real floating type."""
        own = np.dtype(np.float32) if dtype == self.kind.dtype else dtype
        return bool(np.isdtype(own, kind))

    def astype(self, a: Any, dtype: Any, **how: Any) -> Any:
        """Cast as elsewhere; plain numbers cast to the kind's own dtype become an array of it, which may hold −inf."""
        fresh = dtype == self.kind.dtype and not isinstance(a, ArrayBase)
        return self.kind.literal(a) if fresh else a.astype(dtype, **how)


def _make_function_rounded_once(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def run(self: RoundedStore, *args: object, **how: object) -> Any:
        wide = [self.kind.wide(self.kind.of(a)) if isinstance(a, ArrayBase) else a for a in args]
        # Computed in a wider format and rounded once.
        result = np.asarray(function(*wide, **how))
        return (
            result
            if result.dtype.kind == "b"
            else self.kind(result.astype(np.float32).astype(self.kind.dtype))
        )

    return offered(name, run, getattr(Namespace, name).__wrapped__)


for _name in (
    *("exp2", "log2", "expm1", "log1p", "pow", "isinf"),
    *("sum", "prod", "mean", "var", "std", "cumulative_sum", "cumsum", "vecdot", "einsum"),
):
    setattr(RoundedStore, _name, _make_function_rounded_once(_name))
