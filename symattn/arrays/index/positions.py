"""Positions of tokens when sizes are letters: integer combinations of sizes and indices, and how they compare.

``arange(p + n)`` has the elements i over the block p and n_p + j over the block n. A comparison is decided where
0 ≤ i < n_s decides it for all sizes, leaves one predicate where both sides speak of one sort, and is refused else.
"""

from __future__ import annotations

from collections import Counter
from math import ceil

from symattn.arrays.index.axes import Linear, axis, linear
from symattn.arrays.index.building import add, as_written, constant, multiply, predicate
from symattn.arrays.index.expressions import ONE, ZERO, Constant, Count, Expression, Index, Letter, Position, Signed
from symattn.arrays.met import meet_place
from symattn.errors import Undecided

PLACE = "position in "  # so are the letters called that stand for positions


def as_number(x: Expression) -> Expression:
    """A position as a number: its indices become letters, any number for each place. (No array has such a name.)"""
    if not isinstance(x, Position):
        return x
    with as_written(False):
        places = [multiply(constant(sign), Letter(PLACE + i.sort, (i,))) for sign, i in x.indices]
        return add(x.offset.expression(), *places)


def as_position(x: Expression) -> Position | None:
    """A whole number, a size or a position as a position; None for anything else."""
    if isinstance(x, Position):
        return x
    if isinstance(x, Constant):
        meet_place(ceil(x.value))
    if isinstance(x, Constant) and x.value.denominator == 1:
        return Position(linear(int(x.value)), ())
    if isinstance(x, Count):
        return Position(linear(axis(x.sort)), ())
    return None


def add_positions(a: Position, b: Position) -> Position:
    """a + b."""
    return Position(a.offset + b.offset, a.indices + b.indices)


def negate_position(a: Position) -> Position:
    """−a."""
    return Position(-a.offset, tuple((-sign, i) for sign, i in a.indices))


def at_most(a: Expression, b: Expression, strict: bool) -> Expression:
    """[a ≤ b], or [a < b] if ``strict``, as a predicate. Raises ``Undecided``, it never guesses."""
    x, y = as_position(a), as_position(b)
    if x is None or y is None:
        raise Undecided("indexed: an order between elements that are letters")
    gap = add_positions(y, negate_position(x))
    rest: Linear = gap.offset - int(strict)  # the question is now: rest + Σ ups − Σ downs ≥ 0 ?
    ups, downs = _cancelled(gap.indices)
    if _never_negative(rest, downs, 1, ups):
        return ONE
    if _never_negative(-rest - 1, ups, 1, downs):
        return ZERO
    number = rest.coefficients.get((), 0)
    bare = not rest.coefficients.keys() - {()}
    if len(ups) == len(downs) == 1 and ups[0].sort == downs[0].sort and bare and number in (0, -1):
        return predicate("≤" if number == 0 else "<", downs[0], ups[0])
    raise Undecided(f"indexed: {a} {'<' if strict else '≤'} {b} is not decided for all sizes")


def same_position(a: Expression, b: Expression) -> Expression:
    """[a = b] for positions of one sort."""
    x, y = as_position(a), as_position(b)
    if x is None or y is None:
        raise Undecided("indexed: equality of elements that are letters is what the prover decides")
    gap = add_positions(y, negate_position(x))
    ups, downs = _cancelled(gap.indices)
    if not ups and not downs and set(gap.offset.coefficients) <= {()}:
        return ZERO if gap.offset.coefficients else ONE
    if len(ups) == len(downs) == 1 and ups[0].sort == downs[0].sort and not gap.offset.coefficients:
        return predicate("=", downs[0], ups[0])
    below, above = _never_negative(gap.offset - 1, downs, 1, ups), _never_negative(-gap.offset - 1, ups, 1, downs)
    if below or above:
        return ZERO
    raise Undecided(f"indexed: {a} = {b} is not decided for all sizes")


def _cancelled(indices: tuple[Signed, ...]) -> tuple[list[Index], list[Index]]:
    """The indices with a plus and with a minus, what occurs in both left out."""
    ups, downs = [i for s, i in indices if s > 0], [i for s, i in indices if s < 0]
    for i in list(ups):
        if i in downs:
            ups.remove(i)
            downs.remove(i)
    return ups, downs


def _never_negative(rest: Linear, downs: list[Index], least: int, ups: list[Index]) -> bool:
    """Whether rest − Σ downs ≥ 0 for all sizes; an index is at most its size less one, and its sort is not empty."""
    lowest = Counter(rest.coefficients)
    for i in downs:
        lowest[(i.sort,)] -= 1
        lowest[()] += 1
    sorts = {(i.sort,) for i in [*ups, *downs]}
    if any(c < 0 for k, c in lowest.items() if k):
        return False
    return sum(c * (least if k in sorts else 0) for k, c in lowest.items() if k) + lowest[()] >= 0
