"""The rule that moves a statement further: past several others, and into or out of a loop.

Within a block a move counts only past a statement that reads what is moved, or changes what the moved one reads: any
other order computes the same. Single steps, and the ends of a block, are the rules of ``block_rules``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from symattn.programs.repairing.edits import LOOKED_AT, BlockRule, BlockStatement
from symattn.verification.repair import Replacement

#: Replacements, with the old and the new text for a reader.
Changes = Iterator[tuple[Sequence[Replacement], str, str]]
#: Statements that are moved.
_SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)
#: Statements with a body into or out of which one moves.
_BLOCKS = (ast.For, ast.While, ast.If, ast.With)
_FURTHEST = 8  # statements that one is moved past


def move_past_others(s: BlockStatement) -> Changes:
    """The statement before or after several others of its block."""
    for number in range(len(s.body)):
        past = s.body[number : s.index] if number < s.index else s.body[s.index + 1 : number + 1]
        # One step is another rule.
        if not _is_movable(s.node) or not 2 <= len(past) <= _FURTHEST:
            continue
        at, is_above = s.body[number], number < s.index
        # Beyond a statement that is indifferent the order is the same as before it.
        if isinstance(at, ast.Return) or not _conflict(s, s.node, at):
            continue
        yield from _moved(s, at, is_above, s.node, "up" if is_above else "down")


def move_over_edge(s: BlockStatement) -> Changes:
    """The statement before or after the block that holds it, or at either end of another block beside it."""
    if not _is_movable(s.node):
        return
    if isinstance(s.owner, _BLOCKS):
        # The first one goes before the block, and the last one after it, by another rule.
        if s.index > 0:
            yield from _moved(s, s.owner, True, s.owner, "before the block")
        if s.next is not None and not getattr(s.owner, "orelse", None):
            yield from _moved(s, s.owner, False, s.owner, "after the block")
    for number, block in enumerate(s.body):
        is_near = abs(number - s.index) <= _FURTHEST
        if not isinstance(block, _BLOCKS) or not is_near or number == s.index:
            continue
        first, last = block.body[0], block.body[-1]
        yield from _moved(s, first, True, first, "in the block, first")
        # The statement right behind a block goes to its end by another rule.
        if number != s.index - 1 and not isinstance(last, ast.Return | ast.Continue | ast.Break):
            yield from _moved(s, last, False, first, "in the block, last")


def _is_movable(node: ast.stmt) -> bool:
    return isinstance(node, _SIMPLE)


def _moved(s: BlockStatement, at: Any, is_above: bool, beside: Any, where: str) -> Changes:
    """Yield the change that puts a statement above or below another one; none where lines are shared.

    It gets the indentation of the statement ``beside`` it.
    """
    try:
        lines, removed = s.whole_lines(s.node)
        old, indent = s.indent(s.node), s.indent(beside)
        s.indent(at)
    except ValueError:
        return
    # A block cannot be without a statement.
    if len(s.body) == 1 or not all(line.startswith(old) or not line.strip() for line in lines):
        return
    new = [indent + line.removeprefix(old) for line in lines]
    put = s.inserted_before(at, new) if is_above else s.inserted_after(at, new)
    text = s.text(s.node).split("\n")[0]
    yield [put, removed], text, f"{text}  ({where})"


def _conflict(s: BlockStatement, one: ast.stmt, other: ast.stmt) -> bool:
    """Return whether the order of two statements matters: one writes what the other reads or writes."""
    (reads, writes), (other_reads, other_writes) = _names_of(s, one), _names_of(s, other)
    return bool(writes & (other_reads | other_writes) or other_writes & reads)


def _names_of(s: BlockStatement, node: ast.stmt) -> tuple[set[str], set[str]]:
    """Return the names that a statement reads, and those that it writes, or whose parts it writes."""
    reads: set[str] = set()
    writes: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            (reads if isinstance(part.ctx, ast.Load) else writes).add(part.id)
        is_target = isinstance(part, ast.Subscript | ast.Attribute)
        if is_target and isinstance(part.ctx, ast.Store):  # type: ignore[attr-defined]
            writes |= {n.id for n in ast.walk(part) if isinstance(n, ast.Name)}
        # A method may change its object; a function of a module has none in scope.
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
            objects = [n.id for n in ast.walk(part.func.value) if isinstance(n, ast.Name)]
            writes |= s.scope.keys() & set(objects)
    # ``x += 1`` reads ``x``.
    if isinstance(node, ast.AugAssign):
        reads |= writes
    return reads, writes


BLOCK_RULES: tuple[BlockRule, ...] = (
    BlockRule("moved", 2, move_past_others, likely=True, added=LOOKED_AT, last=True),
    BlockRule("moved", 2, move_over_edge, likely=True, added=LOOKED_AT, last=True),
)
