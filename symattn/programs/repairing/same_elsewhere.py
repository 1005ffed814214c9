"""Which edits are the same as another one for every input: a number as a factor that comes out of what is around.

Lengths that are equal in the observed call tell nothing: of small calls many are, and the right text would be lost.
"""

from __future__ import annotations

import ast

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
