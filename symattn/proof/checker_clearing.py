"""The checker's own clearing of denominators: left − right as a numerator over divisors without bound indices.

A certificate's numerator is compared with this one: if it were only tested against the two sides at some sizes, a
falsehood such as n (n − 1) (n − 2) = 0 could pass with the numerator 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import prod
from typing import Any

from symattn.proof.checker_reading import CheckedNode, expect, node, number

Divisors = dict[Any, tuple[CheckedNode, int]]  # by form: the divisor and its power


def difference(left: CheckedNode, right: CheckedNode) -> tuple[CheckedNode, dict[Any, int]]:
    """Return left − right as a numerator, and the powers of its divisors by form."""
    numerator, divisors = _clear_checked_denominators(minus(left, right))
    return numerator, {key: times for key, (_, times) in divisors.items()}


def minus(a: CheckedNode, b: CheckedNode) -> CheckedNode:
    """a − b."""
    return plus([a, times(number(-1), b)])


def times(a: CheckedNode, b: CheckedNode) -> CheckedNode:
    """a · b."""
    return product([a, b])


def vanishing(x: CheckedNode) -> bool:
    """Return whether the terms of a sum cancel: the coefficients of like terms add up to 0."""
    counted: dict[Any, Fraction] = {}
    for term in x.below if x.kind == "sum" else (x,):
        numbers = [f.label for f in factors(term) if f.kind == "number"]
        # Factors in any order make like terms.
        rest = sorted(f.own_form for f in factors(term) if f.kind != "number")
        before = counted.get(tuple(rest), Fraction(0))
        counted[tuple(rest)] = before + prod(numbers, start=Fraction(1))
    return not any(counted.values())


def _clear_checked_denominators(x: CheckedNode) -> tuple[CheckedNode, Divisors]:
    # A masked score is −∞, which has no quotient.
    expect(x.kind != "masked", "−∞ outside of an exponential")
    if x.kind == "ratio":
        (above, over), (below, under) = map(_clear_checked_denominators, x.below)
        # A divisor of the divisor is a factor of the numerator.
        top = product([above, *_repeat_divisor_bases(under)])
        return _cancel_checked_divisors(
            top, _merge_checked_divisors(over, _split_into_divisors(below))
        )
    if x.kind == "product":
        together: Divisors = {}
        numerators = []
        for numerator, divisors in map(_clear_checked_denominators, x.below):
            numerators.append(numerator)
            together = _merge_checked_divisors(together, divisors)
        return _cancel_checked_divisors(product(numerators), together)
    if x.kind == "sum":
        return _over_common(list(map(_clear_checked_denominators, x.below)))
    if x.kind == "total":
        return _clear_checked_sum(x)
    return x, {}


def _over_common(parts: list[tuple[CheckedNode, Divisors]]) -> tuple[CheckedNode, Divisors]:
    common: Divisors = {}
    for _, divisors in parts:
        for key, (base, times) in divisors.items():
            # The common denominator has the highest power of each divisor.
            most_before = common[key][1] if key in common else 0
            common[key] = (base, max(times, most_before))
    numerators = []
    # Each numerator is multiplied by what its own denominator lacks.
    for numerator, divisors in parts:
        missing = {
            k: (b, n - (divisors[k][1] if k in divisors else 0)) for k, (b, n) in common.items()
        }
        numerators.append(product([numerator, *_repeat_divisor_bases(missing)]))
    return plus(numerators), common


def _clear_checked_sum(x: CheckedNode) -> tuple[CheckedNode, Divisors]:
    """Clear a Σ: divisors without the index come out, the others stay inside as reciprocals."""
    numerator, divisors = _clear_checked_denominators(x.below[0])
    outside = {k: d for k, d in divisors.items() if x.label not in d[0].free}
    # A divisor with the index differs from term to term, so it cannot come out.
    inner = {k: d for k, d in divisors.items() if k not in outside}
    stuck = _repeat_divisor_bases(inner)
    inside = [node("function", [b], "1/") for b in stuck]
    # The sum may have exposed a factor that is one of the divisors.
    return _cancel_checked_divisors(total(x, product([numerator, *inside])), outside)


def total(x: CheckedNode, body: CheckedNode) -> CheckedNode:
    """Return the sum of ``body`` over the index that ``x`` binds; factors without the index come out."""
    if body.kind == "sum":
        return plus([total(x, y) for y in body.below])
    inside = [f for f in factors(body) if x.label in f.free]
    outside = [f for f in factors(body) if x.label not in f.free]
    # Σ_j 1 is the size.
    if not inside:
        return product([*outside, node("size", (), x.sorts[0])])
    inner_total = node("total", [product(inside)], x.label, x.sorts)
    return product([*outside, inner_total])


def _cancel_checked_divisors(
    numerator: CheckedNode, divisors: Divisors
) -> tuple[CheckedNode, Divisors]:
    """Cancel Z / Z = 1, also if 1/Z is a letter."""
    # Most expressions have nothing to cancel.
    if not divisors and not any(_is_reciprocal(f) for f in factors(numerator)):
        return numerator, divisors
    left, below = list(factors(numerator)), dict(divisors)
    for f in list(left):
        if f not in left:  # a reciprocal that is cancelled already
            continue
        key = f.own_form
        if key in below:
            base, times = below.pop(key)
            # One factor cancels one power.
            if times > 1:
                below[key] = (base, times - 1)
            left.remove(f)
            continue
        # 1/Z as a letter cancels Z in the numerator too.
        letter = next((g for g in left if _is_reciprocal(g) and g.below[0].own_form == key), None)
        if letter is not None:
            left.remove(f)
            left.remove(letter)
    return product(left), below


def _is_reciprocal(x: CheckedNode) -> bool:
    return x.kind == "function" and x.label == "1/"


def _split_into_divisors(x: CheckedNode) -> Divisors:
    result: Divisors = {}
    for f in factors(x):
        result = _merge_checked_divisors(result, {f.own_form: (f, 1)})
    return result


def _merge_checked_divisors(a: Divisors, b: Divisors) -> Divisors:
    out = dict(a)
    for key, (base, times) in b.items():
        times_before = out[key][1] if key in out else 0
        out[key] = (base, times + times_before)
    return out


def _repeat_divisor_bases(d: Divisors) -> list[CheckedNode]:
    return [base for base, times in d.values() for _ in range(times)]


def factors(x: CheckedNode) -> tuple[CheckedNode, ...]:
    """Return the factors of a product; anything else is its own factor."""
    return x.below if x.kind == "product" else (x,)


def _flatten_nodes_of_kind(kind: str, xs: Iterable[CheckedNode]) -> list[CheckedNode]:
    return [y for x in xs for y in (x.below if x.kind == kind else (x,))]


def product(xs: Iterable[CheckedNode]) -> CheckedNode:
    """Return the product, flat, without factors 1."""
    flat = [
        x
        for x in _flatten_nodes_of_kind("product", xs)
        if not (x.kind == "number" and x.label == 1)
    ]
    return _make_node_unless_single("product", flat) if flat else number(1)


def plus(xs: Iterable[CheckedNode]) -> CheckedNode:
    """Return the sum, flat."""
    return _make_node_unless_single("sum", _flatten_nodes_of_kind("sum", xs))


def _make_node_unless_single(kind: str, xs: list[CheckedNode]) -> CheckedNode:
    return xs[0] if len(xs) == 1 else node(kind, xs)
