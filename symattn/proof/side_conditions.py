"""What a proof takes for granted: that every divisor is not zero, that roots and logarithms have arguments.

These are hypotheses, printed with the proof. Where they cannot be met, nothing is proved: an expression that is zero at
some place whatever the letters are is refused as a divisor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from symattn.arrays.index.building import factors, known_positive, substitute
from symattn.arrays.index.canonical import Canonical, canonical
from symattn.arrays.index.expressions import (
    Binder,
    Count,
    Expression,
    Opaque,
    Predicate,
    Product,
    Ratio,
    Sum,
    Total,
)
from symattn.arrays.index.side_conditions import TESTED, Demand
from symattn.arrays.index.writing import named
from symattn.document.errors import Refused
from symattn.proof.clearing import cleared
from symattn.proof.concrete import zero_somewhere
from symattn.proof.counting import cut_off
from symattn.proof.signs import never_negative

_OF_FUNCTION = {"rsqrt": ">", "log": ">", "sqrt": "≥"}
SIZE = 3  # of every sort, where a divisor is looked at


def needed(noted: Iterable[Demand], sides: Iterable[Expression]) -> tuple[Demand, ...]:
    """The demands ``noted`` while the sides were written, and those that their forms show; each once.

    Raises Refused for a divisor that is zero at some place, whatever the letters are.
    """
    strongest: dict[Canonical, Demand] = {}
    every = [*noted, *_within(sides)]
    _expect_divisors(every)
    for relation, x in (d for d in every if d.relation != TESTED):
        d = Demand(relation, _settled(x))
        if _met(d):
            continue
        key = canonical(d.expression, named(d.expression))
        if strongest.setdefault(key, d).relation != d.relation:  # ≥ and ≠ make >
            strongest[key] = Demand(">", d.expression)
    for d in strongest.values():
        if d.relation != "≥" and _impossible(d.expression):
            raise Refused("a division by what is zero at some place, whatever the letters are")
    return tuple(strongest.values())


def _expect_divisors(every: Iterable[Demand]) -> None:
    """Raise Refused where the code asks whether letters are zero that it does not divide by, as if they never were."""
    found = {(d.relation == TESTED, canonical(x, named(x))): x for d in every for x in (_settled(d.expression),)}
    for tested, key in found:
        if tested and (False, key) not in found and not positive(found[tested, key]):
            raise Refused("the code asks whether letters are zero, and divides by them nowhere: there is no answer")


def _settled(x: Expression) -> Expression:
    """``x`` with an index that occurs as π(i) alone renamed to i: the demand is one for all places."""
    for i in sorted(x.free):
        if i.image and not any(j != i and j[:2] == i[:2] for j in x.free):
            x = substitute(x, {i: i._replace(image=())})
    return x


def _within(sides: Iterable[Expression]) -> Iterator[Demand]:
    """What the forms of ``sides`` demand, arguments of opaque functions included."""
    seen: set[Expression] = set()
    open_ = list(sides)
    while open_:
        x = open_.pop()
        if x in seen:
            continue
        seen.add(x)
        open_.extend(x.children)
        if isinstance(x, Ratio):
            yield Demand("≠", x.children[1])
        elif isinstance(x, Opaque) and x.name in _OF_FUNCTION:
            yield Demand(_OF_FUNCTION[x.name], x.children[0])


def _met(d: Demand) -> bool:
    """Whether the form of the expression shows that the demand is met."""
    return positive(d.expression) or (d.relation == "≥" and never_negative(d.expression))


def positive(x: Expression) -> bool:
    """Whether ``x`` > 0 by its form: as ``known_positive``, and where one term is and the others are not negative."""
    if isinstance(x, Sum):
        return any(map(positive, x.children)) and all(positive(y) or never_negative(y) for y in x.children)
    if isinstance(x, (Product, Ratio)):
        return all(map(positive, x.children))
    if isinstance(x, Total):
        return positive(x.body) or _meets_itself(x)
    return known_positive(x)


def _meets_itself(x: Total) -> bool:
    """Whether ``x`` is Σ_j [j ≤ i] … of what is positive: j = i is there, as a token may attend to itself."""
    relations = [f for f in factors(x.body) if isinstance(f, Predicate)]
    others = {i for f in relations for i in f.sides} - {x.index}
    return (
        len(others) == 1
        and all(i[:2] != x.index[:2] for i in others)  # π(j) = j may hold for no j
        and all(f.relation in ("≤", "=") for f in relations)
        and all(positive(f) for f in factors(x.body) if f not in relations)
    )


def _impossible(x: Expression) -> bool:
    """Whether ``x`` is zero at some place of the sizes looked at; False where that cannot be told."""
    try:
        numerator = cleared(x).numerator
        sorts = {i.sort for i in x.free} | _sorts(numerator)
        cut_off(numerator, ())
        return zero_somewhere(numerator, x.free, dict.fromkeys(sorts, SIZE))
    except Refused:
        return False


def _sorts(x: Expression) -> set[str]:
    """The sorts that sums run over, and those whose size stands in ``x`` as a number."""
    below = {s for y in x.children for s in _sorts(y)}
    own = {x.index.sort} if isinstance(x, Binder) else {x.sort} if isinstance(x, Count) else set()
    return below | own
