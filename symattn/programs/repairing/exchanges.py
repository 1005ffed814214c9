"""The rules that exchange two parts of one statement: two names wherever they stand in a part of it, two expressions.

``q[i] * k[j]`` for ``q[j] * k[i]``, ``o1 * w1 + o2 * w2`` for ``o1 * w2 + o2 * w1``, ``x[:, h:], x[:, :h]``, and a
sign at another item.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from symattn.programs.repairing.edits import (
    LOOKED_AT,
    BlockRule,
    BlockStatement,
    precedence,
    shown_change,
)
from symattn.programs.repairing.observing import NUMBERS
from symattn.verification.repair import Replacement

#: Replacements, with the old and the new text for a reader.
Changes = Iterator[tuple[Sequence[Replacement], str, str]]
#: Statements whose parts are exchanged.
_SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr)
_MOST = 60  # edits of one statement, by each rule
_LONGEST = 40  # characters of an expression that is exchanged with another one
_COMMUTES = (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr)


def exchange_names(s: BlockStatement) -> Changes:
    """Two names of the same kind exchanged in a statement, or in one of its parts."""
    if not isinstance(s.node, _SIMPLE):
        return
    tried: set[frozenset[int]] = set()
    # Larger parts come first: an exchange in the whole statement is the likelier one.
    for part in _parts_of(s):
        names = _exchangeable_names(s, part)
        for one, other in combinations(names, 2):
            nodes = [*names[one], *names[other]]
            key = frozenset(map(id, nodes))
            if key in tried or not _are_alike(s, names[one][0], names[other][0]):
                continue
            tried.add(key)
            if _commutes(part):
                continue
            yield _exchanged(s, [(n, other if n.id == one else one) for n in nodes])
            if len(tried) >= _MOST:
                return


def _parts_of(s: BlockStatement) -> list[ast.AST]:
    """Return the statement and those of its expressions that have two parts, the largest first."""
    expressions = [n for n in ast.walk(s.node) if isinstance(n, ast.BinOp | ast.Call | ast.Compare)]
    return [s.node, *expressions]


def _exchangeable_names(s: BlockStatement, part: ast.AST) -> dict[str, list[ast.Name]]:
    """Return the names of numbers and arrays in a part of a statement, with their nodes."""
    result: dict[str, list[ast.Name]] = {}
    for node in ast.walk(part):
        is_number = isinstance(node, ast.Name) and _kind_name(s, node) in NUMBERS
        if isinstance(node, ast.Name) and is_number:
            result.setdefault(node.id, []).append(node)
    return result


def _kind_name(s: BlockStatement, node: ast.Name) -> str:
    kind = s.function.kind(node)
    # A target has no value yet when the statement begins.
    return s.scope[node.id].name if kind.name == "unseen" and node.id in s.scope else kind.name


def _are_alike(s: BlockStatement, one: ast.Name, other: ast.Name) -> bool:
    return _kind_name(s, one) == _kind_name(s, other)


def _commutes(part: ast.AST) -> bool:
    """Return whether a part is a product or a sum of two names, whose exchange changes nothing."""
    is_operation = isinstance(part, ast.BinOp) and isinstance(part.op, _COMMUTES)
    sides = (part.left, part.right) if isinstance(part, ast.BinOp) else ()
    return is_operation and all(isinstance(side, ast.Name) for side in sides)


def exchange_expressions(s: BlockStatement) -> Changes:
    """Two expressions of equal kind exchanged that stand apart in a statement."""
    if not isinstance(s.node, _SIMPLE):
        return
    pairs = [p for p in combinations(_exchangeable_expressions(s), 2) if _stand_apart(*p)]
    # The parts of longer expressions come before these.
    pairs.sort(key=lambda pair: sum(len(ast.unparse(node)) for node in pair))
    for one, other in pairs[:_MOST]:
        pair = (one, other), (other, one)
        yield _exchanged(s, [(at, _bracketed(s, at, new)) for at, new in pair])


def _exchangeable_expressions(s: BlockStatement) -> list[Any]:
    """Return the expressions of numbers in a statement that are short, and are not all names."""
    result = []
    for node in ast.walk(s.node):
        is_read = isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", None), ast.Load)
        is_operation = isinstance(node, ast.BinOp | ast.UnaryOp | ast.Call)
        if not (is_read or is_operation) or s.function.kind(node).name not in NUMBERS:
            continue
        if len(s.text(node)) <= _LONGEST and "\n" not in s.text(node):
            result.append(node)
    return result


def _stand_apart(one: Any, other: Any) -> bool:
    """Return whether two expressions overlap nowhere and differ, and are not two names."""
    a, b = sorted((one, other), key=lambda n: (n.lineno, n.col_offset))
    is_before = (a.end_lineno, a.end_col_offset) <= (b.lineno, b.col_offset)
    # Another rule exchanges names.
    are_names = isinstance(one, ast.Name) and isinstance(other, ast.Name)
    return is_before and not are_names and ast.dump(one) != ast.dump(other)


def _bracketed(s: BlockStatement, at: ast.expr, new: ast.expr) -> str:
    """Return the text of an expression for the place of another one, in brackets if it binds less tightly."""
    text = s.text(new)
    return f"({text})" if precedence(new) < precedence(at) else text


def _exchanged(
    s: BlockStatement, changes: Sequence[tuple[ast.expr, str]]
) -> tuple[Sequence[Replacement], str, str]:
    """Return the replacements of expressions by texts, and the old and new text of the statement for a reader."""
    replacements = [s.put(node, new) for node, new in changes]
    old = new = s.text(s.node)
    if "\n" in old:
        # Of several lines the parts alone are shown, in the order of the text.
        in_order = sorted(changes, key=lambda change: s.put(*change))
        olds, news = [s.text(node) for node, _ in in_order], [text for _, text in in_order]
        return replacements, "; ".join(olds), "; ".join(news)
    begin = s.put(s.node, "").column
    for r in sorted(replacements, reverse=True):
        new = new[: r.column - begin] + r.new + new[r.end_column - begin :]
    return replacements, *shown_change(old, new)


BLOCK_RULES: tuple[BlockRule, ...] = (
    BlockRule(
        "exchanged", 2, exchange_names, likely=True, added=LOOKED_AT, where="arrays", last=True
    ),
    BlockRule("exchanged", 3, exchange_expressions, added=LOOKED_AT, where="arrays", last=True),
)
