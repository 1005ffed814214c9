"""Loops of which every pass does the same, since none of them reads the number of its pass.

An edit after which a loop repeats itself, such as ``k[a : a + 16]`` → ``k`` in a loop over ``a``, may only avoid a
mistake: parts that are all the whole are merged rightly by any weights.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

_Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


def count_repeated_loops(definition: ast.AST) -> int:
    """Return how many loops and comprehensions read none of the names that each pass binds anew.

    Names that begin with an underscore say that a loop repeats itself on purpose.

    >>> count_repeated_loops(ast.parse("for a in range(0, n, 16): s += k.sum()"))
    1
    >>> count_repeated_loops(ast.parse("for a in range(0, n, 16): s += k[a : a + 16].sum()"))
    0
    """
    return sum(map(_repeats_itself, ast.walk(definition)))


def _repeats_itself(node: ast.AST) -> bool:
    if isinstance(node, ast.For):
        bound, read = _names_in([node.target], ast.Store), _names_in(node.body, ast.Load)
    elif isinstance(node, _Comprehension):
        bound = _names_in([g.target for g in node.generators], ast.Store)
        read = _names_in(_parts_of_passes(node), ast.Load)
    else:
        return False
    counted = {name for name in bound if not name.startswith("_")}
    return bool(counted) and counted.isdisjoint(read)


def _parts_of_passes(node: _Comprehension) -> list[ast.expr]:
    """Return the expressions that a comprehension computes in each pass."""
    entries = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    conditions = [condition for g in node.generators for condition in g.ifs]
    inner = [g.iter for g in node.generators[1:]]
    return [*entries, *conditions, *inner]


def _names_in(nodes: Iterable[ast.AST], context: type[ast.expr_context]) -> set[str]:
    every = (x for node in nodes for x in ast.walk(node))
    return {x.id for x in every if isinstance(x, ast.Name) and isinstance(x.ctx, context)}
