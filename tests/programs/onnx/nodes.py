"""Nodes with the fields of a ``NodeProto``, made without ONNX."""

from types import SimpleNamespace
from typing import Any

_FIELDS = {float: (1, "f"), int: (2, "i"), bytes: (3, "s"), SimpleNamespace: (5, "g")}


def node(
    inputs: str = "Q K V", outputs: str = "Y", operator: str = "Attention", domain: str = "", **attributes: Any
) -> Any:
    """A node; ``-`` stands for an input or output that is left out."""
    names, results = ([name.strip("-") for name in text.split()] for text in (inputs, outputs))
    return SimpleNamespace(
        op_type=operator,
        domain=domain,
        input=names,
        output=results,
        attribute=[_attribute(*a) for a in attributes.items()],
    )


def _attribute(name: str, value: Any) -> Any:
    number, field = _FIELDS[type(value)]
    return SimpleNamespace(name=name, type=number, **{field: value})
