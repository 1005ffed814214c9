"""The rules that change a statement: removed, moved, another assignment, a condition that always or never holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from symattn.programs.repairing.edits import LOOKED_AT, BlockRule, BlockStatement
from symattn.programs.repairing.expressions import OPERATORS
from symattn.programs.repairing.lengths import differences, write_boolean_triangle
from symattn.programs.repairing.observing import NUMBERS
from symattn.verification.repair import Replacement

#: Replacements, with the old and the new text for a reader.
Changes = Iterator[tuple[Sequence[Replacement], str, str]]
#: Signs of augmented assignments.
_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.MatMult: "@",
}
#: Statements with a body that another statement can move into or out of.
_BLOCKS = (ast.For, ast.While, ast.If, ast.With)


def _first_line(text: str) -> str:
    return text.split("\n")[0]


def remove(s: BlockStatement) -> Changes:
    # Without its return a function returns None, which no definition does.
    if isinstance(s.node, ast.Return):
        return
    text = _first_line(s.text(s.node))
    # A block must not be empty.
    if len(s.body) == 1:
        yield [s.put(s.node, "pass")], text, "pass"
    else:
        yield [s.whole_lines(s.node)[1]], text, ""


def swap_with_next(s: BlockStatement) -> Changes:
    after = s.next
    if (
        after is None
        or isinstance(after, ast.Return | ast.FunctionDef)
        # Only neighbours in one block may be exchanged.
        or s.indent(s.node) != s.indent(after)
    ):
        return
    one, other = s.text(s.node), s.text(after)
    replacements = [s.put(s.node, other), s.put(after, one)]
    yield replacements, _first_line(one), f"{_first_line(other)}; {_first_line(one)}"


def fix_condition(s: BlockStatement) -> Changes:
    if isinstance(s.node, ast.If):
        for word in ("True", "False"):
            yield [s.put(s.node.test, word)], f"if {s.text(s.node.test)}", f"if {word}"


def _reindent_statement_lines(lines: Sequence[str], old: str, new: str) -> list[str]:
    if not all(line.startswith(old) or not line.strip() for line in lines):
        raise ValueError("a line is indented less than its statement")
    return [new + line.removeprefix(old) if line.strip() else line for line in lines]


def _reindented(s: BlockStatement, node: ast.stmt, indent: str) -> Replacement:
    """Return the lines of a statement with another indentation; raises ``ValueError`` if others share them."""
    moved = _reindent_statement_lines(s.own_lines(node), s.indent(node), indent)
    return s.rewritten_lines(node, moved)


def move_out(s: BlockStatement) -> Changes:
    """The last statement of a block comes after it, or the first one before it."""
    if not isinstance(s.node, _BLOCKS) or len(s.node.body) < 2:
        return
    outer = s.indent(s.node)
    first, last = s.node.body[0], s.node.body[-1]
    # With an ``else``, the end of the body is not the end of the statement.
    if not s.node.orelse if hasattr(s.node, "orelse") else True:
        text = _first_line(s.text(last))
        yield [_reindented(s, last, outer)], text, f"{text}  (after the block)"
    lines, removed = s.whole_lines(first)
    moved = _reindent_statement_lines(lines, s.indent(first), outer)
    yield (
        [s.inserted_before(s.node, moved), removed],
        _first_line(s.text(first)),
        f"{_first_line(s.text(first))}  (before the block)",
    )


def move_in(s: BlockStatement) -> Changes:
    """The next statement comes into the block."""
    after = s.next
    if (
        not isinstance(s.node, _BLOCKS)
        or after is None
        or isinstance(after, ast.Return | ast.FunctionDef)
    ):
        return
    # After an ``else``, the next statement does not follow the body.
    if getattr(s.node, "orelse", None):
        return
    text, inner = _first_line(s.text(after)), s.indent(s.node.body[-1])
    yield [_reindented(s, after, inner)], text, f"{text}  (in the block)"


def _name_of_assigned_target(s: BlockStatement) -> str:
    """Return the name that a statement assigns, or an empty text."""
    node = s.node
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    if (
        isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
    ):
        return node.targets[0].id
    return ""


def _whole_target(s: BlockStatement) -> Any:
    """Return the target of an assignment to a name or to a part of an array, or None."""
    node = s.node
    if isinstance(node, ast.AugAssign):
        return node.target
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        return target if isinstance(target, ast.Name | ast.Subscript) else None
    return None


def change_assignment(s: BlockStatement) -> Changes:
    target = _whole_target(s)
    if target is None:
        return
    left = s.text(target)
    value = s.text(s.node.value)
    old = s.text(s.node)
    if isinstance(s.node, ast.AugAssign):
        # The empty sign is that of a plain assignment.
        signs = ["", *(_SIGNS[op] for op in OPERATORS.get(type(s.node.op), ()) if op in _SIGNS)]
    else:
        # A name needs a value before an augmented assignment can change it.
        assigned = isinstance(target, ast.Subscript) or left in s.scope
        signs = ["+", "*", "-"] if assigned else []
    for sign in signs:
        new = f"{left} {sign}= {value}"
        yield [s.put(s.node, new)], _first_line(old), _first_line(new)


def assign_result(s: BlockStatement) -> Changes:
    """A call whose result nobody takes changes the array that it is of: ``s.masked_fill(m, 0)`` changes no ``s``."""
    call = s.node.value if isinstance(s.node, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return
    kind = s.function.kind(call)
    # The object of a method, or the first argument of a function.
    changed = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    changed += call.args[:1]
    for node in changed:
        is_target = isinstance(node, ast.Name | ast.Subscript)
        if is_target and kind.is_array and s.function.kind(node).name == kind.name:
            text = s.text(call)
            new = f"{s.text(node)} = {text}"
            yield [s.put(s.node, new)], _first_line(text), _first_line(new)


def change_jump(s: BlockStatement) -> Changes:
    """The next pass of a loop in place of its end, and the other way."""
    if isinstance(s.node, ast.Break | ast.Continue):
        old, new = ("break", "continue") if isinstance(s.node, ast.Break) else ("continue", "break")
        yield [s.put(s.node, new)], old, new


def change_target(s: BlockStatement) -> Changes:
    name = _name_of_assigned_target(s)
    if not name or not isinstance(s.node, ast.Assign):
        return
    kind = s.function.kind(s.node.value)
    value = s.text(s.node.value)
    old = s.text(s.node)
    for other, other_kind in s.scope.items():
        # Numbers alone: other kinds are not exchanged by mistake.
        if other != name and other_kind == kind and kind.name in NUMBERS:
            yield (
                [s.put(s.node.targets[0], other)],
                _first_line(old),
                f"{other} = {_first_line(value)}",
            )


def rescale_before(s: BlockStatement) -> Changes:
    """A line that multiplies or divides a name before it changes."""
    name = _name_of_assigned_target(s)
    kind = s.scope.get(name)
    if kind is None or not kind.is_real:
        return
    for factor, factor_kind in s.scope.items():
        # A factor that broadcasts leaves the shape as it is.
        if factor != name and factor_kind.is_real and factor_kind.broadcasts_to(kind):
            for sign in ("*", "/"):
                new = f"{name} = {name} {sign} {factor}"
                yield [s.inserted_before(s.node, [s.indent(s.node) + new])], "", new


def assign_at_end(s: BlockStatement) -> Changes:
    """A line at the end of a loop's body by which a name takes the value of another one.

    A ``return`` that stands there comes after the loop: what follows it would never run.
    """
    if not isinstance(s.owner, ast.For | ast.While) or s.next is not None:
        return
    inner = s.scope
    # Only a name from before the loop carries a value from one pass to the next.
    outer = s.function.observed.scopes.get(getattr(s.owner, "number", -1), {})
    for name, kind in outer.items():
        for other, other_kind in inner.items():
            if other != name and other_kind == kind and kind.name in NUMBERS:
                new = f"{name} = {other}"
                line = s.indent(s.node) + new
                if isinstance(s.node, ast.Return):
                    text = _first_line(s.text(s.node))
                    lines = [line, *_lines_behind(s, s.owner)]
                    yield (
                        [s.rewritten_lines(s.node, lines)],
                        text,
                        f"{new}; {text}  (after the block)",
                    )
                else:
                    yield [s.inserted_after(s.node, [line])], "", new


def _lines_behind(s: BlockStatement, block: ast.stmt) -> list[str]:
    """Return the lines of a statement, indented as the block around it."""
    return _reindent_statement_lines(s.own_lines(s.node), s.indent(s.node), s.indent(block))


def mask_block(s: BlockStatement) -> Changes:
    """A line after scores of a block by which a triangle keeps some; it begins at the number of a loop."""
    name = _name_of_assigned_target(s)
    counters = [n for n, kind in s.scope.items() if kind.name == "int" and n in s.function.counters]
    if not name or not isinstance(s.node, ast.Assign) or not s.function.xp or not counters:
        return
    kind = s.function.kind(s.node.value)
    if kind.name != "floats" or len(kind.shape) < 2:
        return
    # The block's own lengths: the last block may be shorter than the others.
    rows, columns = f"{name}.shape[-2]", f"{name}.shape[-1]"
    for last in ("", *differences(s.scope)):
        for counter in counters:
            # A loop over rows moves the diagonal to the right, one over columns to the left.
            for begins in (
                f"{last} + {counter}" if last else counter,
                f"{last} - {counter}".strip(),
            ):
                mask = write_boolean_triangle(s.function, rows, columns, begins)
                new = f"{name} = {s.function.xp}.where({mask}, {name}, -{s.function.xp}.inf)"
                yield [s.inserted_after(s.node, [s.indent(s.node) + new])], "", new


BLOCK_RULES: tuple[BlockRule, ...] = (
    BlockRule("removed", 1, remove, likely=True),
    BlockRule("moved", 1, swap_with_next, likely=True),
    BlockRule("condition", 1, fix_condition),
    BlockRule("moved", 1, move_out, likely=True),
    BlockRule("moved", 1, move_in, likely=True),
    BlockRule("assignment", 1, change_assignment, likely=True),
    BlockRule("assignment", 1, assign_result, likely=True, added=LOOKED_AT, where="arrays"),
    BlockRule("jump", 1, change_jump, likely=True, added=LOOKED_AT),
    BlockRule("assignment", 2, change_target),
    BlockRule("factor", 2, rescale_before),
    BlockRule("assignment", 3, assign_at_end),
    BlockRule("mask", 3, mask_block, added=LOOKED_AT, where="arrays"),
)
