"""A node as a call: attributes with their defaults, and inputs by the names that the operator's text gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.programs.onnx.cases import Case


@dataclass(frozen=True)
class Call:
    """What an operator is given: its node, arrays by the graph's names, the rest by the operator's."""

    node: Any
    arrays: Mapping[str, Any]
    attributes: Mapping[str, Any]
    inputs: Mapping[str, Any]


def call(case: Case, lift: Callable[[Any], Any]) -> Call:
    """The case's call, its inputs lifted to a kind of array."""
    from onnx.helper import get_attribute_value

    found = _schema(case)
    defaults = {name: a.default_value for name, a in found.attributes.items() if a.default_value.name}
    given = {a.name: a for a in case.node.attribute}
    values = {name: get_attribute_value(a) for name, a in (defaults | given).items()}
    attributes = {name: v.decode() if isinstance(v, bytes) else v for name, v in values.items()}
    arrays = {name: lift(array) for name, array in case.inputs.items()}
    formal = zip((i.name for i in found.inputs), case.node.input, strict=False)
    return Call(case.node, arrays, attributes, {name: arrays[actual] for name, actual in formal if actual})


def by_name(case: Case, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs under the operator's names as outputs under the graph's names."""
    formal = zip((o.name for o in _schema(case).outputs), case.node.output, strict=False)
    return {actual: outputs[name] for name, actual in formal if actual}


def _schema(case: Case) -> Any:
    """What the installed package says of the operator, in the version that the case is made for."""
    import onnx

    return onnx.defs.get_schema(case.operator, case.opset, case.node.domain)
