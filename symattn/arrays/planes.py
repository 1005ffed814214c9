"""Kinds whose sizes are numbers: an array is one or more *planes*, NumPy arrays of one shape.

A kind of object elements has one plane, a kind of midpoints and radii two. Functions that only move elements act on
each plane alike, so views and assignment are NumPy's own: a change through a slice, a transpose or a reshape that is a
view in NumPy changes the array it was taken from.

A kind defines these primitives and nothing else:

    lift(data)                    an array of numbers; refuses NaN and infinity
    literal(value)                the same, but −inf (a mask) is allowed
    _add _mul _div _maximum       elementwise, operands of one kind, broadcasting
    _unary(name, a)               exp, log, sqrt, tanh, …; refuses by name what it lacks
    _sum(a, axis) _max(a, axis)   over one axis
    _less _equal                  elementwise, to boolean NumPy arrays; raise Undecided rather than guess
    _forbidden(a) _undefined(a)   where −∞ and undefined elements are
    _matmul(a, b)                 optional: for arrays with two axes or more
    _negative(a) _subtract(a, b)  optional
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np

from symattn.arrays.base import ArrayBase, apply_ufunc
from symattn.arrays.notes import note
from symattn.document.errors import InputError, Refused
from symattn.document.model import Text


class Typed:
    """The plain numbers of a literal array, shared with its views until a computed value is assigned to one of them."""

    def __init__(self, numbers: np.ndarray, sound: list[bool] | None = None) -> None:
        self.numbers = numbers
        self.sound = [True] if sound is None else sound


class Planes(ArrayBase):
    """An array of a kind with numbered sizes."""

    sentinel: ClassVar[float] = -np.inf  # a plain literal at or below it is read as −∞ in a mask
    typed: Typed | None = None

    def __init__(self, *planes: np.ndarray) -> None:
        if not isinstance(planes[0], np.ndarray):
            raise self.no_planes()
        self.planes = planes

    @classmethod
    def no_planes(cls) -> InputError:
        """Return the error for data passed as planes."""
        return InputError(
            f"{cls.name}: data become an array by lift; hint: symattn.kind({cls.name!r}).lift(data)"
        )

    # -- primitives, see the module's docstring -------------------------------------------------------------------
    lift: Callable[[Any], Self]
    literal: Callable[[Any], Self]
    _add: Callable[[Self, Self], Self]
    _mul: Callable[[Self, Self], Self]
    _div: Callable[[Self, Self], Self]
    _maximum: Callable[[Self, Self], Self]
    _unary: Callable[[str, Self], Self]
    _sum: Callable[[Self, int], Self]
    _max: Callable[[Self, int], Self]
    _less: Callable[[Self, Self], np.ndarray]
    _equal: Callable[[Self, Self], np.ndarray]
    _forbidden: Callable[[Self], np.ndarray]
    _undefined: Callable[[Self], np.ndarray]

    @classmethod
    def _negative(cls, a: Self) -> Self:
        return cls._mul(a, cls.lift(-1))

    @classmethod
    def _subtract(cls, a: Self, b: Self) -> Self:
        return cls._add(a, cls._negative(b))

    @classmethod
    def _matmul(cls, a: Self, b: Self) -> Self:
        # The generic product needs nothing but elementwise products and one sum.
        products = cls._mul(a[..., :, :, None], b[..., None, :, :])
        return cls._sum(products, products.ndim - 2)

    # -- derived --------------------------------------------------------------------------------------------------
    @property
    def plain_shape(self) -> tuple[int, ...]:
        """The shape as plain integers."""
        return self.planes[0].shape

    @property
    def ndim(self) -> int:
        return len(self.plain_shape)

    @property
    def shape(self) -> tuple[Size, ...]:
        return tuple(Size(n, type(self)) for n in self.plain_shape)

    @property
    def size(self) -> int:
        return self.planes[0].size

    @classmethod
    def of(cls, x: object) -> Self:
        """Return an operand as an array of this kind. Raises Refused for another kind, which is not converted."""
        if isinstance(x, cls):
            return x
        if isinstance(x, ArrayBase):
            raise Refused(f"mixed kinds: {cls.name} with {x.name}; convert one of them first")
        return cls.lift(x)

    @classmethod
    def written(cls, x: object) -> Self:
        """Return an operand of a function that can write masks (add, assign, fill): a plain −inf or sentinel is −∞."""
        # Computed arrays hold no literals that could be read as masks.
        if isinstance(x, cls) and x.typed is None:
            return x
        plain = x.origin if isinstance(x, cls) else x
        if plain is None or isinstance(plain, ArrayBase):
            return cls.of(x)
        return cls.literal(plain)

    @classmethod
    def literal_array(cls, plain: object) -> Self:
        """Return an array of numbers that were typed, not computed; see ``origin``."""
        numbers = np.array(plain, dtype=np.float64, order="C")
        # Infinite numbers are allowed in literals only, where they are masks.
        array = cls.lift(numbers) if np.isfinite(numbers).all() else cls.literal(numbers)
        array.typed = Typed(numbers)
        return array

    @property
    def origin(self) -> np.ndarray | None:
        """The plain numbers that the array was made from, if none of its elements was computed."""
        return self.typed.numbers if self.typed and self.typed.sound[0] else None

    def map(self, function: Callable[[np.ndarray], object]) -> Self:
        """Apply ``function``, which moves elements, to every plane; a single element becomes an array again."""
        # NumPy returns an element, not an array, where an index takes all axes.
        planes = [_box_scalar_in_array(function(p), p) for p in self.planes]
        result = type(self)(*planes)
        if self.typed and self.typed.sound[0]:
            result.typed = Typed(
                _box_scalar_in_array(function(self.typed.numbers), self.typed.numbers),
                self.typed.sound,
            )
        return result

    def printer(self) -> Callable[[tuple[int, ...]], Text]:
        from symattn.arrays.shown import element

        return lambda at: (element(self.planes[0][at]),)

    def copy(self, *_: object, **__: object) -> Self:
        return self.map(lambda plane: plane.copy())

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: object) -> Self:
        return self.copy()

    def __getitem__(self, index: Any) -> Self:
        return self.map(lambda plane: plane[index])

    def __setitem__(self, index: Any, value: object) -> None:
        self._put(index, self.written(value))
        # Literal numbers stay sound only while literals are assigned, in all views at once.
        if self.typed:
            plain = typed_numbers(value)
            if plain is None:
                self.typed.sound[0] = False
            else:
                self.typed.numbers[index] = plain

    def _put(self, index: Any, elements: Self) -> None:
        for mine, theirs in zip(self.planes, elements.planes, strict=True):
            # NumPy would store an array without axes in place of an element.
            mine[index] = theirs if theirs.ndim else theirs[()]


def typed_numbers(x: object) -> np.ndarray | None:
    """Return ``x`` as plain floats if it was typed and float64 holds it exactly; None if it was computed."""
    if isinstance(x, ArrayBase):
        return x.origin if isinstance(x, Planes) else None
    plain = np.asarray(x)
    # Larger integers are not all floats.
    small = plain.dtype.kind in "bf"
    if plain.dtype.kind in "iu":
        small = not ((plain > 2**53) | (plain < -(2**53))).any()
    return plain.astype(np.float64) if small and plain.dtype.itemsize <= 8 else None


def _box_scalar_in_array(x: object, plane: np.ndarray) -> np.ndarray:
    if isinstance(x, np.ndarray):
        return x
    box = np.empty((), dtype=plane.dtype)
    box[()] = x
    return box


# -- lengths of axes whose roots and quotients stay exact --------------------------------------------------------------
# NumPy would round these for a size, so the kind computes them.
_EXACT = frozenset(["sqrt", "divide", "true_divide", "power", "log", "exp", "reciprocal"])


class Size(int):
    """An axis length that remembers its kind: ``d**-0.5``, ``1/d`` and ``np.sqrt(d)`` are elements of that kind.

    A power that is exactly a float is a float, since ``q.dtype.type(16**-0.5)`` accepts nothing else. ``*`` and ``//``
    by integers keep the kind. ``-`` does not, since ``np.arange`` divides differences of its arguments. ``float(d)``,
    which ``math.sqrt`` calls, is a plain float, and is noted. ``1.0 / d`` cannot be intercepted.
    """

    _kind: type[Planes]

    def __new__(cls, value: int, kind: type[Planes]) -> Size:
        self = super().__new__(cls, value)
        self._kind = kind
        return self

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)  # a copy is a plain integer

    def _lift_size_to_kind(self) -> Planes:
        return self._kind.lift(int(self))

    def __pow__(self, exponent: Any, modulus: None = None) -> Any:  # type: ignore[override]
        # Whole powers are exact integers.
        if float(exponent) == int(exponent) and exponent >= 0:
            return int(self) ** exponent
        n, twice = int(self), 2 * exponent
        if n > 0 and not twice % 1:  # a float, such as 16^(-1/2), if that is exact
            power = float(n) ** float(exponent)
            # Exact iff the square of the float is the power of the integer.
            if Fraction(power) ** 2 == Fraction(n) ** int(twice):
                return power
        return self._lift_size_to_kind() ** exponent

    def __truediv__(self, other: object) -> Any:
        return self._lift_size_to_kind() / other

    def __rtruediv__(self, other: object) -> Any:
        return self._kind.xp.divide(other, self._lift_size_to_kind())

    def __mul__(self, other: Any) -> Any:
        return self._restore_size_type(int.__mul__(self, other))

    def __rmul__(self, other: Any) -> Any:
        return self._restore_size_type(int.__rmul__(self, other))

    def __floordiv__(self, other: Any) -> Any:
        return self._restore_size_type(int.__floordiv__(self, other))

    def _restore_size_type(self, result: object) -> Any:
        return Size(result, self._kind) if type(result) is int else result

    def __float__(self) -> float:
        note(f"a float was made from the size {int(self)}")
        return float(int(self))

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: object, **kwargs: object
    ) -> Any:
        # kinds that replace tables of angles get these in floats, such as np.arange(0, d, 2) / d
        plain = hasattr(self._kind, "tables") and any(
            isinstance(x, np.ndarray) and x.ndim for x in inputs
        )
        if (ufunc.__name__ in _EXACT and not plain) or any(
            isinstance(x, ArrayBase) for x in inputs
        ):
            lifted = [x._lift_size_to_kind() if isinstance(x, Size) else x for x in inputs]
            return apply_ufunc(self._kind, ufunc, method, lifted, kwargs)
        return getattr(ufunc, method)(
            *[int(x) if isinstance(x, Size) else x for x in inputs], **kwargs
        )
