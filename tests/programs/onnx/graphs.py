"""Graphs of one input and one output on any kind of array: the operators that the modifiers of FlexAttention use."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Run = Callable[[Any, list[Any], Mapping[str, Any]], Any]

_OPERATORS: dict[str, Run] = {
    "Add": lambda xp, of, _: of[0] + of[1],
    "Cast": lambda xp, of, _: of[0],  # whole numbers, which every kind takes as they are
    "Div": lambda xp, of, _: of[0] / of[1],
    "Gather": lambda xp, of, attributes: np.take(of[0], of[1], axis=attributes["axis"]),
    "GreaterOrEqual": lambda xp, of, _: of[0] >= of[1],
    "Mul": lambda xp, of, _: of[0] * of[1],
    "Range": lambda xp, of, _: np.arange(*of),
    "Reshape": lambda xp, of, _: np.reshape(of[0], tuple(of[1])),
    "Shape": lambda xp, of, _: np.asarray([int(n) for n in of[0].shape]),
    "Sub": lambda xp, of, _: of[0] - of[1],
    "Tanh": lambda xp, of, _: xp.tanh(of[0]),
    "Where": lambda xp, of, _: xp.where(*of),
}


def run(graph: Any, x: Any) -> Any:
    """The graph's output for the input x."""
    import onnx

    (entry,), (exit_,) = graph.input, graph.output
    values = {tensor.name: _constant(onnx.numpy_helper.to_array(tensor)) for tensor in graph.initializer}
    values[entry.name] = x
    for node in graph.node:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        of = [values[name] for name in node.input]
        values[node.output[0]] = _OPERATORS[node.op_type](x.__array_namespace__(), of, attributes)
    return values[exit_.name]


def _constant(array: Any) -> Any:
    """A number as Python has it, which every kind takes; an array as it is."""
    return array if array.ndim else array.item()
