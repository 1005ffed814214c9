"""The value of a part of a formula: an array with one axis for each free index letter, then axes of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from operator import add, mul
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.document.errors import Undecided

Binary = Callable[[Any, Any], Any]


class Unread(Exception):
    """Raised for a formula that cannot be read: an unbound letter, sides of different shapes."""


@dataclass(frozen=True)
class Value:
    """``array`` has one axis for each letter in ``letters``, then ``rank`` axes: 0 a number, 1 a vector, 2 a matrix.

    A vector is a row or a column. ``even``: a multiple of the vector 𝟏, as long as its neighbour.
    """

    array: Any
    letters: tuple[str, ...] = ()
    rank: int = 0
    row: bool = False
    even: bool = False

    def on(self, work: Callable[[Any], object]) -> Value:
        """Apply ``work`` to the array."""
        return Value(work(self.array), self.letters, self.rank, self.row, self.even)


@dataclass(frozen=True)
class Several:
    """Values separated by commas: the arguments (m, ℓ, o) of a function, or its results."""

    parts: tuple[Value, ...]


Found = Value | Several


def spread(x: Value, letters: tuple[str, ...], rank: int) -> Any:
    """Return the array of x with the axes ``letters``, of length 1 if x lacks them, and ``rank`` axes of its own."""
    array = x.array
    have = [i for i in letters if i in x.letters]
    # Axes of letters first, in one order, then the value's own.
    if list(x.letters) != have:
        own = range(len(x.letters), len(x.letters) + x.rank)
        order = (*(x.letters.index(i) for i in have), *own)
        array = array.__array_namespace__().permute_dims(array, order)
    # None adds an axis of length 1, which broadcasts.
    key = [slice(None) if i in x.letters else None for i in letters]
    key += [None] * (rank - x.rank) + [slice(None)] * x.rank
    return array[tuple(key)] if None in key else array


def filled(a: Array, b: Array) -> Any:
    """Return ``a`` broadcast to the common shape of ``a`` and ``b``; letters stay as written."""
    from symattn.arrays.index.namespace import spread as at_places
    from symattn.arrays.indexed import Indexed

    if isinstance(a, Indexed) or isinstance(b, Indexed):
        return at_places(a, b)
    return a + 0 * b


def both(x: Value, y: Value, work: Binary) -> Value:
    """Return ``work`` of two values, aligned by letters; numbers are broadcast."""
    # Numbers fit anything, vectors and matrices only their own rank.
    if x.rank != y.rank and 0 not in (x.rank, y.rank):
        raise Unread("a vector and a matrix are not of one shape")
    # Entry by entry, a row and a column are not one shape.
    if x.rank == y.rank == 1 and x.row != y.row:
        raise Unread("a row and a column are not of one shape")
    letters = tuple(dict.fromkeys((*x.letters, *y.letters)))
    rank = max(x.rank, y.rank)
    array = work(spread(x, letters, rank), spread(y, letters, rank))
    is_row = (x if x.rank else y).row
    is_even = x.even or y.even if not rank else False
    return Value(array, letters, rank, is_row, is_even)


def added(x: Value, y: Value) -> Value:
    """Return x + y for values of one shape; a multiple of 𝟏 fits any vector."""
    if x.rank != y.rank and not (x if x.rank == 0 else y).even:
        raise Unread("a number is added to what is none")
    if x.rank == y.rank == 0 and x.even != y.even:
        raise Unread("a number is added to a vector")
    return both(x, y, add)


def summed(x: Value) -> Value:
    """Return Σ over the last axis."""
    return Value(_sum_over_array_axis(x.array, -1), x.letters, x.rank - 1)


def _sum_over_array_axis(array: Array, axis: int) -> Any:
    return array.__array_namespace__().sum(array, axis=axis)


def root_of_squares(x: Any) -> Any:
    """Return √x for a sum of squares x, which is not negative even if its ball is too wide to show it."""
    xp = x.__array_namespace__()
    try:
        return xp.sqrt(x)
    except Undecided:
        roots = [e.sqrt() if e > 0 else _from_zero_to(e.upper().sqrt()) for e in x.entries.flat]
        return type(x)(np.array(roots, dtype=object).reshape(x.entries.shape))


def _from_zero_to(top: Any) -> Any:
    half = top / 2
    return half + half.union(-half)


def times(x: Value, y: Value, sign: str, rows: bool) -> Value:
    """Return x y, a product of numbers or of matrices; ``·`` between vectors is the dot product.

    ``rows``: a vector before a matrix is a row, transposed or not.
    """
    # Both lengths would be free.
    if x.even and y.even and (x.row or not y.row):
        raise Unread("a product of vectors of ones whose length is not said")
    if y.even:
        return _times_ones(x, y)
    if x.even and y.rank:
        return _ones_times(x, y)
    if x.rank == 0 or y.rank == 0:
        return both(x, y, mul)
    # The dot product of matrices is Tr(Xᵀ Y).
    if sign == "·":
        if x.rank != y.rank:
            raise Unread("a dot product of what is not a vector")
        x, y = (Value(z.array, z.letters, z.rank, even=z.even) for z in (x, y))
        product = both(x, y, mul)
        return summed(summed(product)) if product.rank == 2 else summed(product)
    return _multiply_vectors_or_matrices(x, y, rows)


def _times_ones(x: Value, y: Value) -> Value:
    if x.rank == 2:
        return both(summed(x), replace(y, even=False), mul)
    if x.rank == 0:
        return both(x, y, mul)
    raise Unread("a vector times 1")


def _ones_times(x: Value, y: Value) -> Value:
    if y.rank == 1 and y.row:
        each = both(replace(x, even=False), y, mul)
        return Value(each.array[..., None, :], each.letters, 2)
    raise Unread("1 times what is not a row")


def _multiply_vectors_or_matrices(x: Value, y: Value, rows: bool) -> Value:
    if x.rank == y.rank == 2:
        letters = tuple(dict.fromkeys((*x.letters, *y.letters)))
        return Value(spread(x, letters, 2) @ spread(y, letters, 2), letters, 2)
    # A y = Σ_j A_ij y_j.
    if x.rank == 2 and not y.row:
        columns = Value(y.array[..., None, :], y.letters, 2)
        return summed(both(x, columns, mul))
    # x A = Σ_i x_i A_ij, a row.
    if y.rank == 2 and (x.row or rows):
        product = both(Value(x.array[..., :, None], x.letters, 2), y, mul)
        return Value(_sum_over_array_axis(product.array, -2), product.letters, 1, True)
    if x.rank == y.rank == 1 and x.row and not y.row:
        return summed(both(replace(x, row=False), y, mul))
    # A column times a row is the outer product.
    if x.rank == y.rank == 1 and y.row and not x.row:
        column, row = (
            Value(x.array[..., :, None], x.letters, 2),
            Value(y.array[..., None, :], y.letters, 2),
        )
        return both(column, row, mul)
    raise Unread("a product of what does not multiply as matrices do")


def stacked(x: Value, letters: Iterable[str]) -> Any:
    """Return the array of a value with its free letters as first axes, in this order."""
    order = tuple(letters)
    if set(order) != set(x.letters):
        raise Unread(
            f"a definition with the indices {', '.join(order)} of what has {', '.join(x.letters) or 'none'}"
        )
    return spread(x, order, x.rank)
