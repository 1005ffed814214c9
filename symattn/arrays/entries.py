"""Kinds whose elements are Python objects that know + − × ÷: one plane of objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from symattn.arrays.notes import note
from symattn.arrays.planes import Planes
from symattn.arrays.special import FORBIDDEN, Forbidden, Undefined
from symattn.document.errors import InputError, Refused, Undecided


class Entries(Planes):
    """A kind of object elements. It defines ``scalar`` and ``function``, and ``divide less same`` if they are not
    Python's; −∞ and undefined elements are handled here."""

    def __init__(self, *planes: np.ndarray) -> None:
        if not isinstance(planes[0], np.ndarray) or planes[0].dtype.kind != "O":
            raise self.no_planes()
        self.planes = planes

    #: A number as an element: ``int``, ``Fraction``, ``float`` at its dyadic value, or an element as it is.
    scalar: Callable[[Any], Any]
    #: ``exp``, ``log``, … of an element, or ``Refused``.
    function: Callable[[str, Any], Any]

    @classmethod
    def less(cls, x: Any, y: Any) -> bool:
        """Return whether x < y. Raises Undecided."""
        return bool(x < y)

    @classmethod
    def same(cls, x: object, y: object) -> bool:
        """Return whether x = y. Raises Undecided."""
        return bool(x == y)

    @classmethod
    def divide(cls, x: Any, y: Any) -> Any:
        """Return x / y. Raises ZeroDivisionError if y is zero."""
        return x / y

    @classmethod
    def larger(cls, x: object, y: object) -> Any:
        """Return the larger of two elements."""
        return y if cls.less(x, y) else x

    @property
    def entries(self) -> np.ndarray:
        """The elements, as a NumPy array of objects."""
        return self.planes[0]

    def tolist(self) -> Any:
        """Return the elements as nested lists."""
        return self.planes[0].tolist()

    def item(self) -> Any:
        """Return the only element."""
        return self.planes[0].item()

    def __repr__(self) -> str:
        return f"{self.name}({np.array2string(self.planes[0], separator=', ', formatter={'all': str})})"

    @classmethod
    def each(cls, function: Callable[..., object], *arrays: Self) -> np.ndarray:
        """Apply ``function`` to the elements, and return an array of objects."""
        entrywise = np.frompyfunc(function, len(arrays), 1)
        result = entrywise(*[a.planes[0] for a in arrays])
        return _as_object_array(result)

    @classmethod
    def lift(cls, data: object) -> Self:
        return cls._convert_each_entry(data, cls._convert_finite_entry)

    @classmethod
    def literal(cls, value: object) -> Self:
        return cls._convert_each_entry(value, cls._convert_typed_literal)

    @classmethod
    def _convert_typed_literal(cls, value: object) -> Any:
        # Booleans are masks, and values other than plain numbers are meant as they are.
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not value <= cls.sentinel
        ):
            return cls._convert_finite_entry(value)
        if np.isfinite(value):
            note(f"the literal {value!r} was read as -inf")
        return FORBIDDEN

    @classmethod
    def _convert_each_entry(cls, data: object, convert: Callable[[Any], object]) -> Self:
        # Plain integers are the most frequent constants.
        if data.__class__ is int:
            return cls(_as_object_array(convert(data)))
        source = _as_object_array(data)
        numbers = source.ravel().tolist()
        if (isinstance(data, np.ndarray) and data.dtype.kind in "biuf") or set(
            map(type, numbers)
        ) == {int}:
            # Few different numbers fill most arrays, so each is converted once.
            once = {x: convert(x) for x in set(numbers)}
            shared = np.fromiter((once[x] for x in numbers), object, len(numbers))
            return cls(shared.reshape(source.shape))
        return cls(_as_object_array(np.frompyfunc(convert, 1, 1)(source)))

    @classmethod
    def _convert_finite_entry(cls, value: object) -> Any:
        if isinstance(value, (Forbidden, Undefined)):
            return value
        if isinstance(value, (float, np.floating)) and not np.isfinite(value):
            raise InputError(
                f"{cls.name}: {value} in the data; only a mask may hold -inf, and nothing may hold NaN"
            )
        return cls.scalar(value)

    @classmethod
    def _add(cls, a: Self, b: Self) -> Self:
        return cls(_as_object_array(np.add(a.planes[0], b.planes[0])))

    @classmethod
    def _mul(cls, a: Self, b: Self) -> Self:
        return cls(_as_object_array(np.multiply(a.planes[0], b.planes[0])))

    @classmethod
    def _div(cls, a: Self, b: Self) -> Self:
        quotients = cls.each(cls._divide_two_entries, a, b)
        # The place of a 0/0 is noted when it arises, and stays in all that is computed from it.
        for index in np.argwhere(_of_type(Undefined, quotients)).tolist():
            if " at " not in (why := quotients[*index].why):
                quotients[*index] = Undefined(f"{why} at {index}")
        return cls(quotients)

    @classmethod
    def _divide_two_entries(cls, x: Any, y: Any) -> Any:
        # These objects have quotients of their own, with their reasons.
        if isinstance(x, (Forbidden, Undefined)) or isinstance(y, (Forbidden, Undefined)):
            return x / y
        try:
            return cls.divide(x, y)
        except ZeroDivisionError:
            return Undefined(f"{x}/0")

    @classmethod
    def _sum(cls, a: Self, axis: int) -> Self:
        if cls._forbidden(a).any():
            raise Refused(f"{cls.name}: a sum over -inf (masked scores are only exponentiated)")
        # NumPy's empty sum of objects would be the integer 0.
        if not a.plain_shape[axis]:
            return cls.lift(np.zeros(np.delete(a.plain_shape, axis)))
        return cls(_as_object_array(np.add.reduce(a.entries, axis=axis)))

    @classmethod
    def _max(cls, a: Self, axis: int) -> Self:
        # The only element is the maximum, without a comparison that might be undecided.
        if a.plain_shape[axis] == 1:
            return cls(_as_object_array(a.entries.take(0, axis)))
        return cls(
            _as_object_array(
                np.frompyfunc(cls._larger_of_two_entries, 2, 1).reduce(a.entries, axis=axis)
            )
        )

    @classmethod
    def _maximum(cls, a: Self, b: Self) -> Self:
        return cls(cls.each(cls._larger_of_two_entries, a, b))

    @classmethod
    def _larger_of_two_entries(cls, x: object, y: object) -> Any:
        # An undefined operand makes the maximum undefined; −∞ is below everything else.
        if isinstance(x, Undefined) or isinstance(y, Forbidden):
            return x
        if isinstance(x, Forbidden) or isinstance(y, Undefined):
            return y
        return cls.larger(x, y)

    @classmethod
    def _unary(cls, name: str, a: Self) -> Self:
        def run(x: object) -> Any:
            if isinstance(x, Undefined):
                return x
            # e^−∞ = 0; other functions of −∞ have no value.
            if isinstance(x, Forbidden):
                if name != "exp":
                    raise Refused(f"{cls.name}: {name}(-inf)")
                return cls.scalar(0)
            return cls.function(name, x)

        return cls(cls.each(run, a))

    @classmethod
    def _less(cls, a: Self, b: Self) -> np.ndarray:
        def run(x: object, y: object) -> bool:
            for z in (x, y):
                if isinstance(z, Undefined):
                    raise Undecided(f"{cls.name}: an order with {z!r}")
            # Nothing is less than −∞, and −∞ is less than everything else.
            if isinstance(y, Forbidden):
                return False
            return isinstance(x, Forbidden) or cls.less(x, y)

        return cls.each(run, a, b).astype(bool)

    @classmethod
    def _equal(cls, a: Self, b: Self) -> np.ndarray:
        def run(x: object, y: object) -> bool:
            if isinstance(x, (Forbidden, Undefined)) or isinstance(y, (Forbidden, Undefined)):
                # 0/0 equals nothing; −∞ equals itself.
                return isinstance(x, Forbidden) and isinstance(y, Forbidden)
            return cls.same(x, y)

        return cls.each(run, a, b).astype(bool)

    @classmethod
    def _forbidden(cls, a: Self) -> np.ndarray:
        return _of_type(Forbidden, a.entries)

    @classmethod
    def _undefined(cls, a: Self) -> np.ndarray:
        return _of_type(Undefined, a.entries)

    @classmethod
    def _matmul(cls, a: Self, b: Self) -> Self:
        # One inner index needs no sum.
        if a.plain_shape[-1] == 1:
            return cls._mul(a, b)
        if not a.plain_shape[-1]:
            batch = np.broadcast_shapes(a.plain_shape[:-2], b.plain_shape[:-2])
            shape = (*batch, a.plain_shape[-2], b.plain_shape[-1])
            return cls.lift(np.zeros(shape))
        # Not np.matmul: with stacks of objects it goes on after an exception, which is then lost in a SystemError.
        products = np.multiply(a.entries[..., None], b.entries[..., None, :, :])
        return cls(np.add.reduce(products, axis=-2))


def _of_type(kind: type, entries: np.ndarray) -> np.ndarray:
    """Return which elements are of this type; usually none are."""
    elements = entries.ravel().tolist()
    if kind not in set(map(type, elements)):
        return np.zeros(entries.shape, dtype=bool)
    of_kind = [type(x) is kind for x in elements]
    return np.array(of_kind).reshape(entries.shape)


def _as_object_array(x: object) -> np.ndarray:
    """Return ``x`` as an array of objects; nested lists become axes, a single element an array without axes."""
    if isinstance(x, np.ndarray) and x.dtype.kind == "O":
        return x
    if isinstance(x, Entries):
        return x.entries
    if isinstance(x, np.ndarray | np.generic):
        # Complex and extended types have no exact value here.
        if (
            x.dtype.kind not in "biuf" and not x.dtype.name.startswith(("bfloat", "float8"))
        ) or x.dtype.itemsize > 8:
            raise InputError(f"data of type {x.dtype} cannot be taken exactly")
        if np.ma.is_masked(x):
            raise InputError("masked entries cannot be taken exactly")
        numbers = x if x.dtype.kind in "biuf" else x.astype(np.float64)
        return np.asarray(numbers).astype(object)
    if isinstance(x, (list, tuple)):
        return _join_nested_rows(x)
    box = np.empty((), dtype=object)
    box[()] = x
    return box


def _join_nested_rows(rows: list[Any] | tuple[object, ...]) -> np.ndarray:
    # Rows of plain integers need no recursion.
    if {int}.issuperset(map(type, rows)):
        return np.fromiter(rows, object, len(rows))
    parts = [_as_object_array(row) for row in rows]
    if len({p.shape for p in parts}) > 1:
        raise InputError(f"ragged data: rows of shapes {sorted({p.shape for p in parts})}")
    part_shape = parts[0].shape if parts else ()
    out = np.empty((len(parts), *part_shape), dtype=object)
    for i, part in enumerate(parts):
        # NumPy would store an array without axes instead of its element.
        out[i] = part if part.ndim else part.item()
    return out
