"""Lines that an edit itself runs more or less often: passes of a loop whose bound it changes, and what it calls.

If a bound is the mistake, no edit repairs it by which each line runs as often as before. A tile size, or a condition
that spares a branch, is no bound: an edit of it may only avoid the mistake.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

#: Calls whose arguments bound a loop: all but the third one, by which it steps.
_RANGES = ("range", "arange", "trange")
_STEP = 2  # the place of that argument
_Loop = ast.For | ast.While
#: Stands for a bound.
_BOUND = ast.Name("__bound__", ast.Load())


def loops_with_other_bounds(before: ast.AST, after: ast.AST) -> list[ast.For | ast.While]:
    """Return the loops of a definition whose bounds an edit changes; none if it changes anything else.

    A bound is the start or the end of a range, the condition of ``while``, one of ``break`` or ``continue`` alone, a
    ``return`` with which each pass ends, or the value of a name that is read in bounds alone.

    >>> one, other = (ast.parse(f"for i in range({n}, 2): f(i)") for n in ("n", "n + 1"))
    >>> len(loops_with_other_bounds(one, other)), len(loops_with_other_bounds(one, one))
    (1, 0)
    """
    if ast.dump(_without_bounds(before)) != ast.dump(_without_bounds(after)):
        return []
    # Definitions that are equal but for their bounds have the same loops in the same order.
    pairs = zip(_loops_of(before), _loops_of(after), strict=True)
    return [loop for loop, edited in pairs if _bounds_of(before, loop) != _bounds_of(after, edited)]


def changes_of_counts(before: Counter[int], after: Counter[int]) -> dict[int, int]:
    """Return how much more often each line runs after an edit, of those that run another number of times."""
    changes = {n: after[n] - before[n] for n in after}
    return {n: change for n, change in changes.items() if change}


def are_passes_moved(changes: Mapping[int, int]) -> bool:
    """Return whether some lines run less often and others more often, as if one loop did the work of another one.

    >>> are_passes_moved({8: -1, 14: 4}), are_passes_moved({8: 1, 14: 4})
    (True, False)
    """
    return min(changes.values(), default=0) < 0 < max(changes.values(), default=0)


def lines_of_jumps(loops: Sequence[ast.For | ast.While]) -> set[int]:
    """Return the lines that hold ``break`` or ``continue`` alone: with more passes they may run less often.

    >>> lines_of_jumps(ast.parse("while x:\\n    if x > n:\\n        break\\n    x = f(x)").body)
    {3}
    """
    jumps = [jump for loop in loops for jump in _conditions_of_jumps(loop)]
    return {jump.body[0].lineno for jump in jumps if jump.body[0].lineno != jump.lineno}


def functions_called_in(loop: ast.AST) -> set[str]:
    """Return the names of the functions and methods that a loop calls."""
    return {*_count_calls(loop)}


def calls_that_differ(before: ast.AST, after: ast.AST) -> set[str]:
    """Return the names of the functions that stand more often in one of two definitions than in the other.

    >>> one, other = (ast.parse(text) for text in ("x = f(x, 8)", "x = f(g(x), 1)"))
    >>> calls_that_differ(one, other)
    {'g'}
    """
    old, new = _count_calls(before), _count_calls(after)
    return {*(old - new), *(new - old)}


def _count_calls(tree: ast.AST) -> Counter[str]:
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return Counter(str(getattr(f, "id", getattr(f, "attr", ""))) for f in called)


def _loops_of(tree: ast.AST) -> list[ast.For | ast.While]:
    return [node for node in ast.walk(tree) if isinstance(node, _Loop)]


def _bounds_of(tree: ast.AST, loop: ast.For | ast.While) -> list[str]:
    """Return the texts of a loop's bounds, with those of the names that they read."""
    bounds = list(_expressions_that_bound(loop))
    names = _names_that_only_bound(tree)
    read = {n.id for bound in bounds for n in ast.walk(bound) if isinstance(n, ast.Name)}
    values: list[ast.expr] = []
    # A name may be read in the value of another one.
    waiting = sorted(read & names.keys())
    while waiting:
        name = waiting.pop()
        # Taken out, so that names whose values read each other come to an end.
        for value in names.pop(name):
            values.append(value)
            further = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
            waiting += sorted(further & names.keys() - {*waiting})
    ends = ["return"] if _ends_with_return(loop) else []
    return [*(ast.unparse(node) for node in (*bounds, *values)), *ends]


def _ends_with_return(loop: ast.For | ast.While) -> bool:
    """Return whether the first pass of a loop that comes to its end is the last one."""
    return isinstance(loop.body[-1], ast.Return) and len(loop.body) > 1 and not loop.orelse


def _expressions_that_bound(loop: ast.For | ast.While) -> Iterator[ast.expr]:
    """Yield the expressions that bound a loop itself: of its head, and of its jumps."""
    if isinstance(loop, ast.While):
        yield loop.test
    else:
        for call in _ranges_of(loop.iter):
            yield from _ends_of(call)
    yield from (jump.test for jump in _conditions_of_jumps(loop))


def _ranges_of(head: ast.expr) -> list[ast.Call]:
    """Return the ranges in the head of a loop, such as that in ``reversed(range(n))``."""
    calls = [node for node in ast.walk(head) if isinstance(node, ast.Call)]
    return [c for c in calls if getattr(c.func, "id", getattr(c.func, "attr", "")) in _RANGES]


def _ends_of(call: ast.Call) -> list[ast.expr]:
    """Return the start and the end of a range."""
    named = [keyword.value for keyword in call.keywords if keyword.arg in ("start", "stop")]
    return [*call.args[:_STEP], *named]


def _conditions_of_jumps(loop: ast.For | ast.While) -> Iterator[ast.If]:
    """Yield the conditions under which a loop ends, or goes on to its next pass, and does nothing else."""
    waiting: list[Any] = list(loop.body)
    while waiting:
        node = waiting.pop(0)
        # The jumps of an inner loop are its own.
        if isinstance(node, _Loop | ast.FunctionDef):
            continue
        if isinstance(node, ast.If):
            is_jump = len(node.body) == 1 and isinstance(node.body[0], ast.Break | ast.Continue)
            if is_jump and not node.orelse:
                yield node
        waiting += getattr(node, "body", []) + getattr(node, "orelse", [])


def _names_that_only_bound(tree: ast.AST) -> dict[str, list[ast.expr]]:
    """Return the values of the names that are read nowhere but in bounds, or in values of such names."""
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if len(targets) == 1 and isinstance(targets[0], ast.Name):
            values.setdefault(targets[0].id, []).append(node.value)  # type: ignore[attr-defined]
    bounds = [bound for loop in _loops_of(tree) for bound in _expressions_that_bound(loop)]
    loads = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    stores = [
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    ]
    # Names that anything else assigns, such as a loop, have values that are not at hand.
    known = {name for name, nodes in values.items() if stores.count(name) == len(nodes)}
    while True:
        within = {
            id(n)
            for node in (*bounds, *(value for name in known for value in values[name]))
            for n in ast.walk(node)
        }
        elsewhere = {n.id for n in loads if id(n) not in within}
        remaining = (known - elsewhere) & {n.id for n in loads}
        if remaining == known:
            return {name: values[name] for name in known}
        known = remaining


def _without_bounds(tree: ast.AST) -> ast.AST:
    """Return a copy of a definition in which the same name stands for each bound."""
    copy = deepcopy(tree)
    for values in _names_that_only_bound(copy).values():
        for value in values:
            _put_bound_in_place_of(copy, value)
    for loop in _loops_of(copy):
        jumps = list(_conditions_of_jumps(loop))
        if isinstance(loop, ast.While):
            loop.test = _BOUND
        else:
            for call in _ranges_of(loop.iter):
                call.args = call.args[_STEP:]
                call.keywords = [k for k in call.keywords if k.arg not in ("start", "stop")]
        for jump in jumps:
            jump.test = _BOUND
    _move_returns_out_of_loops(copy)
    return copy


def _move_returns_out_of_loops(tree: ast.AST) -> None:
    """Put the ``return`` with which each pass of a loop ends behind the loop, if nothing else follows it there."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        last = body[-1] if isinstance(body, list) and body else None
        if isinstance(last, _Loop) and _ends_with_return(last):
            body.append(last.body.pop())  # type: ignore[union-attr]


def _put_bound_in_place_of(tree: ast.AST, value: ast.expr) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and node.value is value:
            node.value = _BOUND
