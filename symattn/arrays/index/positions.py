"""Positions of tokens when sizes are letters: integer combinations of sizes and indices, and how they compare.

``arange(p + n)`` has the elements i over the block p and n_p + j over the block n. A comparison is decided if
0 ≤ i < n_s decides it for all sizes, becomes a predicate if both sides are indices of one sort, and is refused else.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product
from math import ceil

from symattn.arrays.index import expressions as ex
from symattn.arrays.index.axes import Linear, axis, linear
from symattn.arrays.index.building import add, as_written, constant, multiply, negate, predicate
from symattn.arrays.notes import Polynomial, any_way, meet_branch, meet_place
from symattn.document.errors import Undecided

PLACE = "position in "  # prefix of the names of letters that stand for positions


def as_number(x: ex.Expression) -> ex.Expression:
    """Return a position as a number: its indices become letters with arbitrary values. (No array has such a name.)"""
    if not isinstance(x, ex.Position):
        return x
    with as_written(False):
        places = [
            multiply(constant(sign), ex.Letter(PLACE + i.sort, (i,))) for sign, i in x.indices
        ]
        return add(x.offset.expression(), *places)


def as_position(x: ex.Expression) -> ex.Position | None:
    """Return an integer, a size or a position as a position; None for anything else."""
    if isinstance(x, ex.Position):
        return x
    if isinstance(x, ex.Constant):
        # Sizes around this number may decide otherwise, so they are noted for the proof.
        meet_place(ceil(x.value))
    if isinstance(x, ex.Constant) and x.value.denominator == 1:
        return ex.Position(linear(int(x.value)), ())
    if isinstance(x, ex.Count):
        return ex.Position(linear(axis(x.sort)), ())
    return None


def add_positions(a: ex.Position, b: ex.Position) -> ex.Position:
    """a + b."""
    return ex.Position(a.offset + b.offset, a.indices + b.indices)


def negate_position(a: ex.Position) -> ex.Position:
    """−a."""
    negated = tuple((-sign, i) for sign, i in a.indices)
    return ex.Position(-a.offset, negated)


def at_most(a: ex.Expression, b: ex.Expression, strict: bool) -> ex.Expression:
    """[a ≤ b], or [a < b] if ``strict``, as a predicate. Raises Undecided."""
    x, y = as_position(a), as_position(b)
    if x is None or y is None:
        value = _difference_of_positions(a, b)
        if value is not None:
            return ex.ONE if value < 0 or (value == 0 and not strict) else ex.ZERO
        raise Undecided("indexed: an order between elements that are letters")
    gap = add_positions(y, negate_position(x))
    rest: Linear = gap.offset - int(strict)  # the question is now: rest + Σ ups − Σ downs ≥ 0 ?
    ups, downs = _cancel_opposite_indices(gap.indices)
    # The least value decides for all sizes and indices.
    if _never_negative(rest, downs, ups):
        return ex.ONE
    # The negation is the same question for the other side.
    if _never_negative(-rest - 1, ups, downs):
        return ex.ZERO
    number = rest.coefficients.get((), 0)
    bare = not rest.coefficients.keys() - {()}
    # Proofs know these predicates: i ≤ j and i < j of one sort.
    one_each = len(ups) == len(downs) == 1
    if one_each and ups[0].sort == downs[0].sort and bare and number in (0, -1):
        return predicate("≤" if number == 0 else "<", downs[0], ups[0])
    meet_place(number)
    raise Undecided(f"indexed: {a} {'<' if strict else '≤'} {b} is not decided for all sizes")


def same_position(a: ex.Expression, b: ex.Expression) -> ex.Expression:
    """[a = b] for positions, as a predicate. Raises Undecided."""
    x, y = as_position(a), as_position(b)
    if x is None or y is None:
        raise Undecided("indexed: equality of elements that are letters is what the prover decides")
    # a = b if their difference is 0 for all indices.
    gap = add_positions(y, negate_position(x))
    ups, downs = _cancel_opposite_indices(gap.indices)
    # Constant difference: equal or never equal.
    if not ups and not downs and set(gap.offset.coefficients) <= {()}:
        return ex.ZERO if gap.offset.coefficients else ex.ONE
    # i − j of one sort: equal where the indices are.
    one_each = len(ups) == len(downs) == 1
    if one_each and ups[0].sort == downs[0].sort and not gap.offset.coefficients:
        return predicate("=", downs[0], ups[0])
    # Always above or always below: never equal.
    below, above = (
        _never_negative(gap.offset - 1, downs, ups),
        _never_negative(-gap.offset - 1, ups, downs),
    )
    if below or above:
        return ex.ZERO
    raise Undecided(f"indexed: {a} = {b} is not decided for all sizes")


def equal_numbers(a: ex.Expression, b: ex.Expression) -> ex.Expression | None:
    """[a = b] while only the sizes that the code compares matter; else None."""
    value = _difference_of_positions(a, b)
    return None if value is None else ex.ONE if value == 0 else ex.ZERO


def _difference_of_positions(a: ex.Expression, b: ex.Expression) -> Fraction | None:
    """Return a − b at the sizes that decide comparisons, 0 for letters; None if there are no such sizes."""
    if not any_way():
        return None
    gap = in_sizes(add(as_number(a), negate(as_number(b))))
    # Letters have no sizes; their difference counts as 0.
    return Fraction(0) if gap is None else meet_branch(gap)


def in_sizes(x: ex.Expression) -> Polynomial | None:
    """Return an expression of sizes and numbers alone as a polynomial; None for other expressions."""
    if isinstance(x, (ex.Constant, ex.Count)):
        return {(): x.value} if isinstance(x, ex.Constant) else {(x.sort,): 1}
    parts = [in_sizes(y) for y in x.children] if isinstance(x, (ex.Sum, ex.Product)) else [None]
    polynomials = [p for p in parts if p is not None]
    if len(polynomials) < len(parts):
        return None
    # Equal monomials are added.
    if isinstance(x, ex.Sum):
        return {
            k: sum(p.get(k, 0) for p in polynomials)
            for k in {k: None for p in polynomials for k in p}
        }
    result: dict[tuple[str, ...], Fraction | int] = {(): 1}
    for p in polynomials:
        once: dict[tuple[str, ...], Fraction | int] = {}
        pairs = product(result.items(), p.items())
        for (k, c), (m, d) in pairs:
            # Sorted letters, so that n m and m n are one key.
            letters = tuple(sorted((*k, *m)))
            before = once.get(letters, 0)
            once[letters] = before + c * d
        result = once
    return result


def _cancel_opposite_indices(
    indices: tuple[ex.Signed, ...],
) -> tuple[list[ex.Index], list[ex.Index]]:
    """Return the indices with a plus and those with a minus, without those that occur in both."""
    ups = [i for s, i in indices if s > 0]
    downs = [i for s, i in indices if s < 0]
    # A copy, because the list shrinks in the loop.
    for i in list(ups):
        if i in downs:
            ups.remove(i)
            downs.remove(i)
    return ups, downs


def _never_negative(rest: Linear, downs: list[ex.Index], ups: list[ex.Index]) -> bool:
    """Return whether rest − Σ downs ≥ 0 for all sizes, each index below its size."""
    lowest = Counter(rest.coefficients)
    # An index is at most its size minus 1.
    for i in downs:
        lowest[(i.sort,)] -= 1
        lowest[()] += 1
    sorts = {(i.sort,) for i in [*ups, *downs]}
    # A size with a negative coefficient makes the form negative when it grows.
    if any(c < 0 for k, c in lowest.items() if k):
        return False
    of_sorts = sum(c for k, c in lowest.items() if k in sorts)
    return of_sorts + lowest[()] >= 0  # these sizes are at least 1
