"""Types of the values of a model of ONNX: of inputs and constants as told, of others by what the operators keep.

Source: ONNX, Operator Schemas: operands of one type give an output of that type, and nothing is promoted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TRUTH = frozenset(["Not", "And", "Or", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
_SECOND = ("Where", "CastLike")  # the type of their second operand; of any other operator that of the first


def of_nodes(graph: Any) -> Mapping[str, str]:
    """A type by the name of each value of a ``GraphProto``: ``uint8``, ``bool``, ``float``; empty where it is open."""
    found = {v.name: named(v.type.tensor_type.elem_type) for v in graph.input}
    found |= {a.name: named(a.data_type) for a in graph.initializer}
    for node in graph.node:
        told = _made(node, [found.get(name, "") for name in node.input])
        found |= dict.fromkeys(node.output, told)
    return found


def named(number: int) -> str:
    """The name of a type by its number: ``float`` for floats of any format, else as NumPy has it."""
    from onnx import TensorProto

    name = TensorProto.DataType.Name(number).lower() if number in TensorProto.DataType.values() else ""
    return "float" if name.startswith(("float", "bfloat", "double")) else name


def _made(node: Any, operands: list[str]) -> str:
    told = {a.name: a for a in node.attribute}
    if node.op_type in _TRUTH:
        return "bool"
    if node.op_type == "Shape":
        return "int64"
    if node.op_type == "Cast":
        return named(told["to"].i) if "to" in told else ""
    if node.op_type in ("Constant", "ConstantOfShape"):
        held = told.get("value")
        return named(held.t.data_type) if held else "float" if node.op_type == "ConstantOfShape" else ""
    at = 1 if node.op_type in _SECOND else 0
    return operands[at] if at < len(operands) else ""
