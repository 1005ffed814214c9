"""Expressions as the nested lists that certificates hold (see ``certificate``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from symattn.arrays.index import expressions as ex
from symattn.arrays.index.writing import named

_FLAT = {ex.Sum: "sum", ex.Product: "product", ex.Ratio: "ratio", ex.Exponential: "exp", ex.Masked: "masked"}
Names = Mapping[ex.Index, str]


def bare(*xs: ex.Expression) -> tuple[ex.Index, ...]:
    """The free indices in the order in which they occur, without the permutations that they went through."""
    return tuple(dict.fromkeys(i._replace(image=()) for x in xs for i in named(x)))


def numbered(indices: Iterable[ex.Index]) -> dict[ex.Index, str]:
    """A name for each index."""
    return {i: f"i{n}" for n, i in enumerate(indices)}


def free(indices: Iterable[ex.Index], names: Names) -> list[list[str]]:
    """The names of indices with their sorts."""
    return [[names[i], i.sort] for i in indices]


def written(x: ex.Expression, names: Names) -> list[Any]:
    """``x`` as nested lists, its free indices by ``names``."""
    if isinstance(x, ex.Constant):
        return ["number", str(x.value)]
    if isinstance(x, ex.Count):
        return ["size", x.sort]
    if isinstance(x, ex.Letter):
        return ["letter", x.name, [_index(i, names) for i in x.indices]]
    if isinstance(x, ex.Predicate):
        return ["is", x.relation, *[_index(i, names) for i in x.sides]]
    if isinstance(x, ex.Binder):
        name = f"j{len(names)}"  # names grow inwards, so that none is bound twice on a path
        kind = "total" if isinstance(x, ex.Total) else "bound"
        return [kind, name, x.index.sort, written(x.body, {**names, x.index: name})]
    below = [written(y, names) for y in x.children]
    return ["function", x.name, *below] if isinstance(x, ex.Opaque) else [_FLAT[type(x)], *below]


def _index(i: ex.Index, names: Names) -> list[str]:
    return [names[i if i in names else i._replace(image=())], *i.image]


def with_value(x: object, letter: str, value: object) -> Any:
    """Nested lists with a value in the place of a letter without indices."""
    if x == ["letter", letter, []]:
        return value
    return [with_value(y, letter, value) for y in x] if isinstance(x, list) else x
