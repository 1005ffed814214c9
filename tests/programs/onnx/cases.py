"""The node cases that the installed ``onnx`` makes: a node, inputs, and the outputs that a backend must give."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

# Operators, and the modules of onnx.backend.test.case.node that hold their cases.
OPERATORS = {
    "Attention": "attention",
    "FlexAttention": "flexattention",
    "LinearAttention": "linear_attention",
    "Softmax": "softmax",
    "LogSoftmax": "logsoftmax",
    "LayerNormalization": "layernormalization",
    "RMSNormalization": "rmsnormalization",
    "RotaryEmbedding": "rotaryembedding",
}


@dataclass(frozen=True)
class Case:
    """A node with its inputs and the expected outputs, by their names in the graph."""

    name: str
    opset: int
    node: Any
    inputs: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]

    @property
    def operator(self) -> str:
        operator: str = self.node.op_type
        return operator

    @property
    def dtype(self) -> str:
        """The format of the inputs and outputs."""
        return next(iter(self.inputs.values())).dtype.name

    def with_attributes(self, **changes: Any) -> Case:
        """The same inputs and outputs for a node of other attributes; None takes an attribute away."""
        import onnx

        node = onnx.NodeProto()
        node.CopyFrom(self.node)
        kept = [a for a in node.attribute if a.name not in changes]
        made = [onnx.helper.make_attribute(name, value) for name, value in changes.items() if value is not None]
        del node.attribute[:]
        node.attribute.extend(kept + made)
        return replace(self, node=node)


@cache
def cases() -> tuple[Case, ...]:
    """Every case of the operators above; those that ONNX expands into smaller operators are the same cases again."""
    from onnx.backend.test.case import node

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package's own arithmetic
        for module in OPERATORS.values():
            import_module(f"{node.__name__}.{module}")
    found = (case for case in node._NodeTestCases if "_expanded" not in case.name)
    return tuple(_case(case) for case in found if case.model.graph.node[0].op_type in OPERATORS)


def held() -> Counter[str]:
    """How many cases there are of each operator."""
    return Counter(case.operator for case in cases())


def _case(case: Any) -> Case:
    (node,) = case.model.graph.node
    ((inputs, outputs),) = case.data_sets
    opset = next(o.version for o in case.model.opset_import if o.domain == node.domain)
    given = dict(zip(filter(None, node.input), map(np.asarray, inputs), strict=True))
    expected = dict(zip(filter(None, node.output), map(np.asarray, outputs), strict=True))
    return Case(case.name, opset, node, given, expected)


def model(case: Case) -> Any:
    """The node alone as a model."""
    from onnx import helper

    def info(name: str, array: np.ndarray | None = None) -> Any:
        kind = helper.np_dtype_to_tensor_dtype((next(iter(case.inputs.values())) if array is None else array).dtype)
        return helper.make_tensor_value_info(name, kind, None if array is None else array.shape)

    results = [info(name) for name in case.node.output if name]
    graph = helper.make_graph([case.node], "node", [info(*item) for item in case.inputs.items()], results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(case.node.domain, case.opset)])
