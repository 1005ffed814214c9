"""Reductions over any axes, with keepdims, and functions derived from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cmp_to_key
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.base import offer_all
from symattn.arrays.planes import Planes
from symattn.document.errors import InputError, Refused

Axes = int | tuple[int, ...] | None
"""The axes that a function reduces: one, several, or all."""


class Reductions:
    """``sum`` to ``argsort``."""

    kind: type[Planes]

    def sum(self, a: object, axis: Axes = None, keepdims: bool = False) -> Any:
        return self._over(self.kind._sum, a, axis, keepdims)

    def max(self, a: object, axis: Axes = None, keepdims: bool = False) -> Any:
        return self._over(self._max, a, axis, keepdims)

    def min(self, a: Array, axis: Axes = None, keepdims: bool = False) -> Any:
        # One primitive less for each kind.
        return -self.max(-a, axis, keepdims)

    def prod(self, a: object, axis: Axes = None, keepdims: bool = False) -> Any:
        return self._over(self._prod, a, axis, keepdims)

    def mean(self, a: Array, axis: Axes = None, keepdims: bool = False) -> Any:
        return self.sum(a, axis, keepdims) / self._count(a, axis)

    def var(
        self, a: Any, axis: Axes = None, keepdims: bool = False, correction: int = 0, ddof: int = 0
    ) -> Any:
        # Centred first: E x² − (E x)² would be another formula with other roundings.
        centred = a - self.mean(a, axis, True)
        return self.sum(centred * centred, axis, keepdims) / (
            self._count(a, axis) - (correction or ddof)
        )

    def std(
        self,
        a: object,
        axis: Axes = None,
        keepdims: bool = False,
        correction: int = 0,
        ddof: int = 0,
    ) -> Any:
        return self.kind.offer("sqrt")(self.var(a, axis, keepdims, correction, ddof))

    def cumulative_sum(self, a: object, axis: int | None = None) -> Any:
        """Return partial sums along one axis."""
        # A copy, which is overwritten row by row.
        rows = self._to_front(a, axis)
        for i in range(1, len(rows)):
            rows[i] = rows[i] + rows[i - 1]
        return self.kind.offer("moveaxis")(rows, 0, axis if axis is not None else 0)

    def any(self, a: object, axis: Axes = None, keepdims: bool = False) -> Any:
        return np.any(np.asarray(a != 0), axis, keepdims=keepdims)

    def all(self, a: object, axis: Axes = None, keepdims: bool = False) -> Any:
        return np.all(np.asarray(a != 0), axis, keepdims=keepdims)

    def sort(self, a: object, axis: int = -1, descending: bool = False) -> Any:
        # Kinds with ``ordered`` sort without deciding which element is which.
        if not hasattr(self.kind, "ordered"):
            return self.kind.offer("take_along_axis")(
                a, self.argsort(a, axis, descending), axis=axis
            )
        rows = self._to_front(a, axis)
        for index in np.ndindex(rows.plain_shape[1:]):
            line = (slice(None), *index)
            rows[line] = self.kind.ordered(rows[line], descending)
        return self.kind.offer("moveaxis")(rows, 0, axis)

    def argsort(self, a: object, axis: int = -1, descending: bool = False) -> np.ndarray:
        """Return the stable order along an axis. Raises Undecided if a comparison is."""
        rows = self._to_front(a, axis)
        order = np.empty(rows.plain_shape, dtype=np.int64)
        for index in np.ndindex(order.shape[1:]):
            key = cmp_to_key(self._make_index_comparison(rows[(slice(None), *index)]))
            # Python's sort is stable also in reverse, so equal elements keep their order.
            in_order = sorted(range(len(rows)), key=key, reverse=descending)
            order[(slice(None), *index)] = in_order
        return np.moveaxis(order, 0, axis)

    def argmax(self, a: object, axis: int | None = None, keepdims: bool = False) -> Any:
        return self._first_in_sorted_order(a, axis, keepdims, descending=True)

    def argmin(self, a: object, axis: int | None = None, keepdims: bool = False) -> Any:
        return self._first_in_sorted_order(a, axis, keepdims, descending=False)

    amax, amin, cumsum = max, min, cumulative_sum

    def _first_in_sorted_order(
        self, a: Any, axis: int | None, keepdims: bool, descending: bool
    ) -> Any:
        flat, k = (a.reshape(-1), 0) if axis is None else (a, axis)
        # An empty axis has no first element.
        self._check_nonempty(flat, k)
        result = np.take(self.argsort(flat, k, descending), 0, axis=k)
        return (
            result
            if not keepdims
            else result.reshape((1,) * a.ndim)
            if axis is None
            else np.expand_dims(result, k)
        )

    def _make_index_comparison(self, line: Any) -> Callable[[int, int], int]:
        def less(i: int, j: int) -> int:
            return int(self.kind._less(line[i], line[j])[()])

        return lambda i, j: less(j, i) - less(i, j)

    def _over(self, step: Callable[[Any, int], object], a: Any, axis: Axes, keepdims: bool) -> Any:
        """Apply ``step``, which reduces one axis, to every axis in ``axis``."""
        # The last axis first, so that the numbers of the others stay valid.
        axes = sorted(_normalise_axis_numbers(a, axis), reverse=True)
        # The result of a function is a new array, also where nothing is reduced.
        out = a if axes else a.copy()
        for k in axes:
            out = step(out, k)
        with_axes = tuple([None if k in axes else slice(None) for k in range(a.ndim)])
        return out[with_axes] if keepdims and axes else out

    def _max(self, a: Planes, axis: int) -> Any:
        self._check_nonempty(a, axis)
        return self.kind._max(a, axis)

    def _check_nonempty(self, a: Planes, axis: int) -> None:
        if not a.plain_shape[axis]:
            raise InputError(f"{self.kind.name}: max over an empty axis (are there no keys?)")

    def _prod(self, a: object, axis: int) -> Planes:
        rows = self._to_front(a, axis)
        product = self.kind.lift(np.ones(rows.plain_shape[1:]))
        for i in range(len(rows)):
            product = product * rows[i]
        return product

    def _to_front(self, a: Any, axis: int | None) -> Any:
        """Return a copy with ``axis`` first; None flattens."""
        if axis is None:
            return a.reshape(-1).copy()
        return self.kind.offer("moveaxis")(a, axis, 0).copy()

    def _count(self, a: Array, axis: Axes) -> int:
        lengths = (int(a.shape[k]) for k in _normalise_axis_numbers(a, axis))
        return math.prod(lengths)


offer_all(Reductions)


def _normalise_axis_numbers(a: Array, axis: Axes) -> list[int]:
    n = a.ndim
    # One axis is the most frequent case.
    if axis.__class__ is int and -n <= axis < n:
        return [axis % n]
    axes = (
        range(n) if axis is None else [axis] if isinstance(axis, (int, np.integer)) else list(axis)
    )
    for k in axes:
        if not -n <= k < n:
            raise np.exceptions.AxisError(int(k), n)
    return [int(k) % n for k in axes]


# -- products of arrays ------------------------------------------------------------------------------------------------
class Contractions:
    """``einsum``, for every kind that has products of matrices."""

    kind: type[Any]

    def einsum(self, spec: str, *operands: object) -> Any:
        """Return the sum of products in ``spec``, as a product of matrices if two operands share the summed axes."""
        arrays = [self.kind.of(x) for x in operands]
        terms, out = _einsum_terms(spec, [x.ndim for x in arrays])
        # Two operands whose other letters all stay: a product of matrices.
        if (
            len(terms) == 2
            and set(terms[0]) ^ set(terms[1]) <= set(out)
            and set(terms[0]) & set(terms[1]) - set(out)
        ):
            return self._contract_two_operands(arrays, terms, out)
        summed_letters = set("".join(terms)) - set(out)
        letters = out + "".join(sorted(summed_letters))
        product = None
        for term, x in zip(terms, arrays, strict=True):
            spread = self._spread_axes_by_letters(x, term, letters)
            product = spread if product is None else product * spread
        summed = tuple(range(len(out), len(letters)))
        return self.kind.offer("sum")(product, axis=summed) if summed else product

    def _contract_two_operands(self, arrays: list[Any], terms: list[str], out: str) -> Any:
        """Sum over the common letters of both operands: over one of them by a product of matrices.

        Other letters become leading axes, of length one if an operand lacks them, and are summed afterwards.
        """
        (a, b), xp = terms, self.kind.xp
        # One common letter is the inner axis; further ones are summed afterwards.
        shared = set(a) & set(b) - set(out)
        *more, inner = sorted(shared)
        # None: it has none
        row, column = ([None, *(c for c in out if c not in other)][-1] for other in (b, a))
        front = [*more, *(c for c in out if c not in (row, column))]
        left, right = (
            self._spread_axes_by_letters(arrays[0], a, [*front, row, inner]),
            self._spread_axes_by_letters(arrays[1], b, [*front, inner, column]),
        )
        product = left @ right
        summed_axes = tuple(range(len(more)))
        product = xp.sum(product, axis=summed_axes) if more else product
        product = product[(..., *(slice(None) if c else 0 for c in (row, column)))]
        letters = [c for c in (*front[len(more) :], row, column) if c]
        return xp.permute_dims(product, tuple(map(letters.index, out)))

    def _spread_axes_by_letters(self, x: Array, term: str, letters: Sequence[str | None]) -> Array:
        """Return ``x`` with axes in the order of ``letters``, length one if missing; repeated letters are diagonals."""
        xp = self.kind.xp
        # Repeated letters take diagonals first, after which each letter is one axis.
        for letter in sorted({c for c in term if term.count(c) > 1}):
            i = term.index(letter)
            j = term.index(letter, i + 1)
            remaining = term[:i] + term[i + 1 : j] + term[j + 1 :]
            x, term = xp.diagonal(x, 0, i, j), remaining + letter
        in_order = sorted(range(len(term)), key=lambda k: letters.index(term[k]))
        x = xp.permute_dims(x, tuple(in_order))
        index = tuple(slice(None) if c and c in term else None for c in letters)
        return x[index]


offer_all(Contractions)


class LinearReductions(Contractions):
    """``matmul`` and its relatives."""

    kind: type[Planes]

    def matmul(self, a: Array, b: Array) -> Planes:
        """Return a @ b, also for vectors and stacks of matrices."""
        x = self.kind.of(a)
        y = self.kind.of(b)
        if not (x.ndim and y.ndim):
            raise InputError("matmul of a number; hint: multiply with *")
        left, right = x.ndim == 1, y.ndim == 1
        # A vector is a row on the left and a column on the right.
        x = x[None, :] if left else x
        y = y[:, None] if right else y
        if x.plain_shape[-1] != y.plain_shape[-2]:
            raise InputError(
                f"matmul of shapes {np.shape(a)} and {np.shape(b)}: the inner sizes differ"
            )
        product, whole = self.kind._matmul(x, y), slice(None)
        return (
            product[..., 0 if left else whole, 0 if right else whole] if left or right else product
        )

    def dot(self, a: Any, b: Any) -> Any:
        """Return a b for numbers, else the sum over the last axis of a and the first of b, of one or two axes."""
        if not (np.ndim(a) and np.ndim(b)):
            return self.kind.offer("multiply")(a, b)
        if np.ndim(b) > 2:
            raise Refused(
                f"{self.kind.name}: dot with {np.ndim(b)} axes on the right; use matmul or einsum"
            )
        return self.matmul(a, b)

    def vecdot(self, a: object, b: object, axis: int = -1) -> Any:
        return self.kind.offer("sum")(self.kind.offer("multiply")(a, b), axis=axis)

    def outer(self, a: object, b: object) -> Any:
        """Return a_i b_j for all elements of a and of b."""
        column = self.kind.of(a).reshape(-1, 1)
        return column * self.kind.of(b).reshape(1, -1)


offer_all(LinearReductions)


def _einsum_terms(spec: str, ranks: list[int]) -> tuple[list[str], str]:
    """Return the index letters of operands and result, with ellipses replaced by capital letters from Z down."""
    inputs, arrow, out = spec.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ranks):
        raise InputError(f"einsum {spec!r} names {len(terms)} operands, {len(ranks)} were given")
    dots = max(
        (n - len(t.replace("...", "")) for t, n in zip(terms, ranks, strict=True) if "..." in t),
        default=0,
    )
    # Capital letters, which specifications rarely use, stand for the axes of an ellipsis.
    names = "ZYXWVUTS"[:dots]
    terms = [
        t.replace("...", names[dots - (n - len(t.replace("...", ""))) :])
        for t, n in zip(terms, ranks, strict=True)
    ]
    joined = "".join(terms)
    if not arrow:
        # Without an arrow letters that occur once stay, in alphabetical order, as in NumPy.
        once = (c for c in set(joined) - set(names) if joined.count(c) == 1)
        out = names + "".join(sorted(once))
    with_ranks = zip(terms, ranks, strict=True)
    if any(len(t) != n for t, n in with_ranks):
        raise InputError(f"einsum {spec!r} does not fit operands with {ranks} axes")
    return terms, out.replace("...", names)
