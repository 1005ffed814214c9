"""``dual``: an element with its derivative along one direction, over any kind of elements. Forward differentiation.

(x, x′) + (y, y′) = (x + y, x′ + y′), (x, x′)(y, y′) = (x y, x y′ + x′ y), f(x, x′) = (f(x), f′(x) x′). The derivative
of a maximum is that of the larger element. Of equal ones it is not unique: ``max`` takes that of the first, since
softmax does not depend on it, ``maximum`` raises Undecided (ReLU at 0).
Source: W. K. Clifford (1873) for the numbers; A. Griewank, A. Walther, Evaluating Derivatives (2008), §3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np

from symattn.arrays.functions import FUNCTIONS
from symattn.arrays.namespace import Namespace
from symattn.arrays.planes import Planes
from symattn.document.errors import Refused, Undecided
from symattn.document.model import Text


class Dual(Planes):
    """Arrays of values and derivatives: two planes of the elements of ``base``, a kind with one plane."""

    holds = "values, with ε before their derivatives"
    base: ClassVar[type[Planes]]

    @property
    def value(self) -> Planes:
        return self.base(self.planes[0])

    @property
    def derivative(self) -> Planes:
        return self.base(self.planes[1])

    def told(self) -> Callable[[tuple[int, ...]], Text]:
        value, derivative = self.value.told(), self.derivative.told()
        return lambda at: (*value(at), " + ε · ", *derivative(at))

    @classmethod
    def made(cls, value: Planes, derivative: Planes) -> Self:
        """An array with this value and derivative, which are broadcast to one shape."""
        a, b = np.broadcast_arrays(value.planes[0], derivative.planes[0])
        return cls(a.copy(), b.copy())

    @classmethod
    def lift(cls, data: Any) -> Self:
        value = cls.base.of(data)
        return cls.made(value, cls.base.lift(0))

    @classmethod
    def literal(cls, value: object) -> Self:
        return cls.made(cls.base.literal(value), cls.base.lift(0))

    @classmethod
    def _add(cls, a: Self, b: Self) -> Self:
        return cls.made(a.value + b.value, a.derivative + b.derivative)

    @classmethod
    def _mul(cls, a: Self, b: Self) -> Self:
        x, y = a._finite(), b._finite()
        return cls.made(a.value * b.value, x * b.derivative + a.derivative * y)

    @classmethod
    def _div(cls, a: Self, b: Self) -> Self:
        quotient = a.value / b.value
        finite = cls.made(quotient, cls.base.lift(0))._finite()
        return cls.made(quotient, (a.derivative - finite * b.derivative) / b.value)

    def _finite(self) -> Any:
        """The values, with 0 where −∞ stands: a forbidden score has no derivative."""
        forbidden = self.base._forbidden(self.value)
        return self.base.xp.where(forbidden, 0, self.value) if np.any(forbidden) else self.value

    @classmethod
    def _unary(cls, name: str, a: Self) -> Self:
        f = cls.base._unary(name, a.value)
        x = a._finite()
        if name not in FUNCTIONS:
            raise Refused(f"{cls.name} lacks {name}")
        flat = bool(np.all(a.planes[1] == 0))  # a constant has no slope even where the function has none
        return cls.made(f, a.derivative if flat else FUNCTIONS[name].slope(cls.base.xp, x, f) * a.derivative)

    @classmethod
    def _sum(cls, a: Self, axis: int) -> Self:
        return cls.made(cls.base._sum(a.value, axis), cls.base._sum(a.derivative, axis))

    @classmethod
    def _matmul(cls, a: Self, b: Self) -> Self:
        x, y = a.value, b.value
        return cls.made(x @ y, x @ b.derivative + a.derivative @ y)

    @classmethod
    def _max(cls, a: Self, axis: int) -> Self:
        rows = [cls(*[np.take(p, [i], axis=axis) for p in a.planes]) for i in range(a.plain_shape[axis])]
        best = rows[0]
        for row in rows[1:]:
            best = cls._chosen(best, row, cls.base._less(best.value, row.value))
        return best.map(lambda plane: np.squeeze(plane, axis=axis))

    @classmethod
    def _maximum(cls, a: Self, b: Self) -> Self:
        second = cls.base._less(a.value, b.value)
        tied = ~(second | cls.base._less(b.value, a.value) | cls._forbidden(a) & cls._forbidden(b))
        if np.any(tied & ~cls.base._equal(a.derivative, b.derivative)):
            raise Undecided(f"{cls.name}: a maximum of equals with different slopes has no derivative")
        return cls._chosen(a, b, second)

    @classmethod
    def _chosen(cls, a: Self, b: Self, second: np.ndarray) -> Self:
        """b where ``second``, else a."""
        return cls(*[np.where(second, q, p) for p, q in zip(a.planes, b.planes, strict=True)])

    @classmethod
    def _less(cls, a: Self, b: Self) -> np.ndarray:
        return cls.base._less(a.value, b.value)

    @classmethod
    def _equal(cls, a: Self, b: Self) -> np.ndarray:
        return cls.base._equal(a.value, b.value)

    @classmethod
    def _forbidden(cls, a: Self) -> np.ndarray:
        return cls.base._forbidden(a.value)

    @classmethod
    def _undefined(cls, a: Self) -> np.ndarray:
        return cls.base._undefined(a.value)


@cache
def dual(base: type[Planes]) -> type[Dual]:
    """The kind of dual numbers over ``base``."""
    fields = {"name": f"dual {base.name}", "base": base, "sentinel": base.sentinel}
    result: type[Dual] = type("Dual", (Dual,), fields)
    result.xp = Namespace(result)
    return result
