"""Laws of functions that the checker knows: what is never negative because of what max, |x|, tanh and log are.

``sign(x) · x`` is |x|, and that is all that is known of sign, besides that it lies between −1 and 1. A law is only
ever asked about an expression that a certificate holds; that the expression has the form of the law is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from symattn.proof.checker_clearing import minus, product, times
from symattn.proof.checker_reading import CheckedNode, Rejected, number

Same = Callable[[CheckedNode, CheckedNode], bool]
Sign = Callable[[CheckedNode], bool]
Scope = Mapping[str, str]
BOUNDED = frozenset({"tanh", "sign", "cos", "sin", "erf"})
GROWING = frozenset({"log", "sqrt", "tanh", "erf"})


def expect_law(
    law: str, x: CheckedNode, scope: Scope, others: Mapping[str, CheckedNode], same: Same, sign: Sign
) -> None:
    """Reject unless ``x`` ≥ 0 by the law that is named.

    ``others`` are what is known not to be negative, by name; ``sign`` says whether a form is not negative.
    """
    name, *more = law.split() or [law]
    if law == "triangle":
        holds = any(same(x, y) for y in _triangle(x, scope, sign))
    elif name == "grows" and len(more) == 1:
        holds = more[0] in others and _grows(x, others[more[0]], scope, same)
    else:
        holds = not more and name in _LAWS and any(same(x, y) for y in _LAWS[name](x, scope, same))
    if not holds:
        raise Rejected(f"the law {law!r} does not show that it is not negative")


def _largest(x: CheckedNode, scope: Scope, same: Same) -> Iterator[CheckedNode]:
    """max f − f at each place, and at what is no larger than f there."""
    for top in _functions(x, scope, "max"):
        for y in _below(top, scope, same):
            yield minus(top, y)


def _bounded(x: CheckedNode, scope: Scope, same: Same) -> Iterator[CheckedNode]:
    """1 − f and 1 + f."""
    for f in _functions(x, scope, *BOUNDED):
        yield minus(number(1), f)
        yield minus(f, number(-1))


def _magnitude(x: CheckedNode, scope: Scope, same: Same) -> Iterator[CheckedNode]:
    """|z|, |z| − z and |z| + z."""
    for f in _functions(x, scope, "sign"):
        (z,) = f.below
        yield times(f, z)
        yield minus(times(f, z), z)
        yield minus(times(f, z), times(number(-1), z))


_LAWS = {"largest": _largest, "bounded": _bounded, "magnitude": _magnitude}


def _triangle(x: CheckedNode, scope: Scope, sign: Sign) -> Iterator[CheckedNode]:
    """Σ_j a_j ‖y_j‖ − ‖Σ_j a_j y_j‖ with a_j ≥ 0, for any norm; y_j are the factors that run along the row."""
    for whole in _functions(x, scope, "norm"):
        row = whole.below[0]
        if len(whole.below) != 1 or row.kind != "bound" or row.below[0].kind != "total":
            continue
        mean = row.below[0]
        parts = mean.below[0].below if mean.below[0].kind == "product" else mean.below
        along = [f for f in parts if row.label in f.free]
        weights = [f for f in parts if row.label not in f.free]
        if along and all(map(sign, weights)):
            y = product(along)
            one = replace(whole, below=(bind(row, y),), free=y.free - {row.label})
            yield minus(bind(mean, product([*weights, one])), whole)


def bind(binder: CheckedNode, body: CheckedNode) -> CheckedNode:
    """Σ, or the row, over another body."""
    return replace(binder, below=(body,), free=body.free - {binder.label})


def _grows(x: CheckedNode, step: CheckedNode, scope: Scope, same: Same) -> bool:
    """Return whether ``x`` = f(b) − f(a) and ``step`` = b − a, for a function that grows."""
    result = [f for f in _functions(x, scope, *GROWING) if len(f.below) == 1]
    pairs = [(a, b) for a in result for b in result if a.label == b.label and a is not b]
    return any(same(x, minus(b, a)) and same(step, minus(b.below[0], a.below[0])) for a, b in pairs)


def _functions(x: CheckedNode, scope: Scope, *labels: str) -> list[CheckedNode]:
    """The functions of these names in which no index is bound outside of them."""
    every = (f for f in x.all(into_functions=True) if f.kind == "function" and f.label in labels)
    return [f for f in every if f.free <= scope.keys()]


def _below(top: CheckedNode, scope: Scope, same: Same) -> Iterator[CheckedNode]:
    """Yield terms no larger than a maximum: what it is taken of, at any place; of |z| also z and −z."""
    for one in top.below:
        for y in instances(one, scope):
            yield y
            if y.kind == "function" and y.label == "max":
                yield from _below(y, scope, same)
            for f in _functions(y, scope, "sign"):
                if same(y, times(f, f.below[0])):
                    yield from (f.below[0], times(number(-1), f.below[0]))


def instances(x: CheckedNode, scope: Scope) -> Iterator[CheckedNode]:
    """Yield the terms of a maximum, with each of the places in ``scope`` for the bound index."""
    if x.kind != "bound":
        if x.kind != "masked":
            yield x
        return
    for name, sort in scope.items():
        if sort == x.sorts[0]:
            yield from instances(renamed(x.below[0], {x.label: name}), scope)


def renamed(x: CheckedNode, to: Mapping[str, str]) -> CheckedNode:
    """``x`` with other names for its free indices; none of them may be bound in it."""
    mapped = {old: new for old, new in to.items() if old in x.free}
    if not mapped:
        return x
    if x.kind in ("total", "bound") and x.label in mapped.values():
        raise Rejected("an index is bound twice")
    indices = tuple((mapped.get(i[0], i[0]), *i[1:]) for i in x.indices)
    free = frozenset(mapped.get(i, i) for i in x.free)
    return replace(x, indices=indices, below=tuple(renamed(y, mapped) for y in x.below), free=free)
