"""Clear denominators: write an index expression as a numerator over factors without bound indices.

A denominator under a sum over one of its own indices cannot be cleared; its reciprocal stays, as the opaque letter
``1/``, one for each value of its indices.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from symattn.arrays.index import expressions as ex
from symattn.arrays.index.building import add, factors, multiply, total
from symattn.document.errors import Refused

RECIPROCAL = "1/"


class RepeatedDenominator(NamedTuple):
    """A denominator and its power."""

    base: ex.Expression
    times: int


Denominators = dict[ex.Canonical, RepeatedDenominator]


@dataclass(frozen=True)
class Cleared:
    """The quotient numerator / Π denominators."""

    numerator: ex.Expression
    denominators: Denominators = field(default_factory=dict)


def cleared(x: ex.Expression) -> Cleared:
    """Return ``x`` over a common denominator."""
    # A masked score is −∞, which has no quotient.
    if isinstance(x, ex.Masked):
        raise Refused("-inf outside of an exponential")
    if isinstance(x, ex.Ratio):
        above, below = map(cleared, x.children)
        # A divisor of the divisor is a factor of the numerator.
        top = multiply(above.numerator, *_repeat_denominators(below.denominators))
        return _cancel_denominators(
            top,
            _join_denominators(
                above.denominators, _split_into_denominators(below.numerator), together=True
            ),
        )
    if isinstance(x, ex.Product):
        parts = [cleared(y) for y in x.children]
        together: Denominators = {}
        for part in parts:
            together = _join_denominators(together, part.denominators, together=True)
        return _cancel_denominators(multiply(*[p.numerator for p in parts]), together)
    if isinstance(x, ex.Sum):
        return _over_common(x)
    if isinstance(x, ex.Total):
        return _clear_denominators_of_total(x)
    return Cleared(x)


def _over_common(x: ex.Sum) -> Cleared:
    parts = [cleared(y) for y in x.children]
    common: Denominators = {}
    for part in parts:
        # The common denominator has the highest power of each factor.
        common = _join_denominators(common, part.denominators, together=False)
    numerators = []
    for part in parts:
        own = part.denominators
        # Each numerator is multiplied by what its own denominator lacks.
        missing = {
            k: RepeatedDenominator(d.base, d.times - (own[k].times if k in own else 0))
            for k, d in common.items()
        }
        numerators.append(multiply(part.numerator, *_repeat_denominators(missing)))
    return Cleared(add(*numerators), common)


def _clear_denominators_of_total(x: ex.Total) -> Cleared:
    inner = cleared(x.body)
    # A denominator with the index differs from term to term, so it cannot come out.
    outside = {k: p for k, p in inner.denominators.items() if x.index not in p.base.free}
    stuck = [
        ex.Opaque(RECIPROCAL, p.base)
        for k, p in inner.denominators.items()
        if k not in outside
        for _ in range(p.times)
    ]
    return _cancel_denominators(total(x.index, multiply(inner.numerator, *stuck)), outside)


def _cancel_denominators(numerator: ex.Expression, denominators: Denominators) -> Cleared:
    """Cancel Z / Z = 1, also if 1/Z is a letter."""
    rest, below = list(factors(numerator)), dict(denominators)
    for f in list(rest):
        if f not in rest:  # a reciprocal that is cancelled already
            continue
        key = ex.canonical(f)
        # One factor cancels one power.
        if key in below:
            power = below.pop(key)
            rest.remove(f)
            if power.times > 1:
                below[key] = RepeatedDenominator(power.base, power.times - 1)
            continue
        # 1/Z as a letter cancels Z in the numerator too.
        letter = next(
            (g for g in rest if is_reciprocal(g) and ex.canonical(g.children[0]) == key), None
        )
        if letter is not None:
            rest.remove(f)
            rest.remove(letter)
    return Cleared(multiply(*rest), below)


def is_reciprocal(x: ex.Expression) -> bool:
    """Return whether ``x`` is the letter of a reciprocal."""
    return isinstance(x, ex.Opaque) and x.name == RECIPROCAL


def _split_into_denominators(x: ex.Expression) -> Denominators:
    result: Denominators = {}
    for f in factors(x):
        key = ex.canonical(f)
        times = result[key].times + 1 if key in result else 1
        result[key] = RepeatedDenominator(f, times)
    return result


def _join_denominators(a: Denominators, b: Denominators, together: bool) -> Denominators:
    """Return the product of both (``together``), or their least common multiple."""
    out = dict(a)
    for key, (base, times) in b.items():
        there = out[key].times if key in out else 0
        both = there + times if together else max(there, times)
        out[key] = RepeatedDenominator(base, both)
    return out


def _repeat_denominators(d: Denominators) -> list[ex.Expression]:
    return [p.base for p in d.values() for _ in range(p.times)]
