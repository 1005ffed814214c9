"""The derivative of a function of arrays, on any kind: formally on letters, by dual numbers on elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.entries import Entries
from symattn.document.errors import Refused


def gradient(function: Callable[..., object], by: str, **arrays: object) -> Array:
    """∂ f_a… / ∂ x_ij…: the axes of the value of a function f, if it has any, then those of the array x named ``by``.

    ``function`` takes all its ``arrays`` by name. On ``indexed``, x must be an array of letters; on kinds of elements
    the function runs on dual numbers with a direction for each element of x.
    """
    along = _along_elements if isinstance(arrays[by], Entries) else _formal
    return along(function, by, arrays)


def _formal(function: Callable[..., Any], by: str, arrays: dict[str, Any]) -> Array:
    from symattn.arrays.index.building import as_written
    from symattn.arrays.index.derivatives import derivative
    from symattn.arrays.index.expressions import Letter
    from symattn.arrays.indexed import Indexed

    value, x = function(**arrays), arrays[by]

    def at(places: Any) -> Any:
        letter = x.at(places[value.ndim :])
        if not isinstance(letter, Letter):
            raise Refused(f"indexed: the gradient is by an array of letters, and {by} is none")
        with as_written(False):  # √x √x as written would ask for x > 0
            element = value.at(places[: value.ndim])
        return derivative(element, letter)

    return Indexed((*value.shape, *x.shape), at)


def _along_elements(function: Callable[..., Any], by: str, arrays: dict[str, Any]) -> Any:
    from symattn.arrays.dual import Slopes, dual, slope

    x = arrays[by]
    base: Any = type(x)
    kind: Any = dual(base, several=True)
    zero, one = base.scalar(0), base.scalar(1)
    directions = np.fromiter((Slopes({k: one}) for k in range(x.size)), object, x.size)
    moved = {name: kind.lift(y) for name, y in arrays.items()}
    moved[by] = kind(x.entries, directions.reshape(x.plain_shape))
    slopes = function(**moved).derivative.entries
    every = np.fromiter((slope(y, k, zero) for y in slopes.flat for k in range(x.size)), object, slopes.size * x.size)
    return base(every.reshape((*slopes.shape, *x.plain_shape)))
