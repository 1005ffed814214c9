"""What a node of an ONNX graph says, read without ONNX: attributes by name, and inputs by their place.

A ``NodeProto`` is read by its fields (``op_type``, ``attribute``, ``input``, ``output``), as onnx.proto defines them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symattn.errors import InputError

# AttributeProto.AttributeType, and the field that holds a value of that type. Source: onnx.proto.
_FIELDS = {1: "f", 2: "i", 3: "s", 5: "g", 6: "floats", 7: "ints", 8: "strings"}


@dataclass(frozen=True)
class Node:
    """A node: what it is called, its attributes, and the graph's names of its inputs and outputs by their role."""

    operator: str
    attributes: Mapping[str, Any]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]

    def known(self, *attributes: str) -> None:
        """Raise InputError for an attribute that is none of these."""
        for name in self.attributes:
            if name not in attributes:
                words = ", ".join(sorted(attributes))
                raise InputError(f"{self.operator}: unknown attribute {name!r}; known: {words}")


def read(proto: Any, inputs: Sequence[str], outputs: Sequence[str]) -> Node:
    """The node of a ``NodeProto`` whose places mean ``inputs`` and ``outputs``; an input left out has an empty name."""
    attributes = {attribute.name: _value(proto.op_type, attribute) for attribute in proto.attribute}
    found = (_roles(proto.op_type, what, proto_names, names) for what, proto_names, names in (
        ("inputs", proto.input, inputs),
        ("outputs", proto.output, outputs),
    ))  # fmt: skip
    return Node(proto.op_type, attributes, *found)


def _value(operator: str, attribute: Any) -> Any:
    field = _FIELDS.get(attribute.type)
    if field is None:
        raise InputError(f"{operator}: attribute {attribute.name!r} has type {attribute.type}, which is not read")
    value = getattr(attribute, field)
    return (
        value.decode() if isinstance(value, bytes) else list(value) if field.endswith("s") and field != "s" else value
    )


def _roles(operator: str, what: str, names: Sequence[str], roles: Sequence[str]) -> dict[str, str]:
    if len(names) > len(roles):
        raise InputError(f"{operator} has {len(names)} {what}; known: {', '.join(roles)}")
    return {role: name for role, name in zip(roles, names, strict=False) if name}
