"""``tape``: an array that remembers what it was computed from, over arrays of any kind. Reverse differentiation.

Every operation is that of the kind below, on its arrays as they are, and puts down how a gradient of the result is
pulled back to the operands. One run and one way back give the gradients by all inputs, whatever their sizes; ``dual``
runs once for each direction and checks it. What is constant where it is differentiable (comparisons, orders) is plain.

    x = tape(namespace).variable(array)
    y = f(x)
    (dx,) = pull_back([(y, dy)], [x])

Source: S. Linnainmaa (1970); A. Griewank, A. Walther, Evaluating Derivatives (2008), §3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, ClassVar, Literal, Self

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.base import ArrayBase
from symattn.arrays.size import Size
from symattn.arrays.vjp_rules import to_shape
from symattn.document.errors import Refused
from symattn.document.model import Text

Pull = Callable[[Any], Any]
Ties = Literal["refuse", "second"]


class Taped(ArrayBase):
    """A ``value`` of the kind below, and its ``sources``: each an operand with the pull of gradients back to it."""

    holds = "values that know what they were computed from"
    under: ClassVar[Any]  # the namespace of the values
    base: ClassVar[Any]  # their kind; None for NumPy's arrays
    ties: ClassVar[Ties]

    def __init__(self, value: Any, sources: Sequence[tuple[Taped, Pull]] = (), moves: bool = False) -> None:
        self.value = value
        self.sources = tuple((x, pull) for x, pull in sources if x.moves)
        self.moves: bool = moves or bool(self.sources)

    @classmethod
    def variable(cls, value: Array) -> Self:
        """An array that gradients are wanted by."""
        return cls(value, moves=True)

    @classmethod
    def lift(cls, data: object) -> Self:
        """A constant."""
        return cls(cls.under.asarray(data))

    @classmethod
    def of(cls, x: object) -> Self:
        """An operand as an array of this kind, a constant if it was none."""
        return x if isinstance(x, cls) else cls.lift(x)

    @classmethod
    def result(cls, x: object) -> Any:
        """Return the result of a function of the kind below as a constant; booleans, integers and words as they are."""
        if isinstance(x, (list, tuple)):
            return type(x)(map(cls.result, x))
        floats = cls.under is np and isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind not in "biuO"
        return cls(x) if floats or isinstance(x, ArrayBase) else x

    @classmethod
    def _matmul(cls, a: Taped, b: Taped) -> Self:
        xp, x, y = cls.under, a.value, b.value
        left = (a, lambda g: to_shape(xp, xp.matmul(g, y.mT), x.shape))
        return cls(xp.matmul(x, y), [left, (b, lambda g: to_shape(xp, xp.matmul(x.mT, g), y.shape))])

    def told(self) -> Callable[[tuple[int, ...]], Text] | None:
        from symattn.arrays.shown import teller

        return teller(self.value)

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(Size(n, type(self)) for n in self.plain_shape)  # type: ignore[arg-type]

    @property
    def plain_shape(self) -> tuple[int, ...]:
        """The shape as plain integers."""
        return tuple(map(int, self.value.shape))

    @property
    def size(self) -> int:
        return int(np.prod(self.plain_shape, dtype=int))

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    def __repr__(self) -> str:
        return f"{self.name}({self.value!r})"

    def copy(self, *_: object, **__: object) -> Self:
        return self

    def astype(self, dtype: object, copy: bool = True, **_: object) -> Any:
        return self.xp.astype(self, dtype)

    def __getitem__(self, index: object) -> Any:
        return self.xp.moved(self, lambda x: x[index])

    def __setitem__(self, index: object, value: object) -> None:
        raise Refused(f"{self.name}: no assignment: the way back needs the old elements; hint: where, concat or stack")


@cache
def tape(under: object, ties: Ties = "refuse") -> type[Taped]:
    """The kind of taped arrays over the namespace ``under``: NumPy, or that of a kind.

    ``ties`` says what becomes of a maximum of equals, such as ReLU at 0, where a gradient arrives at it: raise
    Undecided, or take that of the second (0 for ReLU, as frameworks do, and as here on floats, which do not know).
    """
    from symattn.arrays.tape_namespace import TapedNamespace

    kind = getattr(under, "kind", None)
    fields = {"name": f"tape over {getattr(kind, 'name', 'NumPy')}", "under": under, "ties": ties}
    result: type[Taped] = type("Taped", (Taped,), fields | {"base": getattr(kind, "base", kind)})
    result.xp = TapedNamespace(result)
    return result


def pull_back(ends: Iterable[tuple[Taped, object]], wanted: Sequence[Taped]) -> list[Any]:
    """Σ ⟨g, ∂y/∂x⟩ over the pairs (y, g) of ``ends``, for every x of ``wanted``: an array of its shape."""
    result = reached(ends, wanted)
    return [x.under.zeros_like(x.value) if g is None else g for x, g in zip(wanted, result, strict=True)]


def reached(ends: Iterable[tuple[Taped, Any]], wanted: Sequence[Taped]) -> list[Any]:
    """As ``pull_back``, with None for what no end was computed from."""
    result: dict[int, Any] = {}
    ends = [(y, g) for y, g in ends if y.moves]
    for y, g in ends:
        _collect(result, y, g)
    remaining = {id(x) for x in wanted}
    for y in reversed(_in_order([y for y, _ in ends])):
        g = result[id(y)] if id(y) in remaining else result.pop(id(y))
        for x, pull in y.sources:
            _collect(result, x, pull(g))
    return [result.get(id(x)) for x in wanted]


def _collect(results: dict[int, Any], x: Taped, g: Array) -> None:
    results[id(x)] = results[id(x)] + g if id(x) in results else g


def _in_order(ends: Sequence[Taped]) -> list[Taped]:
    """Everything that ``ends`` were computed from, and they, each after its operands."""
    order: list[Taped] = []
    seen: set[int] = set()
    stack = [(y, False) for y in ends]
    while stack:
        x, done = stack.pop()
        if done:
            order.append(x)
        elif id(x) not in seen:
            seen.add(id(x))
            stack.append((x, True))
            stack.extend((source, False) for source, _ in x.sources)
    return order
