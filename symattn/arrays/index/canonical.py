"""A normal form in which the names of bound variables and the order of terms and factors are forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from symattn.arrays.index.expressions import (
    Binder,
    Constant,
    Count,
    Expression,
    Index,
    Letter,
    Many,
    Position,
    Predicate,
)
from symattn.document.errors import Refused

Canonical = tuple[Any, ...]


def canonical(x: Expression, names: Mapping[Index, Any] | None = None) -> Canonical:
    """``x`` as nested tuples; two expressions have the same iff they differ in bound names and order alone.

    ``names`` gives names to free indices; those without stay as they are. (Sound, not complete: terms are sorted
    with bound names by depth, so two equal sums may look different, never two different ones equal.)
    """
    return _canonical(x, tuple(sorted((names or {}).items())), 0)


@lru_cache(maxsize=100_000)
def _canonical(x: Expression, names: tuple[tuple[Index, Any], ...], depth: int) -> Canonical:
    known = dict(names)
    if isinstance(x, Letter):
        return ("letter", x.name, *[known.get(i, i) for i in x.indices])
    if isinstance(x, Predicate):
        sides = [known.get(i, i) for i in x.sides]
        return (x.relation, *(sorted(sides, key=repr) if x.relation == "=" else sides))
    if isinstance(x, (Constant, Count)):
        return (type(x).__name__, *x.parts)
    if isinstance(x, Binder):
        inner = tuple(sorted({**known, x.index: ("bound", depth)}.items()))
        return (type(x).__name__, x.index.sort, _canonical(x.body, inner, depth + 1))
    if isinstance(x, Position):
        raise Refused("a bare position is not a number; see positions.as_number")
    below = [_canonical(y, names, depth) for y in x.children]
    if isinstance(x, Many):
        below.sort(key=repr)
    label = [p for p in x.parts if isinstance(p, str)]
    return (type(x).__name__, *label, *below)
