"""Every operator, by the definitions of ``symattn.attention``: a call in, outputs by the operator's names out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.programs.onnx import operators_attention, operators_graph, operators_rows, operators_tokens
from tests.programs.onnx.calls import Call, by_name, call
from tests.programs.onnx.cases import Case

OPERATORS: Mapping[str, Callable[[Call], dict[str, Any]]] = {
    **operators_attention.OPERATORS,
    **operators_rows.OPERATORS,
    **operators_tokens.OPERATORS,
}


def run(case: Case, lift: Callable[[Any], Any]) -> dict[str, Any]:
    """The case's outputs by the definition, for inputs lifted to a kind of array, by their names in the graph."""
    if case.operator in operators_graph.OPERATORS:
        return operators_graph.run(case, lift)
    return by_name(case, OPERATORS[case.operator](call(case, lift)))
