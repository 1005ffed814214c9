"""``dual``: elements with their derivatives along one direction, over any kind of elements. Forward differentiation.

For several directions at once, derivatives are ``Slopes``, which store those that are not 0.

(x, x′) + (y, y′) = (x + y, x′ + y′), (x, x′)(y, y′) = (x y, x y′ + x′ y), f(x, x′) = (f(x), f′(x) x′). The derivative
of a maximum is that of the larger element. For equal elements it is not unique: ``max`` takes that of the first,
since softmax does not depend on it; ``maximum`` raises Undecided (ReLU at 0).
Source: W. K. Clifford (1873) for the numbers; A. Griewank, A. Walther, Evaluating Derivatives (2008), §3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np

from symattn.arrays.entries import Entries
from symattn.arrays.functions import FUNCTIONS
from symattn.arrays.namespace import Namespace
from symattn.arrays.planes import Planes
from symattn.arrays.special import Forbidden, Undefined
from symattn.document.errors import Refused, Undecided
from symattn.document.model import Text


class Slopes:
    """Σ_k c_k ε_k as {k: c_k}: the derivatives of one element along several directions; plain 0 if all are 0."""

    __slots__ = ("along",)

    def __init__(self, along: dict[int, Any]) -> None:
        self.along = along

    def __add__(self, other: object) -> Any:
        if not isinstance(other, Slopes):
            # Plain 0 stands for derivatives that are 0 along all directions.
            return self if other == 0 else NotImplemented
        total = dict(self.along)
        for k, c in other.along.items():
            total[k] = total[k] + c if k in total else c
        return Slopes(total)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + other * -1

    def __rsub__(self, zero: object) -> Any:
        return self * -1 + zero

    def __mul__(self, x: object) -> Any:
        # These elements multiply by their own rules.
        if isinstance(x, (Forbidden, Undefined)):
            return NotImplemented
        return Slopes({k: c * x for k, c in self.along.items()})

    __rmul__ = __mul__

    def __truediv__(self, x: object) -> Slopes:
        return Slopes({k: c / x for k, c in self.along.items()})

    def __eq__(self, zero: object) -> bool:
        return all(c == zero for c in self.along.values())

    __hash__ = None  # type: ignore[assignment]


def slope(x: object, k: int, zero: object) -> Any:
    """Return the derivative along the k-th direction; anything but ``Slopes`` is the same along all."""
    return x.along.get(k, zero) if isinstance(x, Slopes) else x


class Dual(Planes):
    """Arrays of values and derivatives: two planes, of the kinds ``base`` and ``slopes`` with one plane each."""

    holds = "values, with ε before their derivatives"
    base: ClassVar[type[Planes]]
    slopes: ClassVar[type[Planes]]

    @property
    def value(self) -> Planes:
        return self.base(self.planes[0])

    @property
    def derivative(self) -> Planes:
        return self.slopes(self.planes[1])

    def printer(self) -> Callable[[tuple[int, ...]], Text]:
        value, derivative = self.value.printer(), self.derivative.printer()
        return lambda at: (*value(at), " + ε · ", *derivative(at))

    @classmethod
    def made(cls, value: Planes, derivative: Planes) -> Self:
        """Return an array with this value and derivative, broadcast to a common shape."""
        a, b = np.broadcast_arrays(value.planes[0], derivative.planes[0])
        return cls(a.copy(), b.copy())

    @classmethod
    def lift(cls, data: object) -> Self:
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
        # −∞ times a derivative 0 would be undefined.
        x, y = a._replace_forbidden_values(), b._replace_forbidden_values()
        value = a.value * b.value
        return cls.made(value, x * b.derivative + a.derivative * y)

    @classmethod
    def _div(cls, a: Self, b: Self) -> Self:
        quotient = a.value / b.value
        finite = cls.made(quotient, cls.base.lift(0))._replace_forbidden_values()
        return cls.made(quotient, (a.derivative - finite * b.derivative) / b.value)

    def _replace_forbidden_values(self) -> Any:
        """Return the values, with 0 in place of −∞: a forbidden score has no derivative."""
        forbidden = self.base._forbidden(self.value)
        # The choice is left out where nothing is forbidden, since it copies the array.
        if np.any(forbidden):
            return self.base.xp.where(forbidden, 0, self.value)
        return self.value

    @classmethod
    def _unary(cls, name: str, a: Self) -> Self:
        f = cls.base._unary(name, a.value)
        x = a._replace_forbidden_values()
        if name not in FUNCTIONS:
            raise Refused(f"{cls.name} lacks {name}")
        # constants have slope 0 even where the function has none
        flat = bool(np.all(a.planes[1] == 0))
        return cls.made(
            f, a.derivative if flat else FUNCTIONS[name].slope(cls.base.xp, x, f) * a.derivative
        )

    @classmethod
    def _sum(cls, a: Self, axis: int) -> Self:
        value = cls.base._sum(a.value, axis)
        return cls.made(value, cls.slopes._sum(a.derivative, axis))

    @classmethod
    def _matmul(cls, a: Self, b: Self) -> Self:
        x, y = a.value, b.value
        value = x @ y
        of_second = cls.slopes._matmul(x, b.derivative)
        of_first = cls.slopes._matmul(a.derivative, y)
        return cls.made(value, of_second + of_first)

    @classmethod
    def _max(cls, a: Self, axis: int) -> Self:
        places = range(a.plain_shape[axis])
        rows = [cls(*[np.take(p, [i], axis=axis) for p in a.planes]) for i in places]
        best = rows[0]
        # The first of equals wins, since only a strictly larger row replaces it.
        for row in rows[1:]:
            best = cls._choose_dual_planes(best, row, cls.base._less(best.value, row.value))
        return best.map(lambda plane: np.squeeze(plane, axis=axis))

    @classmethod
    def _maximum(cls, a: Self, b: Self) -> Self:
        second = cls.base._less(a.value, b.value)
        # Two forbidden elements are no tie: the maximum −∞ has no derivative.
        both_forbidden = cls._forbidden(a) & cls._forbidden(b)
        tied = ~(second | cls.base._less(b.value, a.value) | both_forbidden)
        if np.any(tied & ~cls.slopes._equal(a.derivative, b.derivative)):
            raise Undecided(
                f"{cls.name}: a maximum of equals with different slopes has no derivative"
            )
        return cls._choose_dual_planes(a, b, second)

    @classmethod
    def _choose_dual_planes(cls, a: Self, b: Self, second: np.ndarray) -> Self:
        """b where ``second``, else a."""
        planes = zip(a.planes, b.planes, strict=True)
        return cls(*[np.where(second, q, p) for p, q in planes])

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


def _make_kind_of_slopes(base: type[Entries]) -> type[Entries]:
    """Return the kind of ``Slopes`` over ``base``, with generic sums and products: those of ``base`` need numbers."""

    def same(_: type, x: object, y: object) -> bool:
        directions = {k for z in (x, y) if isinstance(z, Slopes) for k in z.along}
        return all(base.same(slope(x, k, zero), slope(y, k, zero)) for k in directions)

    zero = base.scalar(0)
    generic = {name: vars(Entries)[name] for name in ("_sum", "_matmul")}
    return type(base.__name__, (base,), {**generic, "same": classmethod(same)})


@cache
def dual(base: type[Planes], several: bool = False) -> type[Dual]:
    """Return the kind of dual numbers over ``base``, with derivatives along one direction or ``several``."""
    # Several directions at once need arrays of slopes for each element.
    slopes = _make_kind_of_slopes(base) if several and issubclass(base, Entries) else base
    fields = {
        "name": f"dual {base.name}",
        "base": base,
        "slopes": slopes,
        "sentinel": base.sentinel,
    }
    result: type[Dual] = type("Dual", (Dual,), fields)
    result.xp = Namespace(result)
    return result
