"""Means in certificates, in floating point: polynomials in random entries at sizes, and moments from cumulants.

It knows nothing of partitions: E xⁿ = Σ_k C(n − 1, k − 1) κ_k E xⁿ⁻ᵏ, and different entries are independent.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

Data = list[Any]
Places = Mapping[str, tuple[str, int]]
Monomial = tuple[Any, ...]
Polynomial = dict[Monomial, float]
Evaluate = Callable[[Data, Places], float]


class NoMean(ValueError):
    """A mean of what is no polynomial, or that needs what is not assumed."""


def mean(of: Data, laws: list[Data], at: Places, world: Any) -> float:
    """E of an expression, the laws of the random arrays being given."""
    if any(law[0] != "function" for law in laws):
        raise NoMean("a law that is none")
    known = {law[1].removeprefix("law of "): law[2:] for law in laws}
    whole = _expanded(of, at, known, world)
    return math.fsum(c * math.prod(_moment(known[_array(entry)], n, at, world) for entry, n in Counter(m).items())
                     for m, c in whole.items())  # fmt: skip


def _array(entry: Any) -> str:
    return str(entry[0]).split("@")[0].split("[")[0]


def _random(x: Any, known: Mapping[str, Any]) -> bool:
    if not isinstance(x, list) or not x:
        return False
    return (x[0] == "letter" and _array([x[1]]) in known) or any(_random(y, known) for y in x[1:])


def _expanded(x: Data, at: Places, known: Mapping[str, Any], world: Any) -> Polynomial:
    kind, *rest = x
    if not _random(x, known):
        return {(): world.value(x, at)}
    if kind == "letter":
        return {((rest[0], *(world.index(i, at)[1] for i in rest[1])),): 1.0}
    if kind == "sum":
        return _added([_expanded(y, at, known, world) for y in rest])
    if kind == "product":
        found: Polynomial = {(): 1.0}
        for y in rest:
            found = _times(found, _expanded(y, at, known, world))
        return found
    if kind == "total":
        name, sort, body = rest
        return _added([_expanded(body, {**at, name: (sort, n)}, known, world) for n in range(world.size(sort))])
    if kind == "ratio" and not _random(rest[1], known):
        return _times(_expanded(rest[0], at, known, world), {(): 1 / world.value(rest[1], at)})
    raise NoMean(f"a mean of a {kind}")


def _added(every: list[Polynomial]) -> Polynomial:
    out: Polynomial = {}
    for one in every:
        for m, c in one.items():
            out[m] = out.get(m, 0.0) + c
    return out


def _times(a: Polynomial, b: Polynomial) -> Polynomial:
    return _added([{tuple(sorted((*m, *n))): c * d} for m, c in a.items() for n, d in b.items()])


def _moment(law: list[Data], order: int, at: Places, world: Any) -> float:
    moments = [1.0]
    for n in range(1, order + 1):
        terms = (math.comb(n - 1, k - 1) * moments[n - k] * _cumulant(law, k, at, world) for k in range(1, n + 1)
                 if moments[n - k])  # fmt: skip
        moments.append(math.fsum(terms))
    return moments[order]


def _cumulant(law: list[Data], order: int, at: Places, world: Any) -> float:
    if order > len(law) or law[order - 1][:2] == ["function", "any"]:
        raise NoMean("a moment that is not assumed")
    return float(world.value(law[order - 1], at))
