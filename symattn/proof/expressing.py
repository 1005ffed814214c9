"""Expressions as the nested lists that certificates hold (see ``certificate``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from symattn.arrays.index.expressions import (
    Binder,
    Constant,
    Count,
    Exponential,
    Expression,
    Index,
    Letter,
    Masked,
    Opaque,
    Predicate,
    Product,
    Ratio,
    Sum,
    Total,
)
from symattn.arrays.index.writing import named

_FLAT = {Sum: "sum", Product: "product", Ratio: "ratio", Exponential: "exp", Masked: "masked"}
Names = Mapping[Index, str]


def bare(*xs: Expression) -> tuple[Index, ...]:
    """The free indices in the order in which they occur, without the permutations that they went through."""
    return tuple(dict.fromkeys(i._replace(image=()) for x in xs for i in named(x)))


def numbered(indices: Iterable[Index]) -> dict[Index, str]:
    """A name for each index."""
    return {i: f"i{n}" for n, i in enumerate(indices)}


def free(indices: Iterable[Index], names: Names) -> list[list[str]]:
    """The names of indices with their sorts."""
    return [[names[i], i.sort] for i in indices]


def written(x: Expression, names: Names) -> list[Any]:
    """``x`` as nested lists, its free indices by ``names``."""
    if isinstance(x, Constant):
        return ["number", str(x.value)]
    if isinstance(x, Count):
        return ["size", x.sort]
    if isinstance(x, Letter):
        return ["letter", x.name, [_index(i, names) for i in x.indices]]
    if isinstance(x, Predicate):
        return ["is", x.relation, *[_index(i, names) for i in x.sides]]
    if isinstance(x, Binder):
        name = f"j{len(names)}"  # names grow inwards, so that none is bound twice on a path
        kind = "total" if isinstance(x, Total) else "bound"
        return [kind, name, x.index.sort, written(x.body, {**names, x.index: name})]
    below = [written(y, names) for y in x.children]
    return ["function", x.name, *below] if isinstance(x, Opaque) else [_FLAT[type(x)], *below]


def _index(i: Index, names: Names) -> list[str]:
    return [names[i if i in names else i._replace(image=())], *i.image]


def with_value(x: object, letter: str, value: object) -> Any:
    """Nested lists with a value in the place of a letter without indices."""
    if x == ["letter", letter, []]:
        return value
    return [with_value(y, letter, value) for y in x] if isinstance(x, list) else x
