"""NumPy's floats as a kind with planes, for kinds made over others (``dual(Float64)``) and for stored formats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from symattn.arrays.functions import of_floats
from symattn.arrays.namespace import Namespace
from symattn.arrays.planes import Planes


def _primitive(function: Callable[..., object]) -> Any:
    """Return a function of NumPy's as a primitive of the kind."""
    return classmethod(lambda cls, *arrays: cls.computed(function, *arrays))


def _reduction(function: Callable[..., object]) -> Any:
    return classmethod(lambda cls, a, axis: cls.computed(function, a, axis=axis))


def _plain(function: Callable[..., object]) -> Any:
    """Return one that gives booleans of NumPy's."""
    return classmethod(lambda cls, *arrays: function(*map(cls.wide, arrays)))


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
    def computed(cls, function: Callable[..., object], *arrays: Self, **how: object) -> Self:
        """A function of NumPy's, on arrays of the kind."""
        return cls.lift(function(*map(cls.wide, arrays), **how))

    _add, _mul, _div = _primitive(np.add), _primitive(np.multiply), _primitive(np.divide)
    _maximum, _matmul = _primitive(np.maximum), _primitive(np.matmul)
    _sum, _max = _reduction(np.sum), _reduction(np.max)
    _less, _equal, _forbidden, _undefined = _plain(np.less), _plain(np.equal), _plain(np.isneginf), _plain(np.isnan)

    @classmethod
    def _unary(cls, name: str, a: Self) -> Self:
        return cls.computed(lambda x: of_floats(name, x), a)


Float64.xp = Namespace(Float64)
