"""Numbers that say which elements are quotients over the same B, so that sums need not multiply denominators.

They are never computed with, only compared: equal numbers mean equal B. If B does not vary along an axis, such as that
of the weights along the keys, the array of numbers has stride 0 there and costs nothing.
"""

from __future__ import annotations

from itertools import count
from math import prod

import numpy as np

Divisors = np.ndarray | None  # None: B = 1 everywhere
# A counter for the whole process, so that numbers of different arrays never coincide; 0 is B = 1.
_blocks = count(1)


def fresh(shape: tuple[int, ...]) -> np.ndarray:
    """Return numbers that no other array has."""
    # Arrays have fewer than 2³² elements, so blocks do not overlap.
    return (next(_blocks) << 32) + np.arange(prod(shape)).reshape(shape)


def same(a: Divisors, b: Divisors) -> bool:
    """Return whether elements that meet in an operation always have the same B."""
    # None is B = 1, which agrees only with itself.
    if a is None or b is None:
        return a is b
    # Identity is tried first, since comparing arrays costs a pass over both.
    if a is b:
        return True
    equal = _drop_stride_zero_copies(a) == _drop_stride_zero_copies(b)
    return bool(equal.all())


def none(a: Divisors) -> bool:
    """Return whether B is 1 everywhere (for masks, whether they are False everywhere)."""
    return a is None or not _drop_stride_zero_copies(a).any()


def joined(a: Divisors, b: Divisors, shape: tuple[int, ...]) -> Divisors:
    """Return the divisors of products: those of the only operand that has any, else new ones."""
    # A product with elements without a divisor has the divisor of the other operand.
    if a is None or b is None:
        only = b if a is None else a
        return None if only is None else np.broadcast_to(only, shape)
    wide = [np.broadcast_to(x, shape) for x in (a, b)]
    # Axes along which neither operand varies stay copies, with stride 0 for ``constant``.
    lengths = enumerate(shape)
    varies = tuple(1 if all(not x.strides[k] for x in wide) else n for k, n in lengths)
    return np.broadcast_to(fresh(varies), shape)


def constant(a: Divisors, axis: int) -> bool:
    """Return whether B does not vary along the axis."""
    # Stride 0 shows without a comparison that all entries along the axis are copies.
    if a is None or a.shape[axis] < 2 or not a.strides[axis]:
        return True
    entries = _drop_stride_zero_copies(a)
    return bool((entries == entries.take([0], axis)).all())


def first(a: Divisors, axis: int) -> Divisors:
    """Return the first along an axis, which keeps length one."""
    if a is None or not a.shape[axis]:
        return None
    return np.moveaxis(np.moveaxis(a, axis, 0)[:1], 0, axis)


def summed(a: Divisors, axis: int, same: bool) -> Divisors:
    """Return the divisors of sums along an axis, along which B is the ``same`` or not."""
    if a is None or not a.shape[axis]:
        return None
    if same:
        return first(a, axis).squeeze(axis)  # type: ignore[union-attr]
    shape = (*a.shape[:axis], *a.shape[axis + 1 :])
    return fresh(shape)


def _drop_stride_zero_copies(a: np.ndarray) -> np.ndarray:
    """Return the array without the copies along axes of stride 0."""
    return a[tuple(slice(None) if stride else slice(0, 1) for stride in a.strides)]
