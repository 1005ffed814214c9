"""A form beside its definition: equal in exact numbers, within the rounding of float32, and for all sizes."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from symattn.arrays import kind
from symattn.arrays.rounded import rounded
from symattn.proof.prover import prove
from symattn.proof.statement import Declared, Letters
from tests.attention.definition import parts

EXACT = kind("exact")
Form = Callable[..., Any]


def drawn(seed: int, **shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Halves between −2 and 2, which every format holds."""
    draw = np.random.default_rng(seed)
    return {name: draw.integers(-4, 5, shape) / 2 for name, shape in shapes.items()}


def exactly(form: Form, definition: Form, data: dict[str, np.ndarray]) -> bool:
    """Whether both give the same exact numbers; places where both are −∞ are the same, undefined ones are not."""
    lifted = {name: EXACT.lift(array) for name, array in data.items()}
    pairs = list(zip(parts(form(**lifted)), parts(definition(**lifted)), strict=True))
    return all(a.shape == b.shape and bool((a == b).all()) for a, b in pairs)


_BOUNDS: dict[tuple[int, int], tuple[Form, dict[str, np.ndarray], list[Any]]] = {}


def bounds_of(form: Form, data: dict[str, np.ndarray]) -> list[Any]:
    """What the form gives on numbers with bounds on the roundings of float32; kept, as wrong forms are held to it."""
    key = id(form), id(data)
    if key not in _BOUNDS:
        lifted = {name: rounded("float32").lift(array) for name, array in data.items()}
        _BOUNDS[key] = form, data, parts(form(**lifted))
    return _BOUNDS[key][2]


def legal(form: Form, data: dict[str, np.ndarray], bounded_by: Form | None = None) -> bool:
    """Whether the form in float32 is as near to the exact values as its roundings, or those of another, allow."""
    results = parts(form(**{name: array.astype(np.float32) for name, array in data.items()}))
    bounds = bounds_of(bounded_by or form, data)
    assert all(got.dtype == np.float32 for got in results)
    assert all(bound.bound.max() < 1e-3 for bound in bounds)  # they say something
    return all(bool(bound.within(got).all()) for got, bound in zip(results, bounds, strict=True))


def proved(form: Form, definition: Form, shapes: dict[str, str], positive: Iterable[str] = ()) -> bool:
    """Whether both are equal for all sizes. They take the arrays, and as ``size`` the lengths of sorts by letter."""
    letters, declared = Letters(), Declared(shapes, positive=tuple(positive))
    arrays = {name: letters.array(name, shape, declared) for name, shape in shapes.items()}
    size = {sort: letters.length(sort) for sort in declared.sorts()}
    pairs = zip(parts(form(**arrays, size=size)), parts(definition(**arrays, size=size)), strict=True)
    return all(prove(a, b).proved for a, b in pairs)
