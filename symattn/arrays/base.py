"""The parts that all kinds of array share: operators, common properties, and NumPy's dispatch.

Nothing here assumes that sizes are numbers; ``planes`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, ClassVar, NoReturn

import numpy as np

from symattn.arrays.functions import FUNCTIONS
from symattn.arrays.notes import note
from symattn.document.errors import Refused, Undecided
from symattn.document.model import Document, Text
from symattn.document.printable import Shown

# NumPy's names of functions that the namespaces call otherwise.
_UFUNC = {
    "true_divide": "divide",
    "power": "pow",
    "float_power": "pow",
    "absolute": "abs",
    "fabs": "abs",
    "conjugate": "positive",
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "invert": "logical_not",
}
# Reductions by the function that they repeat.
_REDUCE = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}


def apply_ufunc(
    kind: type[ArrayBase],
    ufunc: np.ufunc,
    method: str,
    inputs: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    """Run a NumPy universal function in the kind's own namespace. Raises Refused, by name, if the kind lacks it."""
    name, out = ufunc.__name__, kwargs.pop("out", None)
    if method == "reduce" and name in _REDUCE:
        # NumPy's default of ``reduce`` is the first axis, not all of them.
        kwargs.setdefault("axis", 0)
        result = kind.offer(_REDUCE[name])(inputs[0], **kwargs)
    elif method == "outer":
        left = inputs[0][(..., *(None,) * np.ndim(inputs[1]))]
        result = kind.offer(_UFUNC.get(name, name))(left, inputs[1])
    elif method == "__call__":
        result = kind.offer(_UFUNC.get(name, name))(*inputs, **kwargs)
    else:
        raise Refused(f"{kind.name} lacks {name}.{method}")
    if out is None:
        return result
    target = out[0] if isinstance(out, tuple) else out
    # A NumPy array would round the elements.
    if not isinstance(target, ArrayBase):
        raise Refused(f"{kind.name}: the result of {name} cannot be written into a NumPy array")
    target[...] = result
    return target


def _make_forward_operator(name: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: self.offer(name)(self, other)


def _make_reflected_operator(name: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: self.offer(name)(other, self)


def _in_place(name: str) -> Callable[[Any, Any], Any]:
    def run(self: Any, other: Any) -> Any:
        # In place, so that views of the array change, too.
        self[...] = self.offer(name)(self, other)
        return self

    return run


def _make_array_method(name: str) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: self.offer(name)(self, *args, **kwargs)


class ArrayBase(Shown):
    """An array of some kind. Its namespace ``xp`` holds the functions of the Python array API that the kind offers.

    ``holds`` says in words what its elements are.
    """

    name: ClassVar[str]
    holds: str = "elements"
    xp: ClassVar[Any]
    shape: Any
    dtype: Any = np.dtype(np.float64)  # for code that reads it; creation uses the namespace
    __array_priority__ = 1000
    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def offer(cls, name: str) -> Callable[..., Any]:
        """Return the function ``name`` of the kind's namespace. Raises Refused if the kind lacks it."""
        function = getattr(cls.xp, name, None)
        if function is None:
            raise Refused(f"{cls.name} lacks {name}")
        return function  # type: ignore[no-any-return]

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return self.xp

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: object, **kwargs: object
    ) -> Any:
        return apply_ufunc(type(self), ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: object, args: Any, kwargs: Any) -> Any:
        return self.offer(function.__name__)(*args, **kwargs)

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise Refused(f"{self.name}: NumPy requested a plain array, which would round the elements")

    def __float__(self) -> float:
        raise Refused(f"{self.name}: float() would round an element")

    def __bool__(self) -> bool:
        raise Undecided(
            f"{self.name}: an array has no truth value; compare it, then use all() or any()"
        )

    __add__, __radd__, __iadd__ = (
        _make_forward_operator("add"),
        _make_reflected_operator("add"),
        _in_place("add"),
    )
    __sub__, __rsub__, __isub__ = (
        _make_forward_operator("subtract"),
        _make_reflected_operator("subtract"),
        _in_place("subtract"),
    )
    __mul__, __rmul__, __imul__ = (
        _make_forward_operator("multiply"),
        _make_reflected_operator("multiply"),
        _in_place("multiply"),
    )
    __truediv__, __rtruediv__, __itruediv__ = (
        _make_forward_operator("divide"),
        _make_reflected_operator("divide"),
        _in_place("divide"),
    )
    __matmul__, __rmatmul__, __imatmul__ = (
        _make_forward_operator("matmul"),
        _make_reflected_operator("matmul"),
        _in_place("matmul"),
    )
    __pow__, __rpow__, __ipow__ = (
        _make_forward_operator("pow"),
        _make_reflected_operator("pow"),
        _in_place("pow"),
    )
    __mod__, __rmod__, __imod__ = (
        _make_forward_operator("remainder"),
        _make_reflected_operator("remainder"),
        _in_place("remainder"),
    )
    __floordiv__, __rfloordiv__ = (
        _make_forward_operator("floor_divide"),
        _make_reflected_operator("floor_divide"),
    )
    __lt__, __le__, __gt__, __ge__ = map(
        _make_forward_operator, ("less", "less_equal", "greater", "greater_equal")
    )
    __eq__, __ne__ = _make_forward_operator("equal"), _make_forward_operator("not_equal")
    __neg__, __pos__, __abs__ = (
        _make_array_method("negative"),
        _make_array_method("positive"),
        _make_array_method("abs"),
    )

    sum, prod, mean, var, std = map(_make_array_method, ("sum", "prod", "mean", "var", "std"))
    max, min, any, all, argmax, argmin = map(
        _make_array_method, ("max", "min", "any", "all", "argmax", "argmin")
    )
    cumsum, squeeze, swapaxes, repeat = map(
        _make_array_method, ("cumulative_sum", "squeeze", "swapaxes", "repeat")
    )
    ravel, dot = map(_make_array_method, ("ravel", "dot"))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def mT(self) -> Any:
        return self.xp.matrix_transpose(self)

    @property
    def T(self) -> Any:
        return self.transpose()

    def transpose(self, *axes: object) -> Any:
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        return self.xp.permute_dims(self, tuple(order) or tuple(range(self.ndim))[::-1])

    def reshape(self, *shape: object, **_: object) -> Any:
        listed = len(shape) == 1 and isinstance(shape[0], (tuple, list))
        return self.xp.reshape(self, shape[0] if listed else shape)

    def flatten(self, *_: object) -> Any:
        return self.xp.ravel(self).copy()

    def astype(self, dtype: Any, copy: bool = True, **_: object) -> Any:
        """Return the same elements, and note that they were not cast; as booleans, return where they are not zero."""
        target = np.dtype(dtype).kind
        if target == "b":
            return self != 0
        if target in "iu":
            raise Refused(f"{self.name}: astype({np.dtype(dtype)}) would round the elements")
        # Floats of any width stay exact elements, which is reported as a reading of the code.
        note(f"astype({getattr(dtype, '__name__', dtype)}) kept {self.name}")
        return self.copy() if copy else self

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of an array without axes")
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def document(self) -> Document:
        """Return a sentence on the array and a small table of its elements, which notebooks show."""
        from symattn.arrays.shown import document

        return document(self)

    def printer(self) -> Callable[[tuple[int, ...]], Text] | None:
        """Return the function from an index to the element as text; None if elements cannot be printed."""
        return None

    def copy(self) -> Any:
        """Return a new array with the same elements."""
        raise NotImplementedError

    def __getitem__(self, index: object) -> Any:
        raise NotImplementedError

    def __setitem__(self, index: object, value: object) -> None:
        raise NotImplementedError


# -- calls of functions of the namespace -------------------------------------------------------------------------------
# Keywords that do not change the result, only how NumPy computes it. ``dtype`` is noted, the others are ignored.
_IGNORED = frozenset(
    ["dtype", "casting", "copy", "device", "kind", "like", "optimize", "order", "stable", "subok"]
)

# NumPy would round these, so the kind computes them even for plain operands, such as logarithms of positions.
_INEXACT = frozenset([*FUNCTIONS, "exp2", "log2", "reciprocal", "divide", "pow", "mean"])


def any_array(operands: tuple[object, ...]) -> bool:
    """Return whether there is an array of some kind among the operands."""
    # no frame per operand, as this runs before every operation
    return any(map(ArrayBase.__instancecheck__, operands))


def offered(
    name: str, function: Callable[..., object], like: Callable[..., object] | None = None
) -> Callable[..., Any]:
    """Return ``function`` for a namespace. It refuses keywords that it (or ``like``) lacks, such as ``where``."""
    code = (like or function).__code__
    known = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])

    @wraps(function)
    def run(self: Any, *operands: Any, **keywords: Any) -> Any:
        # Two tests, since most calls have an array as the first operand.
        if not (operands and isinstance(operands[0], ArrayBase)) and not any_array(operands):
            # Plain numbers stay plain, so that sizes and indices can be computed from them.
            if name not in _INEXACT:
                return getattr(np, name)(*operands, **keywords)
            operands = (self.kind.of(operands[0]), *operands[1:])
        # Most calls have no unknown keyword.
        for key in () if known.issuperset(keywords) else keywords.keys() - known:
            value = keywords.pop(key)
            if value is not None and key not in _IGNORED:
                raise Refused(f"{self.kind.name}: {name}({key}=…) is not offered")
            if value is not None and key == "dtype":
                note(f"{name}(dtype={getattr(value, '__name__', value)}) kept {self.kind.name}")
        return function(self, *operands, **keywords)

    return run


def offer_all(chapter: type) -> None:
    """Replace every public function of a chapter of the namespace by its ``offered`` form."""
    for name, function in list(vars(chapter).items()):
        if callable(function) and not name.startswith("_"):
            setattr(chapter, name, offered(name, function))
