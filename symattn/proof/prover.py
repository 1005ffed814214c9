"""Whether two arrays whose sizes are letters are equal for all sizes.

1. Equal normal forms: the two sides are the same expression up to bound names and order. Any depth of nesting.
2. Cut-off: the difference is cleared and the cut-off theorem (``counting``) names a box of sizes, or one size, at
   which a polynomial identity decides it (``concrete``).
3. Row-local reciprocals: where a reciprocal 1/Z_i stands under a sum over i and everything of that sort has one index,
   the identity is one in a tensor product over i; a box for i, and a larger one for what Z sums over, decide it.
What is opaque (max, rsqrt, 1/Z) makes the test sufficient, not necessary: "not shown" is no refutation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

from symattn.arrays.index.building import add, known_positive, negate
from symattn.arrays.index.canonical import canonical
from symattn.arrays.index.expressions import Exponential, Expression, Index, Letter, Ratio
from symattn.arrays.index.positions import as_number
from symattn.arrays.indexed import Indexed, index_variables
from symattn.errors import InputError, Refused
from symattn.proof.clearing import cleared, is_reciprocal
from symattn.proof.concrete import Rules, vanishes_at
from symattn.proof.counting import Sizes, cut_off, most_bound, nodes
from symattn.proof.settling import settled


@dataclass(frozen=True)
class Case:
    """One equation of elements: how it was decided, and at which sizes."""

    how: str  # "normal form", "one size", "box", "row-local box"
    counted: Sizes = field(default_factory=dict)
    sizes: tuple[Sizes, ...] = ()
    denominators: tuple[Expression, ...] = ()


@dataclass(frozen=True)
class Proof:
    """The outcome: ``proved``, or the sizes at which the cleared identity fails (``open_at``) or why it stopped."""

    proved: bool
    cases: tuple[Case, ...] = ()
    open_at: Sizes | None = None
    why: str = ""

    @property
    def denominators(self) -> tuple[Expression, ...]:
        """What must not be zero: the divisors of both sides as written that are not positive by their form."""
        seen: dict[Any, Expression] = {}
        for case in self.cases:
            for x in case.denominators:
                seen.setdefault(canonical(x, {i: i.sort for i in x.free}), x)
        return tuple(seen.values())


class _NotShown(Exception):
    def __init__(self, sizes: Sizes, why: str) -> None:
        super().__init__(why)
        self.sizes, self.why = sizes, why


def prove(left: Indexed, right: Indexed, rules: Rules = ()) -> Proof:
    """Whether ``left`` = ``right`` for all sizes, given the rules cos² + sin² = 1 for the named pairs of letters."""
    cases = []
    try:
        for indices, a, b in equations(left, right):
            cases.append(_case(indices, a, b, rules))
    except _NotShown as gap:
        return Proof(False, tuple(cases), gap.sizes, gap.why)
    except Refused as refusal:
        return Proof(False, tuple(cases), None, str(refusal))
    return Proof(True, tuple(cases))


def equations(left: Indexed, right: Indexed) -> Iterator[tuple[tuple[Index, ...], Expression, Expression]]:
    """The elements of both sides, one equation for each combination of blocks, with their free indices.

    A number, or an array without axes, is equal to every element of the other side.
    """
    left, right = _spread(left, right), _spread(right, left)
    if [a.blocks for a in left.shape] != [a.blocks for a in right.shape]:
        raise InputError(f"the two sides have the shapes {left.shape} and {right.shape}")
    for places in left.places():
        indices = index_variables(places)
        yield indices, *[settled(as_number(side.at(places)), indices) for side in (left, right)]


def _spread(x: Any, other: Any) -> Indexed:
    """``x``; if it has no axes, everywhere in the shape of ``other``."""
    x = Indexed.lift(x)
    return x if x.ndim else Indexed(Indexed.lift(other).shape, lambda _: x.at(()))


def _case(indices: tuple[Index, ...], a: Expression, b: Expression, rules: Rules) -> Case:
    names = {i: ("free", n) for n, i in enumerate(indices)}
    divisors = tuple(x.children[1] for side in (a, b) for x in nodes(side) if isinstance(x, Ratio))
    unsure = tuple(d for d in divisors if not known_positive(d))
    if canonical(a, names) == canonical(b, names):
        return Case("normal form", denominators=unsure)
    numerator = cleared(add(a, negate(b))).numerator
    limits = cut_off(numerator, indices)
    one_size = None if rules else limits.one_size
    grid = [one_size] if one_size is not None else list(_box(limits.top))
    needs_numbers = False
    for sizes in grid:
        verdict = vanishes_at(numerator, indices, sizes, rules)
        if not verdict:
            raise _NotShown(sizes, "the cleared identity fails at these sizes, as a polynomial in its letters")
        needs_numbers |= verdict == "numbers"
    if needs_numbers:
        return _row_local(numerator, indices, unsure, rules)
    how = "one size" if one_size is not None else "box"
    return Case(how, limits.counted, tuple(grid), unsure)


def _box(top: Sizes) -> Iterator[Sizes]:
    sorts = sorted(top)
    for sizes in product(*[range(top[s] + 1) for s in sorts]):
        yield dict(zip(sorts, sizes, strict=True))


def _row_local(numerator: Expression, indices: tuple[Index, ...], unsure: tuple[Expression, ...], rules: Rules) -> Case:
    """The identity holds with R Z = 1 in the box: decide it for all sizes where reciprocals are local to a row.

    If no letter and no exponential has two indices of a row sort r, the identity lives in a tensor product over r,
    where D_r bounds the sizes to try. At a size n_r the identity is cleared by Π Z^A, A the most reciprocals in a
    term: that adds A indices of the summed sorts for each of the Π (D_r + 1) different Z at most. Sizes start at 1,
    where Z is not an empty sum; a polynomial of degree k is zero if it vanishes at 1, …, k + 1.
    """
    rows, columns = _rows_and_columns(numerator)
    top = cut_off(numerator, indices).top
    if rows & columns or not _local(numerator, rows):
        raise _NotShown(top, "it needs 1/Z · Z = 1 under a sum, and the rows are not independent")
    extra = most_reciprocals(numerator) * prod(top.get(r, 0) + 1 for r in rows)
    limits = cut_off(numerator, indices, dict.fromkeys(columns, extra))
    grid = [{s: n + 1 for s, n in sizes.items()} for sizes in _box({**limits.top, **{r: top.get(r, 0) for r in rows}})]
    for sizes in grid:
        if not vanishes_at(numerator, indices, sizes, rules):
            raise _NotShown(sizes, "the identity fails at these sizes with 1/Z · Z = 1")
    return Case("row-local box", limits.counted, tuple(grid), unsure)


def _rows_and_columns(x: Expression) -> tuple[set[str], set[str]]:
    """The sorts on which reciprocals depend, and those over which they sum."""
    reciprocals = [y for y in nodes(x) if is_reciprocal(y)]
    rows = {i.sort for y in reciprocals for i in y.free}
    columns = {s for y in reciprocals for z in nodes(y.children[0]) for s in most_bound(z)}
    return rows, columns


def _local(x: Expression, rows: set[str]) -> bool:
    """Whether every letter and every exponential has at most one index of each of the sorts ``rows``."""
    for y in nodes(x):
        if isinstance(y, Letter) and any(Counter(i.sort for i in y.indices)[s] > 1 for s in rows):
            return False
        if isinstance(y, Exponential):
            bound = most_bound(y.children[0])
            if any(Counter(i.sort for i in y.free)[s] > 1 or bound[s] for s in rows):
                return False
    return True


def most_reciprocals(x: Expression) -> int:
    """The most reciprocal letters in any term."""
    if is_reciprocal(x):
        return 1
    below = [most_reciprocals(y) for y in x.children]
    if type(x).__name__ == "Sum":
        return max(below)
    return sum(below) if type(x).__name__ == "Product" else max(below, default=0)
