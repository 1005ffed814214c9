"""Functions that only move elements: NumPy's, applied to every plane and to the numbers of literal arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from symattn.arrays.array import Array
from symattn.arrays.base import ArrayBase
from symattn.arrays.planes import Planes, Typed, _box_scalar_in_array, typed_numbers
from symattn.document.errors import Refused

# NumPy's functions that only move elements, and so apply to each plane alike.
_NUMPY = (
    *(
        "reshape",
        "permute_dims",
        "matrix_transpose",
        "swapaxes",
        "moveaxis",
        "squeeze",
        "expand_dims",
        "broadcast_to",
    ),
    *(
        "concat",
        "stack",
        "split",
        "array_split",
        "flip",
        "roll",
        "repeat",
        "tile",
        "take",
        "take_along_axis",
        "ravel",
    ),
    *("diagonal", "unstack", "vstack", "hstack", "atleast_1d", "atleast_2d", "delete", "append"),
)
# NumPy's older names of functions in the standard.
_ALIASES = {"transpose": "permute_dims", "concatenate": "concat"}


class Structure:
    """``reshape`` to ``stack``."""

    kind: type[Planes]

    def _move_all_planes(
        self, move: Callable[[Callable[[Any], Any]], Any], values: list[Any]
    ) -> Any:
        """Apply ``move`` to the arrays, one plane of each at a time."""
        first = values[0]
        planes = [move(_make_plane_picker(k)) for k in range(len(first.planes))]
        # Literal numbers move along only if every operand has them.
        typed = all(x.origin is not None for x in values)
        return _join_planes_to_arrays(
            self.kind, planes, move(lambda array: array.origin) if typed else None, first
        )


def _has_nested_arrays(x: object) -> bool:
    return isinstance(x, ArrayBase) or (
        isinstance(x, (list, tuple)) and any(map(_has_nested_arrays, x))
    )


def _lift_listed_arguments(kind: type[Planes], x: Any) -> Any:
    """Return the argument ``x`` with plain arrays lifted if they are listed with arrays of the kind."""
    if isinstance(x, ArrayBase) or not _has_nested_arrays(x):
        return kind.of(x) if isinstance(x, ArrayBase) else x
    # Listed plain arrays would otherwise be joined to planes of another meaning.
    return [_lift_listed_arguments(kind, y) if _has_nested_arrays(y) else kind.of(y) for y in x]


def _replace_arrays_by_planes(x: Any, pick: Callable[[Any], Any]) -> Any:
    """Return the argument ``x`` with every array in it replaced by one of its planes."""
    if isinstance(x, ArrayBase):
        return pick(x)
    return [_replace_arrays_by_planes(y, pick) for y in x] if _has_nested_arrays(x) else x


def _make_plane_picker(k: int) -> Callable[[Any], Any]:
    return lambda array: array.planes[k]


def _yield_nested_arrays(x: object) -> Iterator[Any]:
    if isinstance(x, ArrayBase):
        yield x
    elif isinstance(x, (list, tuple)):
        for y in x:
            yield from _yield_nested_arrays(y)


def _join_planes_to_arrays(
    kind: type[Planes], planes: Sequence[Any], numbers: np.ndarray | None, first: Any
) -> Any:
    """Join planes to an array of the kind, or lists of planes to a list of arrays."""
    if isinstance(planes[0], (list, tuple)):
        # Functions such as split return several arrays; without literal numbers each gets None.
        split = numbers if numbers is not None else [None] * len(planes[0])
        return type(planes[0])(
            _join_planes_to_arrays(kind, parts, n, first)
            for *parts, n in zip(*planes, split, strict=True)
        )
    pairs = zip(planes, first.planes, strict=True)
    array = kind(*[_box_scalar_in_array(p, q) for p, q in pairs])
    if numbers is not None:
        array.typed = Typed(_box_scalar_in_array(numbers, first.typed.numbers), first.typed.sound)
    return array


def _make_structural_function(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def run(self: Structure, *args: object, **kwargs: object) -> Any:
        # Plain operands stay NumPy's, as integers for indices must.
        if not _has_nested_arrays([args]):
            return function(*args, **kwargs)
        operands = [_lift_listed_arguments(self.kind, a) for a in args]
        # Every plane moves alike, so that shapes and axes among the arguments are looked through once.
        with_arrays = [k for k, a in enumerate(operands) if _has_nested_arrays(a)]

        def move(pick: Callable[[Any], object]) -> Any:
            arguments = list(operands)
            for k in with_arrays:
                arguments[k] = _replace_arrays_by_planes(operands[k], pick)
            return function(*arguments, **kwargs)

        return self._move_all_planes(move, list(_yield_nested_arrays(operands)))

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"NumPy's ``{name}``, on every plane."
    return run


for _name in _NUMPY:
    setattr(Structure, _name, _make_structural_function(_name))
for _alias, _name in _ALIASES.items():
    setattr(Structure, _alias, getattr(Structure, _name))


# -- creation ----------------------------------------------------------------------------------------------------------
class Creation:
    """``asarray`` to ``triu``. Arrays of typed numbers remember these (``Planes.origin``); booleans and integers are
    plain NumPy arrays."""

    kind: type[Planes]
    inf, nan, pi, e, newaxis = np.inf, np.nan, np.pi, np.e, None
    bool, int64, float32, float64 = np.bool_, np.int64, np.float32, np.float64
    isdtype = staticmethod(np.isdtype)
    arange = staticmethod(np.arange)

    def shape(self, a: Array) -> Any:
        return a.shape

    def ndim(self, a: Array) -> int:
        return len(a.shape)

    def size(self, a: Any, axis: int | None = None) -> int:
        return int(a.size if axis is None else a.shape[axis])

    def asarray(
        self, x: object, dtype: DTypeLike | None = None, copy: object = None, **_: object
    ) -> Any:
        """Return data as an array of the kind. Raises InputError for NaN and infinity; masks are made by ``where``."""
        # Integers and booleans are indices and masks, which are exact as they are.
        if _is_integral_dtype(dtype):
            return x.astype(dtype) if isinstance(x, ArrayBase) else np.asarray(x, dtype)
        array = self.kind.of(x)
        return array.copy() if copy and array is x else array

    def array(self, x: object, dtype: DTypeLike | None = None, **_: object) -> Any:
        """Return data as a new array of the kind."""
        return self.asarray(x, dtype, copy=True)

    def astype(self, a: Any, dtype: DTypeLike, **_: object) -> Any:
        return a.astype(dtype)

    def zeros_like(self, a: Array, dtype: DTypeLike | None = None, **_: object) -> Any:
        return self.full(a.shape, 0, dtype)

    empty_like = zeros_like

    def ones_like(self, a: Array, dtype: DTypeLike | None = None, **_: object) -> Any:
        return self.full(a.shape, 1, dtype)

    def full_like(
        self, a: Array, fill_value: object, dtype: DTypeLike | None = None, **_: object
    ) -> Any:
        return self.full(a.shape, fill_value, dtype)

    def full(
        self, shape: Any, fill_value: object, dtype: DTypeLike | None = None, **_: object
    ) -> Any:
        if _is_integral_dtype(dtype):
            return np.full(shape, fill_value, dtype)
        numbers = typed_numbers(fill_value)
        if numbers is None:
            # A copy, because a broadcast array cannot be assigned to.
            return self.kind.offer("broadcast_to")(self.kind.of(fill_value), shape).copy()
        return self.kind.literal_array(np.full(shape, numbers))

    def tril(self, a: Array, k: int = 0) -> Any:
        visible = np.tri(a.shape[-2], a.shape[-1], k) > 0
        return self._keep_triangle_of_array(np.tril, a, visible, k)

    def triu(self, a: Array, k: int = 0) -> Any:
        above = np.tri(a.shape[-2], a.shape[-1], k - 1)
        visible = above == 0
        return self._keep_triangle_of_array(np.triu, a, visible, k)

    def _keep_triangle_of_array(
        self, function: Callable[..., object], a: object, keep: object, k: int
    ) -> Any:
        if not isinstance(a, ArrayBase):
            return function(a, k)
        # Literal numbers stay literal, so that a −∞ mask by ``triu`` is still read as one.
        if isinstance(a, Planes) and a.origin is not None:
            return self.kind.literal_array(function(a.origin, k))
        return self.kind.offer("where")(keep, a, 0)


def _is_integral_dtype(dtype: DTypeLike | None) -> bool:
    return dtype is not None and np.dtype(dtype).kind in "biu"


def _make_creation_function(name: str) -> Callable[..., Any]:
    # Uninitialised memory has no value that a kind could give.
    function = getattr(np, "zeros" if name == "empty" else name)

    def run(self: Creation, *args: object, dtype: DTypeLike | None = None, **kwargs: object) -> Any:
        if any(isinstance(a, ArrayBase) for a in args):
            raise Refused(f"{self.kind.name}: {name} takes sizes, not arrays")
        plain = function(*args, **kwargs)
        return plain.astype(dtype) if _is_integral_dtype(dtype) else self.kind.literal_array(plain)

    run.__name__ = run.__qualname__ = name
    return run


for _name in ["zeros", "ones", "empty", "eye", "tri"]:
    setattr(Creation, _name, _make_creation_function(_name))
