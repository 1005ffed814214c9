"""Arrays of places as indices, as in x[order] and x[mask] = y, on any kind of array.

Places are plain whole numbers or truth values; None stands for a whole axis.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from symattn.document.errors import InputError
from symattn.programs.graphs import graph_operators
from symattn.programs.graphs.values import Context, Value, is_plain, whole


def take_places(c: Context, x: Value, places: Sequence[Value]) -> Value:
    """Return x[places], as NumPy and torch read arrays of places."""
    if is_plain(x):
        return np.asarray(x)[_known_places(places)]
    # Index the numbers of the elements as NumPy does, then take the elements by a flat index.
    numbered = _numbered_elements(x)[_known_places(places)]
    elements = graph_operators.reshape(c, x, [-1])[numbered.reshape(-1)]
    return graph_operators.reshape(c, elements, numbered.shape)


def put_places(
    c: Context, x: Value, places: Sequence[Value], values: Value, accumulate: bool = False
) -> Value:
    """Return x with x[places] = values. Raises ``InputError`` if a place stands twice among them."""
    if accumulate:
        raise InputError("a sum into places of an array is not read")
    numbered = _numbered_elements(x)
    written = numbered[_known_places(places)]
    # Which of several values remains at one place is not defined.
    if np.unique(written).size != written.size:
        raise InputError("an assignment of several values to one place is not read")
    if np.ndim(values) == 0:
        return graph_operators.where(c, np.isin(numbered, written), values, x)
    spread = graph_operators.expand(c, c.lifted(values), written.shape)
    old = graph_operators.reshape(c, c.lifted(x), [-1])
    both = graph_operators.concat(c, [old, graph_operators.reshape(c, spread, [-1])])
    # Old elements are numbered first, so a written place takes a number beyond them.
    source = np.arange(numbered.size)
    source[written.reshape(-1)] = numbered.size + np.arange(written.size)
    return graph_operators.reshape(c, both[source], numbered.shape)


def copy_rows(c: Context, x: Value, axis: int, places: Value, rows: Value) -> Value:
    """Return x with its rows of an axis at these places replaced, as ``index_copy`` does."""
    return put_places(c, x, [*[None] * (axis % x.ndim), places], rows)


def _numbered_elements(x: Value) -> np.ndarray:
    """Return the numbers of the elements of an array, in its shape, which must be known."""
    shape = [whole(n, "an array that is indexed by an array of places") for n in x.shape]
    return np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)


def _known_places(places: Sequence[Value]) -> tuple[slice | np.ndarray, ...]:
    for of_axis in places:
        if of_axis is not None and not is_plain(of_axis):
            raise InputError("an index that is computed from the inputs is not read")
    return tuple(slice(None) if i is None else np.asarray(i) for i in places)
