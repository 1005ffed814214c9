"""Lengths of axes whose roots and quotients stay exact."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.arrays.notes import note

if TYPE_CHECKING:
    from symattn.arrays.planes import Planes

_EXACT = frozenset(["sqrt", "divide", "true_divide", "power", "log", "exp", "reciprocal"])


def _float_root(n: int, exponent: Any) -> float | None:
    """n to a multiple of 1/2 where a float is exactly that: 16^(-1/2)."""
    if n <= 0 or (2 * exponent) % 1:
        return None
    power = float(n) ** float(exponent)
    return power if Fraction(power) ** 2 == Fraction(n) ** int(2 * exponent) else None


class Size(int):
    """An axis length that remembers its kind: ``d**-0.5``, ``1/d`` and ``np.sqrt(d)`` are elements of that kind.

    A power that a float has exactly is a float, since ``q.dtype.type(16**-0.5)`` takes nothing else.
    ``*`` and ``//`` by integers keep the kind. ``-`` does not, since ``np.arange`` divides differences of its
    arguments. ``float(d)``, which ``math.sqrt`` calls, is a plain float, and is noted. ``1.0 / d`` cannot be caught.
    """

    _kind: type[Planes]

    def __new__(cls, value: int, kind: type[Planes]) -> Size:
        self = super().__new__(cls, value)
        self._kind = kind
        return self

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)  # a copy is a plain integer

    def _lifted(self) -> Planes:
        return self._kind.lift(int(self))

    def __pow__(self, exponent: Any, modulus: None = None) -> Any:  # type: ignore[override]
        if float(exponent) == int(exponent) and exponent >= 0:
            return int(self) ** exponent
        return _float_root(int(self), exponent) or self._lifted() ** exponent

    def __truediv__(self, other: object) -> Any:
        return self._lifted() / other

    def __rtruediv__(self, other: object) -> Any:
        return self._kind.xp.divide(other, self._lifted())

    def __mul__(self, other: Any) -> Any:
        return self._again(int.__mul__(self, other))

    def __rmul__(self, other: Any) -> Any:
        return self._again(int.__rmul__(self, other))

    def __floordiv__(self, other: Any) -> Any:
        return self._again(int.__floordiv__(self, other))

    def _again(self, result: object) -> Any:
        return Size(result, self._kind) if type(result) is int else result

    def __float__(self) -> float:
        note(f"a float was made from the size {int(self)}")
        return float(int(self))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **kwargs: object) -> Any:
        from symattn.arrays.base import ArrayBase, apply_ufunc

        # where tables of angles are read as what they stand for, such as np.arange(0, d, 2) / d makes them, in floats
        plain = hasattr(self._kind, "tables") and any(isinstance(x, np.ndarray) and x.ndim for x in inputs)
        if (ufunc.__name__ in _EXACT and not plain) or any(isinstance(x, ArrayBase) for x in inputs):
            lifted = [x._lifted() if isinstance(x, Size) else x for x in inputs]
            return apply_ufunc(self._kind, ufunc, method, lifted, kwargs)
        return getattr(ufunc, method)(*[int(x) if isinstance(x, Size) else x for x in inputs], **kwargs)
