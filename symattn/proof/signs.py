"""Signs that can be read off the form of an index expression.

What is never negative: numbers ≥ 0, sizes, predicates, exponentials, roots, letters declared so, squares, and sums,
products, quotients and totals of such; e^u − 1 − u for every u, as e^u lies above its tangent at 0, and so e^u − 1 for
every u that is never negative; 1 less a product of predicates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from symattn.arrays.index import expressions as ex
from symattn.arrays.index.building import factors, negate

ZERO = " = 0"  # after the name of an array of which that is assumed
_ROOTS = frozenset({"rsqrt", "sqrt"})


def never_negative(x: ex.Expression, known: Iterable[str] = ()) -> bool:
    """Return whether ``x`` ≥ 0 wherever it is defined, given that the arrays of letters named in ``known`` are.

    A quotient is looked at where its denominator is not 0; False says that the form does not show it.
    """
    names = frozenset(known)
    if isinstance(x, ex.Constant):
        return x.value >= 0
    if isinstance(x, (ex.Count, ex.Predicate, ex.Exponential)):
        return True
    if isinstance(x, ex.Letter):
        return array_of(x) in names
    if isinstance(x, ex.Product):
        if any(isinstance(f, ex.Letter) and array_of(f) + ZERO in names for f in x.children):
            return True
        times = Counter(map(ex.canonical, x.children))
        return all(never_negative(f, names) for f in x.children if times[ex.canonical(f)] % 2)
    if isinstance(x, ex.Sum) and (_above_tangent(x, names) or _complement(x)):
        return True
    if isinstance(x, (ex.Sum, ex.Ratio)):
        return all(never_negative(y, names) for y in x.children)
    if isinstance(x, ex.Total):
        return never_negative(x.body, names)
    return isinstance(x, ex.Opaque) and x.name in _ROOTS


def _above_tangent(x: ex.Sum, names: frozenset[str]) -> bool:
    """Return whether ``x`` is e^u − 1 − u, or e^u − 1 with u never negative, or that + what is never negative."""
    constants = [y for y in x.children if isinstance(y, ex.Constant)]
    if [c.value for c in constants] != [-1]:
        return False
    for e in x.children:
        if isinstance(e, ex.Exponential):
            u = e.children[0]
            rest = [y for y in x.children if y is not constants[0]]
            rest.remove(e)
            beyond = _without(rest, u.children if isinstance(u, ex.Sum) else (u,))
            if beyond is not None and all(never_negative(y, names) for y in beyond):
                return True
            if never_negative(u, names) and all(never_negative(y, names) for y in rest):
                return True
    return False


def _without(terms: Iterable[ex.Expression], minus_these: Iterable[ex.Expression]) -> list[ex.Expression] | None:
    """The terms but those that cancel with ``minus_these``; None where one of these does not."""
    left = [(ex.canonical(y), y) for y in terms]
    for t in minus_these:
        result = next((pair for pair in left if pair[0] == ex.canonical(negate(t))), None)
        if result is None:
            return None
        left.remove(result)
    return [y for _, y in left]


def _complement(x: ex.Sum) -> bool:
    """Return whether ``x`` is 1 − a product of predicates."""
    if len(x.children) != 2:
        return False
    rest = [f for y in x.children for f in factors(y)]
    constants = [f.value for f in rest if isinstance(f, ex.Constant)]
    return sorted(constants) == [-1, 1] and all(isinstance(f, (ex.Constant, ex.Predicate)) for f in rest)


def array_of(x: ex.Letter) -> str:
    """The name of the array that a letter is an entry of, without its blocks and fixed entries."""
    return x.name.split("@")[0].split("[")[0]
