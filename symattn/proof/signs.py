"""Signs of an index expression by its form, and the side conditions of a proof.

Never negative are numbers ≥ 0, sizes, predicates, exponentials, roots, letters declared so, squares, and sums,
products, quotients and totals of these; e^u − 1 − u for every u, as e^u lies above its tangent at 0, and so e^u − 1 for
every u that is never negative; 1 minus a product of predicates.

The side conditions, that divisors are not zero and that arguments of roots and logarithms are admissible, are
hypotheses, printed with the proof. If they cannot be met, nothing is proved: an expression that is zero at some place
whatever the letters are is refused as a divisor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from symattn.arrays.index import expressions as ex
from symattn.arrays.index.building import factors, known_positive, negate, substitute
from symattn.arrays.index.writing import named
from symattn.document.errors import Refused
from symattn.proof.clearing import cleared
from symattn.proof.concrete import zero_somewhere
from symattn.proof.counting import cut_off, nodes

_ROOTS = frozenset({"rsqrt", "sqrt"})


def never_negative(x: ex.Expression, known: Iterable[str] = ()) -> bool:
    """Return whether ``x`` ≥ 0 wherever it is defined, given that the arrays named in ``known`` are never negative.

    False says only that the form does not show it.
    """
    names = frozenset(known)
    if isinstance(x, ex.Constant):
        return x.value >= 0
    if isinstance(x, (ex.Count, ex.Predicate, ex.Exponential)):
        return True
    if isinstance(x, ex.Letter):
        return array_of(x) in names
    if isinstance(x, ex.Product):
        times = Counter(map(ex.canonical, x.children))
        # An even power is not negative, whatever its base.
        return all(never_negative(f, names) for f in x.children if times[ex.canonical(f)] % 2)
    # Before the rule for sums, which the constant −1 would fail.
    if isinstance(x, ex.Sum) and (_above_tangent(x, names) or _is_one_minus_predicates(x)):
        return True
    if isinstance(x, (ex.Sum, ex.Ratio)):
        return all(never_negative(y, names) for y in x.children)
    if isinstance(x, ex.Total):
        return never_negative(x.body, names)
    return isinstance(x, ex.Opaque) and x.name in _ROOTS


def _above_tangent(x: ex.Sum, names: frozenset[str]) -> bool:
    """Return whether ``x`` is e^u − 1 − u, or e^u − 1 with u never negative, plus terms that are never negative."""
    constants = [y for y in x.children if isinstance(y, ex.Constant)]
    if [c.value for c in constants] != [-1]:
        return False
    for e in x.children:
        if isinstance(e, ex.Exponential):
            u = e.children[0]
            rest = [y for y in x.children if y is not constants[0]]
            rest.remove(e)
            beyond = _cancel_terms(rest, u.children if isinstance(u, ex.Sum) else (u,))
            if beyond is not None and all(never_negative(y, names) for y in beyond):
                return True
            # For u ≥ 0, e^u − 1 is at least u.
            if never_negative(u, names) and all(never_negative(y, names) for y in rest):
                return True
    return False


def _cancel_terms(
    terms: Iterable[ex.Expression], minus_these: Iterable[ex.Expression]
) -> list[ex.Expression] | None:
    """Return the terms that do not cancel with ``minus_these``; None if one of these cancels with no term."""
    left = [(ex.canonical(y), y) for y in terms]
    for t in minus_these:
        negative = ex.canonical(negate(t))
        # Equal up to sign in one canonical form.
        result = next((pair for pair in left if pair[0] == negative), None)
        if result is None:
            return None
        left.remove(result)
    return [y for _, y in left]


def _is_one_minus_predicates(x: ex.Sum) -> bool:
    """Return whether ``x`` is 1 − a product of predicates."""
    if len(x.children) != 2:
        return False
    rest = [f for y in x.children for f in factors(y)]
    constants = [f.value for f in rest if isinstance(f, ex.Constant)]
    return sorted(constants) == [-1, 1] and all(
        isinstance(f, (ex.Constant, ex.Predicate)) for f in rest
    )


def array_of(x: ex.Letter) -> str:
    """Return the name of the array to which a letter belongs, without its blocks and fixed entries."""
    return x.name.split("@")[0].split("[")[0]


# Relations to 0 that functions require of their arguments.
_OF_FUNCTION = {"rsqrt": ">", "log": ">", "sqrt": "≥"}
SIZE = 3  # of every sort, when a divisor is tested


def needed(noted: Iterable[ex.Demand], sides: Iterable[ex.Expression]) -> tuple[ex.Demand, ...]:
    """Return the demands ``noted`` while the sides were computed, and those of their forms; each once.

    Raises Refused for a divisor that is zero at some place, whatever the letters are.
    """
    strongest: dict[ex.Canonical, ex.Demand] = {}
    every = [*noted, *_yield_demands_of_forms(sides)]
    _expect_divisors(every)
    for relation, x in (d for d in every if d.relation != ex.TESTED):
        d = ex.Demand(relation, _rename_permuted_indices(x))
        # A demand that the form fulfils is no hypothesis.
        if positive(d.expression) or (d.relation == "≥" and never_negative(d.expression)):
            continue
        key = ex.canonical(d.expression, named(d.expression))
        if strongest.setdefault(key, d).relation != d.relation:  # ≥ and ≠ make >
            strongest[key] = ex.Demand(">", d.expression)
    for d in strongest.values():
        # "≥" is met by 0; the other relations exclude an expression that is always 0.
        if d.relation != "≥" and _is_zero_at_sizes(d.expression):
            raise Refused("a division by what is zero at some place, whatever the letters are")
    return tuple(strongest.values())


def _expect_divisors(every: Iterable[ex.Demand]) -> None:
    """Raise Refused if the code tests whether an expression is zero that it never divides by: there is no answer."""
    result = {
        (d.relation == ex.TESTED, ex.canonical(x, named(x))): x
        for d in every
        for x in (_rename_permuted_indices(d.expression),)
    }
    # A test for zero has an answer only where a proof assumes one.
    for tested, key in result:
        if tested and (False, key) not in result and not positive(result[tested, key]):
            raise Refused(
                "the code asks whether letters are zero, and divides by them nowhere: there is no answer"
            )


def _rename_permuted_indices(x: ex.Expression) -> ex.Expression:
    """Return ``x`` with an index that occurs only as π(i) renamed to i: the demand is for all places."""
    for i in sorted(x.free):
        if i.image and not any(j != i and j[:2] == i[:2] for j in x.free):
            x = substitute(x, {i: i._replace(image=())})
    return x


def _yield_demands_of_forms(sides: Iterable[ex.Expression]) -> Iterator[ex.Demand]:
    """Yield the demands of the forms of ``sides``, arguments of opaque functions included."""
    for x in dict.fromkeys(y for side in sides for y in nodes(side, arguments=True)):
        if isinstance(x, ex.Ratio):
            yield ex.Demand("≠", x.children[1])
        elif isinstance(x, ex.Opaque) and x.name in _OF_FUNCTION:
            yield ex.Demand(_OF_FUNCTION[x.name], x.children[0])


def positive(x: ex.Expression) -> bool:
    """Return whether ``x`` > 0 by its form: ``known_positive``, or one positive term among nonnegative ones."""
    # One positive term is enough among nonnegative ones.
    if isinstance(x, ex.Sum):
        return any(map(positive, x.children)) and all(
            positive(y) or never_negative(y) for y in x.children
        )
    if isinstance(x, (ex.Product, ex.Ratio)):
        return all(map(positive, x.children))
    if isinstance(x, ex.Total):
        # Σ_j e^(…) contains the term of j itself, which is positive.
        return positive(x.body) or _meets_itself(x)
    return known_positive(x)


def _meets_itself(x: ex.Total) -> bool:
    """Return whether ``x`` is Σ_j [j ≤ i] … of positive terms, with j = i among them, as a token attends to itself."""
    relations = [f for f in factors(x.body) if isinstance(f, ex.Predicate)]
    others = {i for f in relations for i in f.sides} - {x.index}
    return (
        len(others) == 1
        and all(i[:2] != x.index[:2] for i in others)  # π(j) = j may hold for no j
        and all(f.relation in ("≤", "=") for f in relations)
        and all(positive(f) for f in factors(x.body) if f not in relations)
    )


def _is_zero_at_sizes(x: ex.Expression) -> bool:
    """Return whether ``x`` is zero at some place of the tested sizes; False if that cannot be determined."""
    try:
        numerator = cleared(x).numerator
        every = nodes(numerator, arguments=True)
        bound = {y.index.sort for y in every if isinstance(y, ex.Binder)}
        sorts = {i.sort for i in x.free} | bound
        sorts |= {y.sort for y in every if isinstance(y, ex.Count)}
        # Called for its refusals: the theorem must cover the numerator.
        cut_off(numerator, ())
        return zero_somewhere(numerator, x.free, dict.fromkeys(sorts, SIZE))
    except Refused:
        return False
