"""The rule that moves an operation: a factor, a term or a call that is taken from one expression and put on another.

Both expressions stand apart in the code; for one within the other, ``orders`` has rules.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from symattn.programs.repairing.edits import Place
from symattn.programs.repairing.observing import Kind

#: The rule's name, and the tier of its edits.
NAME, TIER = "operation moved", 3
_LONGEST = 60  # characters of an operation that is moved
_MOST_MOVES = 600  # of one function
#: Stands for the operand in the text of an operation.
_HOLE = "__hole__"
#: Operators that may move with their other operand.
_MOVED = (ast.Mult, ast.Div, ast.Add, ast.Sub)


@dataclass(frozen=True)
class _Taken:
    """An operation at a place: what is left without it, the operation with a hole, and the kind of its operand."""

    place: Place
    left: ast.expr
    around: ast.expr
    operand: Kind

    @property
    def names(self) -> set[str]:
        """The names that the operation needs."""
        return {n.id for n in ast.walk(self.around) if isinstance(n, ast.Name)} - {_HOLE}

    def put_on(self, node: ast.expr) -> str:
        """Return the text of the operation on another expression."""
        return ast.unparse(self.around).replace(_HOLE, f"({ast.unparse(node)})")


def moves(places: Sequence[Place]) -> Iterator[tuple[tuple[Place, ast.expr], tuple[Place, str]]]:
    """Yield what is left at one place, and the text that is put at another."""
    # Floats alone: other operations are not moved by mistake.
    sites = [
        p
        for p in places
        if p.kind.name == "floats" and not p.is_called and not isinstance(p.node, ast.Constant)
    ]
    count = 0
    for taken in _yield_movable_operations(sites):
        for site in sites:
            # Inside itself an operation cannot be put.
            if _is_apart(taken.place, site) and _is_operation_placeable(taken, site):
                yield (taken.place, taken.left), (site, taken.put_on(site.node))
                count += 1
                if count == _MOST_MOVES:
                    return


def _yield_movable_operations(sites: Sequence[Place]) -> Iterator[_Taken]:
    hole = ast.Name(_HOLE, ast.Load())
    for p in sites:
        node = p.node
        if isinstance(node, ast.BinOp) and isinstance(node.op, _MOVED):
            pairs = [(node.left, node.right, ast.BinOp(hole, node.op, node.right))]
            # Only a sum or a product can move with its left operand.
            if isinstance(node.op, ast.Mult | ast.Add):
                pairs.append((node.right, node.left, ast.BinOp(hole, node.op, node.left)))
            for left, operand, around in pairs:
                if p.kind_of(left).name == "floats":
                    yield _Taken(p, left, around, p.kind_of(operand))
        elif isinstance(node, ast.Call):
            for k, left in enumerate(node.args[:2]):
                if p.kind_of(left) == p.kind:
                    arguments = [*node.args[:k], hole, *node.args[k + 1 :]]
                    yield _Taken(
                        p, left, ast.Call(node.func, arguments, node.keywords), Kind("float")
                    )


def _is_operation_placeable(taken: _Taken, site: Place) -> bool:
    known = site.scope.keys() | site.function.free_names
    short = len(ast.unparse(taken.around)) <= _LONGEST
    return short and taken.names <= known and taken.operand.broadcasts_to(site.kind)


def _is_apart(one: Place, other: Place) -> bool:
    a, b = one.node, other.node
    before = (a.end_lineno, a.end_col_offset) <= (b.lineno, b.col_offset)
    return before or (b.end_lineno, b.end_col_offset) <= (a.lineno, a.col_offset)
