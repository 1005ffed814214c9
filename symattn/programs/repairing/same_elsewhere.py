"""Which edits are the same as another one: a factor that comes out of what is around, a number that another text gives.

The first text stands for all that are equal in the observed call, so that equal ones are not tried again and again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

#: Functions and methods out of which a number comes as a factor, and attributes of an array with its entries.
_LINEAR = (
    "sum", "mean", "cumsum", "swapaxes", "transpose", "permute", "reshape", "view", "T", "mT", "matmul", "dot",
    "repeat", "tile", "flatten", "ravel", "squeeze", "unsqueeze", "expand_dims", "broadcast_to", "expand",
)  # fmt: skip


def comes_out_as_factor(node: ast.AST, parent: ast.AST, field: str) -> bool:
    """Return whether a number that multiplies an expression may as well multiply the one around it."""
    if isinstance(parent, ast.BinOp):
        return isinstance(parent.op, ast.MatMult)
    if isinstance(parent, ast.UnaryOp):
        return isinstance(parent.op, ast.USub)
    if isinstance(parent, ast.Subscript):
        return field == "value"
    if isinstance(parent, ast.Attribute):
        return parent.attr in _LINEAR
    word = getattr(parent, "func", None)
    is_first = isinstance(parent, ast.Call) and parent.args[:1] == [node]
    return is_first and getattr(word, "attr", "") in _LINEAR


def each_number_once(texts: Iterable[tuple[str, int | None]]) -> Iterator[str]:
    """Yield texts of whole numbers, each number once; all texts whose number is not known."""
    known: set[int] = set()
    for text, value in texts:
        if value is None:
            yield text
        elif value not in known:
            known.add(value)
            yield text
