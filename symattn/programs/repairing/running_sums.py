"""The running sums of a function, and the texts of their last items and of what is summed up after each item.

A decay over a block is the exponential of a running sum, and that from an item to the end of the block the exponential
of the last sum minus its own.
"""

from __future__ import annotations

import ast

#: Calls that sum up along an axis, with the words that give the axis.
_SUMMING = ("cumsum", "cumulative_sum")
_AXES = ("axis", "dim")
_CASTS = ("astype", "to", "float", "double")


def axes_of_running_sums(tree: ast.AST) -> dict[str, int]:
    """Return the names that hold a running sum, each with its axis; the last one if the call names none."""
    result: dict[str, int] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        axis = _axis_of_running_sum(node.value)
        if axis is not None:
            result[node.targets[0].id] = axis
    return result


def _axis_of_running_sum(node: ast.expr) -> int | None:
    """Return the axis of a call that sums up, also of a column or a cast of its result; None for anything else."""
    new_axes = _count_new_last_axes(node)
    if new_axes:
        axis = _axis_of_running_sum(node.value)  # type: ignore[attr-defined]
        # An axis that is counted from the last one is further away from it.
        return axis if axis is None or axis >= 0 else axis - new_axes
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    if node.func.attr in _CASTS:
        return _axis_of_running_sum(node.func.value)
    if node.func.attr not in _SUMMING:
        return None
    named = [keyword.value for keyword in node.keywords if keyword.arg in _AXES]
    for argument in (*named, *node.args):
        # An axis is a number that is written: arrays come before it in a call of a module.
        axis = _whole_number_of(argument)
        if axis is not None:
            return axis
    return -1


def _count_new_last_axes(node: ast.expr) -> int:
    """Return how many axes of length 1 a subscript such as ``[..., None]`` puts behind all others; 0 if it does more.

    >>> [_count_new_last_axes(ast.parse(f"x[{index}]", mode="eval").body) for index in ("..., None", "None", "0")]
    [1, 0, 0]
    """
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple):
        return 0
    first, *others = node.slice.elts
    is_whole = isinstance(first, ast.Constant) and first.value is Ellipsis
    are_new = all(isinstance(item, ast.Constant) and item.value is None for item in others)
    return len(others) if is_whole and are_new else 0


def _whole_number_of(node: ast.expr) -> int | None:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError):
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def write_last_item(name: str, axis: int, axes: int, keeps_axis: bool) -> str:
    """Return the text of the last item along an axis of an array with so many ``axes``."""
    item = "-1:" if keeps_axis else "-1"
    if axis % axes == 0:
        return f"{name}[{item}]"
    behind = ", :" * (axes - 1 - axis % axes)
    return f"{name}[..., {item}{behind}]"


def write_rest_of_sum(name: str, axis: int, axes: int) -> str:
    """Return the text of what is summed up after each item: the last sum minus its own."""
    return f"({write_last_item(name, axis, axes, True)} - {name})"
