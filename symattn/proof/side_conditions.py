"""Side conditions of a proof: that every divisor is not zero, that roots and logarithms have arguments.

These are hypotheses, printed with the proof. Where they cannot be met, nothing is proved: an expression that is zero at
some place whatever the letters are is refused as a divisor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from symattn.arrays.index import expressions as ex
from symattn.arrays.index.building import factors, known_positive, substitute
from symattn.arrays.index.writing import named
from symattn.document.errors import Refused
from symattn.proof.clearing import cleared
from symattn.proof.concrete import zero_somewhere
from symattn.proof.counting import cut_off, nodes
from symattn.proof.signs import never_negative

_OF_FUNCTION = {"rsqrt": ">", "log": ">", "sqrt": "≥"}
SIZE = 3  # of every sort, where a divisor is looked at


def needed(noted: Iterable[ex.Demand], sides: Iterable[ex.Expression]) -> tuple[ex.Demand, ...]:
    """The demands ``noted`` while the sides were written, and those that their forms show; each once.

    Raises Refused for a divisor that is zero at some place, whatever the letters are.
    """
    strongest: dict[ex.Canonical, ex.Demand] = {}
    every = [*noted, *_within(sides)]
    _expect_divisors(every)
    for relation, x in (d for d in every if d.relation != ex.TESTED):
        d = ex.Demand(relation, _settled(x))
        if _met(d):
            continue
        key = ex.canonical(d.expression, named(d.expression))
        if strongest.setdefault(key, d).relation != d.relation:  # ≥ and ≠ make >
            strongest[key] = ex.Demand(">", d.expression)
    for d in strongest.values():
        if d.relation != "≥" and _impossible(d.expression):
            raise Refused("a division by what is zero at some place, whatever the letters are")
    return tuple(strongest.values())


def _expect_divisors(every: Iterable[ex.Demand]) -> None:
    """Raise Refused where the code asks whether letters are zero that it does not divide by, as if they never were."""
    result = {(d.relation == ex.TESTED, ex.canonical(x, named(x))): x for d in every for x in (_settled(d.expression),)}
    for tested, key in result:
        if tested and (False, key) not in result and not positive(result[tested, key]):
            raise Refused("the code asks whether letters are zero, and divides by them nowhere: there is no answer")


def _settled(x: ex.Expression) -> ex.Expression:
    """``x`` with an index that occurs as π(i) alone renamed to i: the demand is one for all places."""
    for i in sorted(x.free):
        if i.image and not any(j != i and j[:2] == i[:2] for j in x.free):
            x = substitute(x, {i: i._replace(image=())})
    return x


def _within(sides: Iterable[ex.Expression]) -> Iterator[ex.Demand]:
    """Yield the demands of the forms of ``sides``, arguments of opaque functions included."""
    seen: set[ex.Expression] = set()
    open_ = list(sides)
    while open_:
        x = open_.pop()
        if x in seen:
            continue
        seen.add(x)
        open_.extend(x.children)
        if isinstance(x, ex.Ratio):
            yield ex.Demand("≠", x.children[1])
        elif isinstance(x, ex.Opaque) and x.name in _OF_FUNCTION:
            yield ex.Demand(_OF_FUNCTION[x.name], x.children[0])


def _met(d: ex.Demand) -> bool:
    """Return whether the form of the expression shows that the demand is met."""
    return positive(d.expression) or (d.relation == "≥" and never_negative(d.expression))


def positive(x: ex.Expression) -> bool:
    """Return whether ``x`` > 0 by its form: ``known_positive``, or one positive term among nonnegative ones."""
    if isinstance(x, ex.Sum):
        return any(map(positive, x.children)) and all(positive(y) or never_negative(y) for y in x.children)
    if isinstance(x, (ex.Product, ex.Ratio)):
        return all(map(positive, x.children))
    if isinstance(x, ex.Total):
        return positive(x.body) or _meets_itself(x)
    return known_positive(x)


def _meets_itself(x: ex.Total) -> bool:
    """Return whether ``x`` is Σ_j [j ≤ i] … of what is positive: j = i is there, as a token may attend to itself."""
    relations = [f for f in factors(x.body) if isinstance(f, ex.Predicate)]
    others = {i for f in relations for i in f.sides} - {x.index}
    return (
        len(others) == 1
        and all(i[:2] != x.index[:2] for i in others)  # π(j) = j may hold for no j
        and all(f.relation in ("≤", "=") for f in relations)
        and all(positive(f) for f in factors(x.body) if f not in relations)
    )


def _impossible(x: ex.Expression) -> bool:
    """Return whether ``x`` is zero at some place of the sizes looked at; False where that cannot be determined."""
    try:
        numerator = cleared(x).numerator
        sorts = {i.sort for i in x.free} | _sorts(numerator)
        cut_off(numerator, ())
        return zero_somewhere(numerator, x.free, dict.fromkeys(sorts, SIZE))
    except Refused:
        return False


def _sorts(x: ex.Expression) -> set[str]:
    """The sorts that sums run over, and those whose size stands in ``x`` as a number."""
    every = list(nodes(x, arguments=True))
    return {y.index.sort for y in every if isinstance(y, ex.Binder)} | {
        y.sort for y in every if isinstance(y, ex.Count)
    }
