"""Systems of linear equations on any kind of array: by substitution if they are triangular, else by elimination.

The solution is the same number whatever the pivots, so that no rows are exchanged.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from symattn.arrays.array import Array
from symattn.document.errors import Refused
from symattn.programs.graphs import graph_operators
from symattn.programs.graphs.values import Context, Value, whole


def solve_triangle(
    c: Context, a: Value, b: Value, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Value:
    """Return A⁻¹ B, or B A⁻¹ if not ``left``, reading one triangle of A; if ``unitriangular``, with ones on its
    diagonal. Shapes: A (…, n, n), B (…, n, m) or (…, m, n)."""
    a, b = c.lifted(a), c.lifted(b)
    # X A = B is Aᵀ Xᵀ = Bᵀ, and the transpose of an upper triangle is a lower one.
    if not left:
        matrix = graph_operators.swap(c, a, -2, -1)
        right_side = graph_operators.swap(c, b, -2, -1)
        turned = solve_triangle(c, matrix, right_side, upper=not upper, unitriangular=unitriangular)
        return graph_operators.swap(c, turned, -2, -1)
    n = _order_of_square_matrix(a)
    order = range(n)[::-1] if upper else range(n)
    has_ones = unitriangular or _ones_on_diagonal(c, a)
    return _solve_by_substitution(c, a, b, order, has_ones)


def solve(
    c: Context, a: Value, b: Value, *unused: object, left: bool = True, **__: object
) -> Value:
    """Return A⁻¹ B, or B A⁻¹ if not ``left``. Shapes: A (…, n, n), B (…, n, m), or (…, n) for vectors."""
    a, b = c.lifted(a), c.lifted(b)
    # As in torch, an array with the shape of the rows of A is a batch of vectors.
    if b.ndim == 1 or tuple(b.shape) == tuple(a.shape[:-1]):
        return (
            solve(c, a, b[..., None])[..., 0]
            if left
            else solve(c, graph_operators.swap(c, a, -2, -1), b[..., None])[..., 0]
        )
    if not left:
        matrix = graph_operators.swap(c, a, -2, -1)
        right_side = graph_operators.swap(c, b, -2, -1)
        return graph_operators.swap(c, solve(c, matrix, right_side), -2, -1)
    n, zero = _order_of_square_matrix(a), _known_zeros(a)
    unit = _ones_on_diagonal(c, a)
    # A triangle needs no elimination, and no division if its diagonal is 1.
    if zero[..., *np.triu_indices(n, 1)].all():
        return _solve_by_substitution(c, a, b, range(n), unit)
    if zero[..., *np.tril_indices(n, -1)].all():
        return _solve_by_substitution(c, a, b, range(n)[::-1], unit)
    factors, _, _ = factorise(c, a)
    b = _solve_by_substitution(c, factors, b, range(n), unit=True)
    return _solve_by_substitution(c, factors, b, range(n)[::-1], unit=False)


def invert(c: Context, a: Value, *_: object, **__: object) -> Value:
    """Return A⁻¹ (…, n, n)."""
    a = c.lifted(a)
    return solve(
        c,
        a,
        c.xp.broadcast_to(
            # A⁻¹ solves A X = I.
            c.lifted(np.eye(_order_of_square_matrix(a), dtype=np.int64)),
            tuple(a.shape),
        ),
    )


def factorise(c: Context, a: Value, *_: object, **__: object) -> tuple[Value, Value, Value]:
    """Return A = L U as one matrix, L without its diagonal of ones, and which rows are exchanged: none.

    With pivots the factors are others, and the solutions by them the same numbers. Shapes: A (…, n, n), rows (…, n).
    """
    a = c.lifted(a)
    n, zero = _order_of_square_matrix(a), _known_zeros(a)
    shape_of_rows = tuple(map(int, a.shape[:-1]))
    rows = np.broadcast_to(np.arange(n), shape_of_rows)
    is_upper = zero[..., *np.tril_indices(n, -1)].all()
    is_unit_lower = zero[..., *np.triu_indices(n, 1)].all() and _ones_on_diagonal(c, a)
    # A triangle is one factor, and the identity is the other.
    if not (is_upper or is_unit_lower):
        for i in range(n - 1):
            a = _eliminate_below_pivot(c, a, i)
    return a, rows, rows


def order_rows(exchanged: np.ndarray, permutation_size: int) -> np.ndarray:
    """Return the order of rows (…, m) after row i is exchanged with row ``exchanged[…, i]``, one i after another."""
    exchanged = np.asarray(exchanged)
    own_places = np.arange(permutation_size)
    order = np.tile(own_places, (*exchanged.shape[:-1], 1))
    # One exchange after another, as LAPACK returns its pivots.
    for i in range(exchanged.shape[-1]):
        other = exchanged[..., i : i + 1].astype(np.int64)
        moved = np.take_along_axis(order, other, -1)
        np.put_along_axis(order, other, order[..., i : i + 1], -1)
        order[..., i : i + 1] = moved
    return order


def _eliminate_below_pivot(c: Context, a: Array, i: int) -> Value:
    """Return A with multiples of row i subtracted from those below, and the factors in column i."""
    pivot = a[..., i : i + 1, i : i + 1]
    # Without exchanges a pivot of 0 would be divided by, even if there is a solution.
    if _known_zeros(pivot).any():
        raise Refused("a system of equations is not read if its rows have to be exchanged")
    below = a[..., i + 1 :, i : i + 1] / pivot
    right_of_pivot = a[..., i : i + 1, i + 1 :]
    rest = a[..., i + 1 :, i + 1 :] - below * right_of_pivot
    parts = [below, rest] if i == 0 else [a[..., i + 1 :, :i], below, rest]
    rows_above = a[..., : i + 1, :]
    return graph_operators.concat(c, [rows_above, graph_operators.concat(c, parts, -1)], -2)


def _order_of_square_matrix(a: Array) -> int:
    return whole(a.shape[-1], "the order of a matrix that is inverted")


def _solve_by_substitution(
    c: Context, a: Value, b: Value, order: Iterable[int], unit: bool
) -> Value:
    """Solve for the rows of X in this order: x_i = (b_i − Σ a_ij x_j)/a_ii, the sum over rows that are known."""
    rows: dict[int, Value] = {}
    for i in order:
        row = b[..., i : i + 1, :]
        if rows:
            # Rows are solved from one end, so the known ones are contiguous.
            first, last = min(rows), max(rows) + 1
            known = graph_operators.concat(c, [rows[j] for j in range(first, last)], -2)
            factors = a[..., i : i + 1, first:last]
            row = row - factors @ known
        rows[i] = row if unit else row / a[..., i : i + 1, i : i + 1]
    return graph_operators.concat(c, [rows[i] for i in range(len(rows))], -2)


def _known_zeros(a: Value) -> np.ndarray:
    """Return which elements are 0. A residue of 0 is one: the solution mod p is then the same."""
    state = getattr(a, "state", None)
    if state is None:
        try:
            return np.asarray(a == 0, dtype=bool)
        except Refused:
            # A kind that cannot compare knows no zeros; elimination then serves for all matrices.
            return np.zeros(tuple(map(int, a.shape)), dtype=bool)
    if state.value is None or state.forbidden is not None:
        raise Refused("a system of equations with a logarithm or with −∞ is not read")
    # An element has a residue mod p and one mod q for exponents; both have to be 0.
    exponent = True if state.exponent is None else state.exponent.value == 0
    return np.asarray((state.value.value == 0) & exponent)


def _ones_on_diagonal(c: Context, a: Value) -> bool:
    n = _order_of_square_matrix(a)
    ones = _known_zeros(a - c.lifted(np.eye(n, dtype=np.int64)))
    diagonal = np.arange(n)
    return bool(ones[..., diagonal, diagonal].all())
