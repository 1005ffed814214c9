"""Functions that only move elements: each is NumPy's, done on every plane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from symattn.arrays.base import Array
from symattn.arrays.planes import Planes, _boxed

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
    return isinstance(x, Array) or (isinstance(x, (list, tuple)) and any(map(_holds, x)))


def _planes_of(kind: type[Planes], x: Any, plane: int) -> Any:
    """The argument ``x`` with every array in it replaced by its plane; plain arrays beside them are lifted."""
    if isinstance(x, Array):
        return kind.of(x).planes[plane]
    if isinstance(x, (list, tuple)):
        arrays = _holds(x)
        return type(x)(_planes_of(kind, kind.of(y) if arrays and not _holds(y) else y, plane) for y in x)
    return x


def _structural(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def run(self: Structure, *args: Any, **kwargs: Any) -> Any:
        if not any(map(_holds, (*args, *kwargs.values()))):
            return function(*args, **kwargs)
        first = _first(args)
        results = [function(*[_planes_of(self.kind, a, k) for a in args], **kwargs) for k in range(len(first.planes))]
        if isinstance(results[0], (list, tuple)):
            return [self.kind(*parts) for parts in zip(*results, strict=True)]
        return self.kind(*[_boxed(r, p) for r, p in zip(results, first.planes, strict=True)])

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"NumPy's ``{name}``, on every plane."
    return run


def _first(args: Any) -> Any:
    for x in args:
        if isinstance(x, Array):
            return x
        if isinstance(x, (list, tuple)) and _holds(x):
            return _first(x)
    raise TypeError("no array among the arguments")


for _name in _NUMPY:
    setattr(Structure, _name, _structural(_name))
for _alias, _name in _ALIASES.items():
    setattr(Structure, _alias, getattr(Structure, _name))
