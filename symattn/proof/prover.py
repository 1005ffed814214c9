"""Prove that two arrays whose sizes are letters are equal for all sizes from 1 on.

1. Equal normal forms: the two sides are the same expression up to bound names and order. Any depth of nesting.
2. Cut-off: the difference is cleared of denominators and the cut-off theorem (``counting``) names a box of sizes, or
   one size, at which polynomial identities decide it (``concrete``).
3. Rows: if that needs 1/Z · Z = 1 for reciprocals under a sum, larger boxes decide it (``counting``).

With opaque functions (max, rsqrt, 1/Z) the test is sufficient, not necessary: "not shown" is no refutation. Every proof
assumes that both sides are defined: their divisors, and arguments of roots and logarithms, are in ``demands``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from typing import Any, TypeVar

from symattn.arrays.array import Array
from symattn.arrays.index import expressions
from symattn.arrays.index.array import Places, index_variables, once
from symattn.arrays.index.axes import same_order
from symattn.arrays.index.building import add, as_written, negate, substitute
from symattn.arrays.index.positions import PLACE, as_number
from symattn.arrays.indexed import Indexed
from symattn.arrays.notes import listening, note
from symattn.document.errors import InputError, Meaningless, Refused, Undecided
from symattn.document.text import equal_sizes
from symattn.proof.clearing import RepeatedDenominator, cleared, is_reciprocal
from symattn.proof.concrete import Rules, vanishes_at
from symattn.proof.counting import CutOff, Sizes, cut_off, grids, nodes
from symattn.proof.signs import needed

Sides = Callable[[], tuple[expressions.Expression, expressions.Expression]]
T = TypeVar("T")


def unsimplified(at: Callable[[], T]) -> T:
    """Return the value of ``at`` before any simplification, or simplified if the unsimplified one has no value."""
    try:
        with as_written(), expressions.recorded(), listening(), once():
            return at()
    except (Refused, Undecided):
        return at()


@dataclass(frozen=True)
class ElementEquation:
    """An equation between elements: how it was decided, and at which sizes.

    ``numerator`` over the product of ``divisors`` is ``left`` − ``right``; it is zero at all of ``sizes``, which by
    ``limits`` is enough. With "rows", each number of rows has limits of its own; the largest number's are stored.
    ``at`` computes both sides.
    """

    indices: tuple[expressions.Index, ...]
    left: expressions.Expression
    right: expressions.Expression
    how: str  # "normal form", "one size", "box", "rows"
    numerator: expressions.Expression | None = None
    divisors: tuple[RepeatedDenominator, ...] = ()
    limits: CutOff | None = None
    sizes: tuple[Sizes, ...] = ()
    at: Sides | None = field(default=None, compare=False, repr=False)

    @cached_property
    def written(self) -> tuple[expressions.Expression, expressions.Expression]:
        """Both sides before any simplification."""
        return unsimplified(self.at) if self.at else (self.left, self.right)


@dataclass(frozen=True)
class Proof:
    """The outcome: ``proved``, or the sizes at which the cleared identity fails (``open_at``), or why it stopped.

    The hypotheses are ``demands``, without which a side is undefined, and ``notes``, the assumptions that the code
    states. ``rules`` are the pairs (cos, sin) for which cos² + sin² = 1 was used. After a failure, ``decisive`` says
    that nothing was opaque, so that the statement is false at ``open_at``, and ``meaningless`` that it was refused
    because it cannot mean what it says. ``asks``: the code tests whether a divisor is zero, which the proof excludes.
    """

    proved: bool
    cases: tuple[ElementEquation, ...] = ()
    open_at: Sizes | None = None
    why: str = ""
    demands: tuple[expressions.Demand, ...] = ()
    notes: tuple[str, ...] = ()
    rules: Rules = ()
    decisive: bool = False
    meaningless: bool = False
    asks: bool = False


class _NotShown(Exception):
    def __init__(self, sizes: Sizes, why: str, decisive: bool = False) -> None:
        super().__init__(why)
        self.sizes, self.why, self.decisive = sizes, why, decisive


def prove(left: Array, right: object, rules: Rules = ()) -> Proof:
    """Try to prove ``left`` = ``right`` for all sizes, given cos² + sin² = 1 for the named pairs of letters."""
    cases: list[ElementEquation] = []
    demands: tuple[expressions.Demand, ...] = ()
    with listening() as notes:
        result: dict[str, Any] = {"proved": True}
        try:
            # Demands are noted while the sides are computed, before simplification loses them.
            with expressions.recorded() as noted, once():
                every = [
                    (indices, *_settle_permuted_indices(*at(), indices), at)
                    for indices, at in _yield_element_equations(left, right)
                ]
            # Sides without elements would be equal in vain.
            if not every:
                raise Refused("nothing is stated: the sides have no elements")
            sides = [side for _, a, b, _ in every for side in (a, b)]
            demands = needed(noted, sides)
            result["asks"] = any(d.relation == expressions.TESTED for d in noted)
            for indices, a, b, at in every:
                cases.append(replace(_make_element_case(indices, a, b, rules), at=at))
        except _NotShown as gap:
            result = {
                "proved": False,
                "open_at": gap.sizes,
                "why": gap.why,
                # With assumptions in the notes, the identity may fail only where they do not hold.
                "decisive": gap.decisive and not notes,
            }
        except Refused as refusal:
            meaningless = isinstance(refusal, Meaningless)
            result = {"proved": False, "why": str(refusal), "meaningless": meaningless}
    # ``listening`` caught the notes, so they are passed on to the caller.
    for message in notes:
        note(message)
    return Proof(cases=tuple(cases), demands=demands, notes=tuple(notes), rules=rules, **result)


def equations(
    left: Indexed, right: Indexed
) -> Iterator[tuple[tuple[expressions.Index, ...], expressions.Expression, expressions.Expression]]:
    """Yield the elements of both sides, one equation for each combination of blocks, with their free indices.

    A number, or an array without axes, is equal to every element of the other side.
    """
    for indices, at in _yield_element_equations(left, right):
        yield indices, *_settle_permuted_indices(*at(), indices)


def _yield_element_equations(
    left: Array, right: Any
) -> Iterator[tuple[tuple[expressions.Index, ...], Sides]]:
    """Yield the free indices of each equation, and a function that computes its sides."""
    left, right = _spread_scalar_over_shape(left, right), _spread_scalar_over_shape(right, left)
    other_rank = left.ndim != right.ndim
    if other_rank or not all(map(same_order, left.shape, right.shape)):
        raise InputError(f"the two sides have the shapes {left.shape} and {right.shape}")
    right = right.xp.broadcast_to(right, left.shape)
    for places in left.places():
        yield index_variables(places), partial(sides_at, left, right, places)


def sides_at(
    left: Indexed, right: Indexed, places: Places
) -> tuple[expressions.Expression, expressions.Expression]:
    """Return the elements of both at a place."""
    return as_number(left.at(places)), as_number(right.at(places))


def _spread_scalar_over_shape(x: Array, other: object) -> Indexed:
    """Return ``x``; if it has no axes, everywhere in the shape of ``other``."""
    x = Indexed.lift(x)
    if x.ndim:
        return x
    return Indexed(Indexed.lift(other).shape, lambda _: x.at(()))


def _make_element_case(
    indices: tuple[expressions.Index, ...],
    a: expressions.Expression,
    b: expressions.Expression,
    rules: Rules,
) -> ElementEquation:
    names = {i: ("free", n) for n, i in enumerate(indices)}
    # Equal normal forms need no sizes.
    if expressions.canonical(a, names) == expressions.canonical(b, names):
        return ElementEquation(indices, a, b, "normal form")
    difference = cleared(add(a, negate(b)))
    numerator, divisors = difference.numerator, tuple(difference.denominators.values())
    limits = cut_off(numerator, indices)
    # Letters on a circle have relations, for which one size is not enough.
    one_size = None if rules else limits.one_size
    sorts = sorted(limits.top)
    box = (
        dict(zip(sorts, ns, strict=True))
        for ns in product(*[range(limits.top[s] + 1) for s in sorts])
    )
    sizes = (one_size,) if one_size is not None else tuple(box)
    open_at = next(
        (there for there in sizes if not vanishes_at(numerator, indices, there, rules)), None
    )
    if open_at is None:
        return ElementEquation(
            indices, a, b, "one size" if one_size else "box", numerator, divisors, limits, sizes
        )
    # Without reciprocals there is no R Z = 1 left to use, so the identity fails.
    if not any(map(is_reciprocal, nodes(numerator))):
        # A letter in two pairs would be tied further than the rules say.
        apart = len({name for pair in rules for name in pair}) == 2 * len(rules)
        raise _NotShown(
            open_at,
            _describe_failing_identity(numerator, open_at),
            apart and all(map(_is_free, nodes(numerator))),
        )
    limits, sizes = _by_rows(numerator, indices, rules)
    return ElementEquation(indices, a, b, "rows", numerator, divisors, limits, sizes)


_FUNCTIONS = {
    "max": "maxima",
    "sqrt": "roots",
    "rsqrt": "roots",
    "log": "logarithms",
    "1/": "reciprocals",
}


def _describe_failing_identity(numerator: expressions.Expression, at: Sizes) -> str:
    """Say where an identity fails, and which functions were treated as letters."""
    where = equal_sizes(at)
    names = sorted(
        {
            _FUNCTIONS.get(x.name, f"values of {x.name}")
            for x in nodes(numerator)
            if isinstance(x, expressions.Opaque)
        }
    )
    # A function as a letter may fail where the function itself does not.
    letters = f", in which {' and '.join(names)} are letters" if names else ""
    return (
        "cleared of denominators, it fails as an identity of polynomials"
        + letters
        + (where and f", at {where}")
    )


def _is_free(x: expressions.Expression) -> bool:
    """Return whether ``x`` is neither a function nor a letter for a fixed number."""
    return not isinstance(x, expressions.Opaque) and not (
        isinstance(x, expressions.Letter) and (x.name == expressions.PI or x.name.startswith(PLACE))
    )


def _by_rows(
    numerator: expressions.Expression, indices: tuple[expressions.Index, ...], rules: Rules
) -> tuple[CutOff, tuple[Sizes, ...]]:
    """Return the limits for the largest number of rows, and all sizes, at which the identity holds with R Z = 1."""
    every = list(grids(numerator, indices))
    for there in (there for _, sizes in every for there in sizes):
        if not vanishes_at(numerator, indices, there, rules, inverses=True):
            where = equal_sizes(there)
            raise _NotShown(there, f"the identity fails at {where} with 1/Z · Z = 1")
    places = tuple(there for _, sizes in every for there in sizes)
    return every[-1][0], places


def _settle_permuted_indices(
    left: expressions.Expression, right: expressions.Expression, free: Iterable[expressions.Index]
) -> tuple[expressions.Expression, expressions.Expression]:
    """Return both sides of an equation; a free index that occurs only as π(i) is renamed to i.

    An equation for all i is one for all π(i), so both sides are renamed alike. An index that occurs both bare and
    permuted, even on different sides, is refused: the statement is then about the permutation.
    """
    for i in free:
        occurring = left.free | right.free
        # An index and its image share name and sort.
        images = {j for j in occurring if j.image and j[:2] == i[:2]}
        if not images:
            continue
        if len(images) > 1 or i in occurring:
            raise Refused(
                "an index occurs both bare and permuted (are there positions or a causal mask?)"
            )
        to = {images.pop(): i}
        left, right = substitute(left, to), substitute(right, to)
    return left, right
