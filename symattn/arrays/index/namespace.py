"""The namespace of ``indexed``: the same names as in other kinds, as far as letters for sizes permit."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.elementwise import Composed
from symattn.arrays.functions import FUNCTIONS
from symattn.arrays.index import building as build
from symattn.arrays.index import expressions as ex
from symattn.arrays.index import positions, structure
from symattn.arrays.index.array import Indexed, Place, Places
from symattn.arrays.index.axes import ONE_LONG, Axis, axis, same_order, split
from symattn.arrays.notes import note
from symattn.arrays.reductions import Contractions
from symattn.document.errors import InputError, Refused, Undecided

Step = Callable[..., ex.Expression]


def _make_opaque_function(name: str) -> Callable[[Any, Any], Indexed]:
    def run(self: object, a: object) -> Indexed:
        return each(lambda x: ex.Opaque(name, _refuse_forbidden_argument(name, x)), a)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"{name} of each element, an opaque function with a known slope."
    return run


class IndexedNamespace(structure.IndexStructure, Composed, Contractions):
    """Elementwise functions, reductions and products of arrays whose sizes are letters."""

    inf, nan, newaxis = np.inf, np.nan, None
    pi = Indexed.letters(ex.PI, positive=True)
    bool, float64, int64 = np.bool_, np.float64, np.int64
    kind = Indexed

    def __getattr__(self, name: str) -> Any:
        # Python looks up private names itself, such as those for copying.
        if name.startswith("_"):
            raise AttributeError(name)
        raise Refused(f"indexed lacks {name}")

    # -- elementwise ----------------------------------------------------------------------------------------------
    def add(self, a: object, b: object) -> Indexed:
        return each(_add, a, b)

    def subtract(self, a: object, b: object) -> Indexed:
        return each(_add, a, self.negative(b))

    def negative(self, a: object) -> Indexed:
        return each(
            lambda x: (
                positions.negate_position(x) if isinstance(x, ex.Position) else build.negate(x)
            ),
            a,
        )

    def positive(self, a: object) -> Any:
        return a

    def multiply(self, a: object, b: object) -> Indexed:
        return each(
            lambda x, y: build.multiply(positions.as_number(x), positions.as_number(y)), a, b
        )

    def divide(self, a: object, b: object) -> Indexed:
        return each(lambda x, y: build.divide(positions.as_number(x), positions.as_number(y)), a, b)

    def exp(self, a: Array) -> Indexed:
        return each(lambda x: build.exponential(positions.as_number(x)), a)

    def sqrt(self, a: object) -> Indexed:
        return each(lambda x: build.root(_refuse_forbidden_argument("sqrt", x)), a)

    def log(self, a: object) -> Indexed:
        return each(_opaque_logarithm, a)

    def abs(self, a: object) -> Indexed:
        """Return |x| = sign(x) · x with an opaque function sign; |−x| becomes the same expression."""
        return self.multiply(self.sign(a), a)

    def sign(self, a: object) -> Indexed:
        return each(_canonical_opaque_sign, a)

    def maximum(self, a: object, b: object) -> Indexed:
        """Return an opaque function of both operands: softmax does not depend on it."""
        return each(_opaque_maximum_of_two, a, b)

    def where(self, condition: object, a: object, b: object) -> Indexed:
        return each(_choose_by_predicate, condition, a, b)

    # -- comparisons: predicates, or refused -------------------------------------------------------------------------
    def less_equal(self, a: object, b: object) -> Indexed:
        return each(lambda x, y: positions.at_most(x, y, False), a, b)

    def less(self, a: object, b: object) -> Indexed:
        return each(lambda x, y: positions.at_most(x, y, True), a, b)

    def equal(self, a: object, b: object) -> Indexed:
        return each(_equal, a, b)

    def not_equal(self, a: object, b: object) -> Indexed:
        return self.logical_not(self.equal(a, b))

    def logical_not(self, a: object) -> Indexed:
        return each(lambda x: build.add(ex.ONE, build.negate(x)), a)

    def logical_and(self, a: object, b: object) -> Indexed:
        return each(build.multiply, a, b)

    def logical_or(self, a: object, b: object) -> Indexed:
        return self.logical_not(self.logical_and(self.logical_not(a), self.logical_not(b)))

    def isfinite(self, a: Array) -> Indexed:
        """Return where scores are allowed. An opaque maximum counts as finite, which is noted as a hypothesis."""
        return each(_is_finite, a)

    # -- reductions ---------------------------------------------------------------------------------------------------
    def sum(self, a: object, axis: object = None, keepdims: object = False, **_: object) -> Indexed:
        return _reduce_indexed_axes(
            a, axis, keepdims, lambda parts: build.add(*_bind_block_indices(build.total, parts))
        )

    def max(self, a: object, axis: object = None, keepdims: object = False, **_: object) -> Indexed:
        return _reduce_indexed_axes(
            a,
            axis,
            keepdims,
            lambda parts: ex.Opaque("max", *_bind_block_indices(build.bound, parts)),
        )

    def any_norm(self, a: object) -> Indexed:
        """Return a norm of each row, as an opaque function of it."""
        return _reduce_indexed_axes(
            a,
            -1,
            True,
            lambda parts: ex.Opaque("norm", *_bind_block_indices(build.bound_in_order, parts)),
        )

    def mean(self, a: Array, axis: object = None, keepdims: object = False, **_: object) -> Indexed:
        result = self.sum(a, axis=axis, keepdims=keepdims)
        # One division for each axis: a product of lengths that are letters is no length.
        for k in _descending_axis_numbers(a, axis):
            result = result / Indexed.lift(a.shape[k])
        return result

    def cumulative_sum(self, a: Array, axis: int = -1, **_: object) -> Indexed:
        """Return partial sums, by the predicate j ≤ i."""
        last = self.moveaxis(a, axis, -1)
        n = self.arange(a.shape[axis])
        triangle = n[None, :] <= n[:, None]
        below_diagonal = last[..., None, :] * triangle
        return self.moveaxis(self.sum(below_diagonal, axis=-1), -1, axis)

    # -- products -----------------------------------------------------------------------------------------------------
    def matmul(self, a: Array, b: Array) -> Indexed:
        """Return the product of matrices; a vector is a row on the left and a column on the right, as in NumPy."""
        a, b = Indexed.lift(a), Indexed.lift(b)
        if not a.ndim or not b.ndim:
            raise InputError("indexed: matmul of a number; hint: multiply by it")
        if a.ndim == 1:
            return (
                self.matmul(a[None, :], b)[..., 0, :]
                if b.ndim > 1
                else self.sum(_check_vectors_fit(a, b) * b, axis=-1)
            )
        if b.ndim == 1:
            return self.matmul(a, b[:, None])[..., 0]
        # Equal lengths are not enough: the parts must meet in the same order.
        if not same_order(a.shape[-1], b.shape[-2]):
            raise InputError(f"indexed: matmul of inner sizes {a.shape[-1]} and {b.shape[-2]}")
        columns = self.matrix_transpose(b)[..., None, :, :]
        return self.sum(a[..., :, None, :] * columns, axis=-1)

    # -- creation -----------------------------------------------------------------------------------------------------
    def asarray(self, x: object, dtype: object = None, **_: object) -> Indexed:
        return Indexed.lift(x).astype(dtype)

    def astype(self, a: object, dtype: object, **_: object) -> Indexed:
        return Indexed.lift(a).astype(dtype)

    def full(self, shape: object, value: object, **_: object) -> Indexed:
        lengths = shape if isinstance(shape, (tuple, list)) else (shape,)
        scalar = Indexed.lift(value)
        return Indexed(lengths, lambda _: scalar.at(()))

    def zeros(self, shape: object, **_: object) -> Indexed:
        return self.full(shape, 0)

    def ones(self, shape: object, **_: object) -> Indexed:
        return self.full(shape, 1)

    def zeros_like(self, a: Array, **_: object) -> Indexed:
        return self.full(a.shape, 0)

    def ones_like(self, a: Array, **_: object) -> Indexed:
        return self.full(a.shape, 1)

    def eye(
        self, n_rows: object, n_cols: object = None, /, *, k: object = 0, **_: object
    ) -> Indexed:
        """Return the identity matrix: δ_ij, 1 where row and column are the same position, and 0 elsewhere.

        Raises Refused for an offset ``k``, and for numbers of rows and columns of which it depends on the sizes
        where the diagonal ends, such as n and m.
        """
        if not isinstance(k, int) or k:
            raise Refused(
                f"indexed: eye with the offset k = {k}; only the main diagonal, k = 0, is known for all sizes"
            )
        rows = axis(n_rows)
        columns = rows if n_cols is None else axis(n_cols)
        # With equal blocks entries meet in pairs, also within products of sorts.
        if rows.blocks == columns.blocks:
            return Indexed([rows, columns], _same_entry)
        row_places = self.arange(n_rows)[:, None]
        equal = self.equal(row_places, self.arange(n_cols)[None, :])

        def at(places: Places) -> ex.Expression:
            # Which entries are equal may depend on the sizes at some places only.
            try:
                return equal.at(places)
            except Undecided as reason:
                raise Refused(
                    f"indexed: eye of {rows} rows and {columns} columns, for all sizes"
                ) from reason

        return Indexed([rows, columns], at)

    def arange(self, n: object, **_: object) -> Indexed:
        """Return positions 0, 1, …: i over the first block, its length + j over the next, and so on."""
        a = axis(n)

        def at(places: Places) -> ex.Expression:
            block, indices = places[0]
            offset = Axis(a.blocks[:block]).linear()
            # Numbers count within the block in row-major order.
            if all(isinstance(i, int) for i in indices):
                flat = int(np.ravel_multi_index(indices, a.blocks[block])) if indices else 0  # type: ignore[arg-type]
                return ex.Position(offset + flat, ())
            # The position i · n + j would be no integer combination of sizes and indices.
            if len(indices) != 1:
                raise Refused("indexed: a position within a product of sorts")
            return ex.Position(offset, ((1, indices[0]),))

        return Indexed([a], at)


# Every other function of one argument is opaque: equal arguments give equal values.
for _name in FUNCTIONS.keys() - vars(IndexedNamespace):
    setattr(IndexedNamespace, _name, _make_opaque_function(_name))


def each(step: Step, *operands: object) -> Indexed:
    """Apply ``step`` to the elements, with broadcasting."""
    arrays = [Indexed.lift(x) for x in operands]
    rank = max(x.ndim for x in arrays)
    # Broadcasting as in NumPy, but a length that is a letter fits only itself.
    shape = [ONE_LONG] * rank
    for x in arrays:
        padded = (ONE_LONG,) * (rank - x.ndim) + x.shape
        shape = [_common_broadcast_axis(a, b) for a, b in zip(shape, padded, strict=True)]

    def pick(x: Indexed, places: Places) -> ex.Expression:
        # Axes are aligned from the last one.
        own = range(rank - x.ndim, rank)
        return x.at(
            tuple(
                _place_on_own_axis(places[k], shape[k], a)
                for k, a in zip(own, x.shape, strict=True)
            )
        )

    return Indexed(shape, lambda places: step(*[pick(x, places) for x in arrays]))


def spread(x: object, like: object) -> Indexed:
    """Broadcast ``x`` against ``like``."""
    return each(lambda a, _: a, x, like)


def _same_entry(places: Places) -> ex.Expression:
    """Return δ for two places of axes of the same order: 1 if they are in one block with equal indices."""
    (block, entry), (other_block, other_entry) = places
    # Entries of different blocks are never the same.
    if block != other_block:
        return ex.ZERO
    same: list[ex.Expression] = []
    for i, j in zip(entry, other_entry, strict=True):
        # Numbers are compared now, letters by a predicate.
        if isinstance(i, int) or isinstance(j, int):
            same.append(ex.ONE if i == j else ex.ZERO)
        else:
            same.append(build.predicate("=", i, j))
    return build.multiply(*same)


def _check_vectors_fit(a: Indexed, b: Indexed) -> Indexed:
    """Return the first of two vectors of one length. Raises InputError for others."""
    if not same_order(a.shape[0], b.shape[0]):
        raise InputError(f"indexed: matmul of inner sizes {a.shape[0]} and {b.shape[0]}")
    return a


def _common_broadcast_axis(a: Axis, b: Axis) -> Axis:
    # Length 1 broadcasts; other axes need the same parts.
    if b.blocks == ((),) or same_order(a, b):
        return a
    if a.blocks == ((),):
        return b
    raise InputError(
        f"indexed: axes of lengths {a} and {b} do not fit; hint: name equal lengths with one letter"
    )


def _place_on_own_axis(place: Place, of: Axis, own: Axis) -> Place:
    """Return the place in ``own``, an axis of length one or in the same order, that belongs to a place in ``of``."""
    # An axis of length 1 has one place only.
    if own.blocks in (((),), of.blocks):
        return place if own.blocks == of.blocks else (0, ())
    number, entries = place
    # Axes of the same order have equal parts, although their blocks may be cut differently.
    k = next(
        k
        for k, (block, at, _) in enumerate(split(of))
        if block == number and at == entries[: len(at)]
    )
    leading = len(split(of)[k][1])
    block, at, _ = split(own)[k]
    return block, (*at, *entries[leading:])


def _add(a: ex.Expression, b: ex.Expression) -> ex.Expression:
    if isinstance(a, ex.Position) or isinstance(b, ex.Position):
        # Positions add as positions, so that comparisons can still be decided.
        x, y = positions.as_position(a), positions.as_position(b)
        if x is not None and y is not None:
            return positions.add_positions(x, y)
    return build.add(positions.as_number(a), positions.as_number(b))


def _opaque_logarithm(x: ex.Expression) -> ex.Expression:
    x = _refuse_forbidden_argument("log", x)
    # A logarithm exists for positive arguments only.
    ex.demand(">", x)
    return ex.Opaque("log", x)


def _refuse_forbidden_argument(name: str, x: ex.Expression) -> ex.Expression:
    x = positions.as_number(x)
    if isinstance(x, ex.Masked):
        raise Refused(f"indexed: {name} of -inf")
    return x


def _canonical_opaque_sign(x: ex.Expression) -> ex.Expression:
    """Return sign(x) or −sign(−x), by which argument is first in the order of their texts."""
    y = positions.as_number(x)
    if build.kept():
        return ex.Opaque("sign", y)
    # The first text of x and −x: both orders give one expression.
    z = min(y, build.negate(y), key=repr)
    if z is y:
        return ex.Opaque("sign", z)
    return build.negate(ex.Opaque("sign", z))


def _opaque_maximum_of_two(a: ex.Expression, b: ex.Expression) -> ex.Expression:
    # As max(−∞, x) = x; as written, the call stays for the checker to reduce.
    if a is b is ex.FORBIDDEN or (ex.FORBIDDEN in (a, b) and not build.kept()):
        return b if a is ex.FORBIDDEN else a
    pair = (positions.as_number(a), positions.as_number(b))
    # A maximum is symmetric, so both orders are one expression.
    return ex.Opaque("max", *(pair if build.kept() else sorted(pair, key=repr)))


def _choose_by_predicate(
    condition: ex.Expression, a: ex.Expression, b: ex.Expression
) -> ex.Expression:
    _expect_truth(condition)
    a, b = positions.as_number(a), positions.as_number(b)
    # The usual mask: scores where allowed, −∞ elsewhere.
    if b is ex.FORBIDDEN:
        return (
            # Two masks allow what both allow, as their sum does.
            build.add(a, ex.Masked(condition, ex.ZERO))
            if isinstance(a, ex.Masked)
            else ex.Masked(condition, a)
        )
    # Swapped branches are the negated condition.
    if a is ex.FORBIDDEN:
        return _choose_by_predicate(build.add(ex.ONE, build.negate(condition)), b, a)
    # As conditions are 0 or 1, a choice is c a + (1 − c) b.
    otherwise = build.add(ex.ONE, build.negate(condition))
    return build.add(build.multiply(condition, a), build.multiply(otherwise, b))


def _equal(a: ex.Expression, b: ex.Expression) -> ex.Expression:
    if isinstance(a, ex.Position) or isinstance(b, ex.Position):
        return positions.same_position(a, b)
    if isinstance(a, ex.Constant) and isinstance(b, ex.Constant):
        return ex.ONE if a is b else ex.ZERO
    if (truth := positions.equal_numbers(a, b)) is not None:
        return truth
    # Code tests a divisor for 0; in the general case it is not, which is a hypothesis.
    if b is ex.ZERO and not isinstance(a, ex.Masked):
        if not build.known_positive(a):
            ex.demand(ex.TESTED, a)
        return ex.ZERO
    raise Undecided("indexed: equality of letters is what the prover decides, not the code")


def _expect_truth(x: ex.Expression) -> None:
    """Note that letters in a condition are 0 or 1, as they become factors. Raises Undecided for other expressions."""
    for y in build.terms(x):
        for f in build.factors(y):
            if isinstance(f, ex.Letter):
                # A letter in a condition is a factor of the result, so it has to be 0 or 1.
                note(f"hypothesis: {f.name.split('@')[0].split('[')[0]} holds truth values, 0 or 1")
            elif isinstance(f, (ex.Sum, ex.Product)):
                _expect_truth(f)
            elif not isinstance(f, (ex.Predicate, ex.Constant)):
                raise Undecided("indexed: a condition that is neither a mask nor made of positions")


def _is_finite(x: ex.Expression) -> ex.Expression:
    if isinstance(x, ex.Masked):
        return x.allowed
    # A maximum of masked scores is −∞ only in rows without keys.
    if isinstance(x, ex.Opaque) and x.name == "max" and _holds_mask(x):
        note("hypothesis: every row has an allowed key, so that its maximum is finite")
    return ex.ONE


def _holds_mask(x: ex.Expression) -> bool:
    return isinstance(x, ex.Masked) or any(map(_holds_mask, x.children))


def _descending_axis_numbers(a: Array, axis: Any) -> list[int]:
    chosen = range(a.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    # The last axis first, so that the numbers of the remaining ones stay valid.
    return sorted((k % a.ndim for k in chosen), reverse=True)


Parts = list[tuple[list[ex.Index], ex.Expression]]


def _reduce_indexed_axes(
    a: Any, axis: object, keepdims: object, join: Callable[[Parts], ex.Expression]
) -> Indexed:
    for k in _descending_axis_numbers(a, axis):
        a = _over(a, k, join)
        if keepdims:
            a = a[(*[slice(None)] * k, None)]
    return a  # type: ignore[no-any-return]


def _over(a: Indexed, k: int, join: Callable[[Parts], ex.Expression]) -> Indexed:
    """Reduce the axis k: ``join`` gets, for each block, the indices to bind and the element that contains them."""
    length = a.shape[k]

    def at(places: Places) -> ex.Expression:
        parts: Parts = []
        # Blocks are reduced one by one and joined: a sum over p + n is two sums.
        for b, block in enumerate(length.blocks):
            # Numbers are written out, as only sorts can be bound.
            number_ranges = [range(f) for f in block if isinstance(f, int)]
            for numbers in itertools.product(*number_ranges):
                number = iter(numbers)
                entry = tuple(ex.fresh(f) if isinstance(f, str) else next(number) for f in block)
                before = places[:k]
                own_places = (*before, (b, entry), *places[k:])
                element = a.at(own_places)
                parts.append(([i for i in entry if isinstance(i, ex.Index)], element))
        return join(parts)

    shape = (*a.shape[:k], *a.shape[k + 1 :])
    return Indexed(shape, at)


def _bind_block_indices(
    bind: Callable[[ex.Index, ex.Expression], ex.Expression], parts: Parts
) -> list[ex.Expression]:
    """Return the elements of the blocks, with their indices bound."""
    return [
        reduce(lambda x, i: bind(i, x), reversed(indices), positions.as_number(x))
        for indices, x in parts
    ]
