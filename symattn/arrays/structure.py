"""Functions that only move elements: each is NumPy's, done on every plane, and on the numbers of literal arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from symattn.arrays.base import ArrayBase
from symattn.arrays.planes import Planes, Typed, _boxed

_NUMPY = (
    *("reshape", "permute_dims", "matrix_transpose", "swapaxes", "moveaxis", "squeeze", "expand_dims", "broadcast_to"),
    *("concat", "stack", "split", "array_split", "flip", "roll", "repeat", "tile", "take", "take_along_axis", "ravel"),
    *("diagonal", "unstack", "vstack", "hstack", "atleast_1d", "atleast_2d", "delete", "append"),
)
_ALIASES = {"transpose": "permute_dims", "concatenate": "concat"}


class Structure:
    """``reshape`` to ``stack``."""

    kind: type[Planes]


def _holds(x: Any) -> bool:
    return isinstance(x, ArrayBase) or (isinstance(x, (list, tuple)) and any(map(_holds, x)))


def _lifted(kind: type[Planes], x: Any) -> Any:
    """The argument ``x``, plain arrays that stand beside arrays of the kind lifted."""
    if isinstance(x, ArrayBase) or not _holds(x):
        return kind.of(x) if isinstance(x, ArrayBase) else x
    return [_lifted(kind, y) if _holds(y) else kind.of(y) for y in x]


def _picked(x: Any, pick: Callable[[Any], Any]) -> Any:
    """The argument ``x`` with every array in it replaced by one of its planes."""
    if isinstance(x, ArrayBase):
        return pick(x)
    return [_picked(y, pick) for y in x] if _holds(x) else x


def _plane(k: int) -> Callable[[Any], Any]:
    return lambda array: array.planes[k]


def _arrays(x: Any) -> Iterator[Any]:
    if isinstance(x, ArrayBase):
        yield x
    elif isinstance(x, (list, tuple)):
        for y in x:
            yield from _arrays(y)


def _joined(kind: type[Planes], planes: Sequence[Any], numbers: Any, first: Any) -> Any:
    """Planes as an array of the kind, or lists of planes as a list of arrays."""
    if isinstance(planes[0], (list, tuple)):
        split = numbers if numbers is not None else [None] * len(planes[0])
        return type(planes[0])(_joined(kind, parts, n, first) for *parts, n in zip(*planes, split, strict=True))
    array = kind(*[_boxed(p, q) for p, q in zip(planes, first.planes, strict=True)])
    if numbers is not None:
        array.typed = Typed(_boxed(numbers, first.typed.numbers), first.typed.sound)
    return array


def _structural(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def run(self: Structure, *args: Any, **kwargs: Any) -> Any:
        if not _holds([args]):
            return function(*args, **kwargs)
        given = [_lifted(self.kind, a) for a in args]
        first, *others = _arrays(given)

        def of(pick: Callable[[Any], Any]) -> Any:
            return function(*[_picked(a, pick) for a in given], **kwargs)

        planes = [of(_plane(k)) for k in range(len(first.planes))]
        typed = all(x.origin is not None for x in (first, *others))
        return _joined(self.kind, planes, of(lambda array: array.origin) if typed else None, first)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"NumPy's ``{name}``, on every plane."
    return run


for _name in _NUMPY:
    setattr(Structure, _name, _structural(_name))
for _alias, _name in _ALIASES.items():
    setattr(Structure, _alias, getattr(Structure, _name))
