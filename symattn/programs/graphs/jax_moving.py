"""The primitives of JAX that move elements, and its products of arrays, as array code on any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.document.errors import InputError
from symattn.programs.graphs import operators as op
from symattn.programs.graphs.values import Context, Joined, is_plain, length


def array(x: Any) -> np.ndarray:
    """A plain number as an array without axes."""
    return np.asarray(x) if is_plain(x) and not isinstance(x, Joined) else x


def iota(c: Context, *_: object, shape: Sequence[Any], dimension: int, dtype: str, **__: object) -> Any:
    """0, 1, … along one axis, the same along all others; floats where these are asked for."""
    row = op.arange(c, 0, shape[dimension])
    row = row.astype(np.float64) if dtype == "float" and is_plain(row) else row
    others = [n for n in range(len(shape)) if n != dimension]
    return op.expand(c, op.unsqueeze(c, row, others) if others else row, shape)


def broadcast_in_dim(
    c: Context, x: Any, *_: object, shape: Sequence[Any], broadcast_dimensions: Sequence[int], **__: object
) -> Any:
    """The axes of x at the places told, and repeated along all others."""
    x = array(x)
    if x.ndim == 0 and is_plain(x):
        return op.full(c, shape, x[()])
    others = [n for n in range(len(shape)) if n not in broadcast_dimensions]
    return op.expand(c, op.unsqueeze(c, x, others) if others else x, shape)


def reshape(
    c: Context, x: object, *_: object, new_sizes: Sequence[Any], dimensions: object = None, **__: object
) -> Any:
    """Return the same elements in other axes."""
    if dimensions is not None:
        raise InputError("a reshape in another order of the axes is not read")
    return op.reshape(c, array(x), list(new_sizes))


def concatenate(c: Context, xs: Sequence[Any], dimension: int) -> np.ndarray:
    """Side by side; parts of length 0 are left out."""
    parts = [x for x in map(array, xs) if length(x.shape[dimension]) != 0]
    return parts[0] if len(parts) == 1 else op.concat(c, parts or [array(xs[0])], dimension)


def stack(c: Context, parts: Sequence[Any], axis: int = 0) -> Any:
    """Arrays of one shape along a new axis."""
    return concatenate(c, [op.unsqueeze(c, array(x), [axis]) for x in parts], axis)


def slices(c: Context, x: Any, start_indices: Sequence[Any], limit_indices: Sequence[Any], strides: Any = None) -> Any:
    """From a start to before a limit of each axis; axes that are taken whole are left as they are."""
    steps = strides or [1] * len(start_indices)
    for axis, (start, stop, step) in enumerate(zip(start_indices, limit_indices, steps, strict=True)):
        if not (_is(start, 0) and step == 1 and _is(length(stop), length(array(x).shape[axis]))):
            x = op.part(c, array(x), axis, start, stop, step)
    return x


def _is(a: object, b: object) -> bool:
    """Return whether two lengths are the same, as far as that is known."""
    return bool(a == b) if isinstance(a, int) and isinstance(b, int) else a is b or str(a) == str(b)


def _starts(places: Sequence[Any], x: Array, counts: Sequence[int]) -> list[int]:
    """Plain places of a dynamic slice, moved so that it lies within the array, as JAX has it."""
    if not all(is_plain(p) for p in places):
        raise InputError("a slice at a place that is computed from the inputs is not read")
    most = [int(n) - count for n, count in zip(x.shape, counts, strict=True)]
    return [min(max(int(p), 0), m) for p, m in zip(places, most, strict=True)]


def dynamic_slice(c: Context, x: object, *places: Any, slice_sizes: Sequence[int]) -> Any:
    """So many elements of each axis from plain places on."""
    starts = _starts(places, array(x), slice_sizes)
    return slices(c, x, starts, [s + n for s, n in zip(starts, slice_sizes, strict=True)])


def dynamic_update_slice(c: Context, x: Any, new: Any, *places: Any) -> Any:
    """x with a part of one axis replaced."""
    x, new = array(x), array(new)
    counts = [int(n) for n in new.shape]
    starts = _starts(places, x, counts)
    axes = [k for k, n in enumerate(counts) if n != int(x.shape[k])]
    if len(axes) > 1:
        raise InputError("an update along several axes at once is not read")
    if not axes:
        return new
    k = axes[0]
    return concatenate(c, [op.part(c, x, k, 0, starts[k]), new, op.part(c, x, k, starts[k] + counts[k], None)], k)


def gather(c: Context, x: Any, index: Any, dimension_numbers: Any, slice_sizes: Sequence[int], **_: object) -> Any:
    """The elements of one axis at plain places, in a row; other gathers are refused."""
    numbers, x, index = dimension_numbers, array(x), array(index)
    if not is_plain(index):
        raise InputError("a gather by places that are computed from the inputs is not read")
    axis, *more = numbers["start_index_map"]
    whole = [k for k, n in enumerate(slice_sizes) if k != axis and n != length(x.shape[k])]
    if more or whole or numbers["operand_batching_dims"] or slice_sizes[axis] != 1 or index.ndim != 2:
        raise InputError("a gather of other places than those of one axis is not read")
    if (index < 0).any() or (index >= length(x.shape[axis])).any():
        raise InputError("a gather beyond the end of an axis is not read")
    result = op.gather(c, x, index[:, 0], axis)
    if numbers["collapsed_slice_dims"] != [axis]:
        raise InputError("a gather that keeps an axis of length 1 is not read")
    to = next(k for k in range(result.ndim) if k not in numbers["offset_dims"])
    order = [k for k in range(result.ndim) if k != axis]
    return op.transpose(c, result, [*order[:to], axis, *order[to:]])


def pad(c: Context, x: Any, value: Any, padding_config: Sequence[Sequence[int]]) -> Any:
    """x with a plain value before and after it along each axis; negative numbers cut off."""
    x = array(x)
    for axis, (low, high, between) in enumerate(padding_config):
        if between:
            raise InputError("padding between elements is not read")
        if low < 0 or high < 0:
            x = op.part(c, x, axis, max(-low, 0), None if high >= 0 else length(x.shape[axis]) + high)
        shapes = ([n if k == axis else length(m) for k, m in enumerate(x.shape)] for n in (max(low, 0), max(high, 0)))
        parts = [op.full(c, shape, value) for shape in shapes]
        x = concatenate(c, [parts[0], x, parts[1]], axis) if low > 0 or high > 0 else x
    return x


def reverse(c: Context, x: Any, dimensions: Sequence[int]) -> Any:
    """Axes of known lengths from their ends."""
    for axis in dimensions:
        x = op.gather(c, array(x), np.arange(int(x.shape[axis]))[::-1], axis)
    return x


def dot_general(c: Context, a: Any, b: Any, dimension_numbers: Any, **_: object) -> Any:
    """Σ over the contracted axes; the axes of batches, then those of a, then those of b, are left.

    Both are brought to (axes of batches and of a sum, free axes, one free axis, one contracted axis) and multiplied as
    matrices: free axes beside the last one meet axes of length 1. Source: JAX, ``jax.lax.dot_general``.
    """
    (of_a, of_b), (batch_a, batch_b) = dimension_numbers
    if isinstance(b, Joined) and not b.turned and (list(of_a), list(of_b), list(batch_a)) == ([a.ndim - 1], [0], []):
        return Joined(tuple(c.lifted(a) @ part for part in b.parts))
    a, b = (c.lifted(x.whole(c) if isinstance(x, Joined) else x) for x in (a, b))
    if not of_a:
        a, b = op.unsqueeze(c, a, [a.ndim]), op.unsqueeze(c, b, [b.ndim])
        of_a, of_b = [a.ndim - 1], [b.ndim - 1]
    taken = (a, (*of_a, *batch_a)), (b, (*of_b, *batch_b))
    free_a, free_b = ([k for k in range(x.ndim) if k not in axes] for x, axes in taken)
    summed = len(of_a) - 1
    left = op.transpose(c, a, [*of_a[:-1], *batch_a, *free_a, of_a[-1]])
    right = op.transpose(c, b, [*of_b[:-1], *batch_b, *free_b, of_b[-1]])
    front = summed + len(batch_a)
    left = left if free_a else op.unsqueeze(c, left, [front])
    right = right if free_b else op.unsqueeze(c, right, [front])
    more_a, more_b = max(len(free_a) - 1, 0), max(len(free_b) - 1, 0)
    left = op.unsqueeze(c, left, range(front + more_a, front + more_a + more_b)) if more_b else left
    right = op.unsqueeze(c, right, range(front, front + more_a)) if more_a else right
    result = left @ c.xp.matrix_transpose(right)
    for _axis in range(summed):
        result = op.reduce("sum")(c, result, [0], False)
    return _in_order(c, result, len(batch_a), (len(free_a), more_a), (len(free_b), more_b))


def _in_order(c: Context, x: Any, batch: int, of_a: tuple[int, int], of_b: tuple[int, int]) -> Any:
    """(…, free of a but one, free of b but one, one of a, one of b) as (…, free of a, free of b)."""
    (count_a, more_a), (count_b, more_b) = of_a, of_b
    first, second = batch, batch + more_a
    last = second + more_b
    order = [*range(batch), *range(first, second), last, *range(second, last), last + 1]
    x = op.transpose(c, x, order) if more_b else x
    gone = [k for k, none in ((batch + more_a, not count_a), (x.ndim - 1, not count_b)) if none]
    return op.squeeze(c, x, gone) if gone else x
