"""Axes of a benchmark's definition that are computed from other axes, such as ``hidden_size // num_heads``.

https://github.com/NVIDIA/SOL-ExecBench, docs/definition.md: an axis of the type ``expr`` has an ``expression`` of
whole numbers, other axes, ``+ - * / // % **`` and parentheses.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from symattn.document.errors import InputError

_MAX_LENGTH = 400  # characters of an expression
# A larger power may take all memory.
_MAX_POWER = 16
#: The only expressions that are read: the text is not trusted.
_PARTS = (ast.Constant, ast.Name, ast.UnaryOp, ast.BinOp)
#: Operations whose results are whole; quotients and powers have checks of their own.
_OPERATIONS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def compute_axis(expression: str, sizes: Mapping[str, int], where: str) -> int | None:
    """Return the size that an expression gives; None if it names an axis without a size.

    Raises ``InputError`` for what is no such expression, and for a result that is no size.

    >>> compute_axis("hidden // heads", {"hidden": 4096, "heads": 32}, "an axis")
    128
    """
    problem = f"{where} is {expression!r}, which gives no size"
    if len(expression) > _MAX_LENGTH:
        raise InputError(f"{where} has an expression of more than {_MAX_LENGTH} characters")
    try:
        tree = ast.parse(expression, mode="eval").body
        if any(
            isinstance(node, ast.expr) and not isinstance(node, _PARTS) for node in ast.walk(tree)
        ):
            raise ValueError("it has parts other than numbers, axes and operations")
        # The axis may have a size later, from another expression.
        if any(isinstance(node, ast.Name) and node.id not in sizes for node in ast.walk(tree)):
            return None
        result = _value_of(tree, sizes)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError) as error:
        raise InputError(f"{problem}: {error}") from None
    if result < 0:
        raise InputError(f"{problem}: {result}")
    return result


def _value_of(node: ast.expr, sizes: Mapping[str, int]) -> int:
    """Return the whole number that a part of an expression stands for. Raises ``ValueError`` for any other part."""
    # Not ``isinstance``, since True is an int in Python.
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return sizes[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        value = _value_of(node.operand, sizes)
        return -value if isinstance(node.op, ast.USub) else value
    if not isinstance(node, ast.BinOp):
        raise ValueError(f"{ast.unparse(node)} is no number, axis or operation")
    left = _value_of(node.left, sizes)
    right = _value_of(node.right, sizes)
    if isinstance(node.op, ast.Div):
        if left % right:
            raise ValueError(f"{left} is not divisible by {right}")
        return left // right
    if isinstance(node.op, ast.Pow):
        if not 0 <= right <= _MAX_POWER:
            raise ValueError(f"the power {right} is not between 0 and {_MAX_POWER}")
        return int(left**right)
    operation = _OPERATIONS.get(type(node.op))
    if operation is None:
        raise ValueError(f"{ast.unparse(node)} has another operation")
    return operation(left, right)
