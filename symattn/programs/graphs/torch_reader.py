"""Programs of ``torch.export`` in the common form. A program is given as an object: a file of one is not opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from symattn.document.errors import InputError
from symattn.programs.graphs.form import Graph, GraphArray, GraphNode, Ref
from symattn.programs.graphs.ranges import type_name, whole
from symattn.programs.graphs.torch_table import RULES

_LEFT_OUT = ("_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range", "sym_constrain_range_for_size")
_TYPES = {"bool": "bool", "int64": "int", "int32": "int", "int16": "int", "int8": "int", "uint8": "int"}
_TYPES |= dict.fromkeys(("float64", "float32", "float16", "bfloat16"), "float")


def of_program(program: Any, name: str = "the program") -> Graph:
    """The graph of an ``ExportedProgram``: parameters are weights, buffers and constants what they are."""
    kinds = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    inputs, weights, constants, nodes = [], [], {}, []
    outputs: tuple[str, ...] = ()
    for node in program.graph.nodes:
        if node.op == "placeholder":
            spec = kinds[node.name]
            result = spec.kind.name
            if result == "PARAMETER":
                weights.append(GraphArray(node.name, _shape(node.meta["val"].shape), label=spec.target))
            elif result in ("BUFFER", "CONSTANT_TENSOR"):
                constants[node.name] = _held(program, spec.target)
            elif result == "USER_INPUT":
                value = node.meta.get("val")
                if hasattr(value, "shape"):
                    inputs.append(GraphArray(node.name, _shape(value.shape), value.is_floating_point()))
                else:
                    constants[node.name] = value
            else:
                raise InputError(f"{name}: an input of the kind {result} is not read")
        elif node.op == "call_function":
            nodes += list(_node(node))
        elif node.op == "output":
            # the first output that a caller gets: before it may stand buffers that the program changes
            returned = (s.arg for s in program.graph_signature.output_specs if s.kind.name == "USER_OUTPUT")
            outputs = tuple(arg.name for arg in returned if hasattr(arg, "name"))[:1]
        else:
            raise InputError(f"{name}: the node {node.name} of the kind {node.op} is not read")
    return Graph("torch", name, tuple(inputs), tuple(weights), constants, tuple(nodes), outputs, RULES)


def _node(node: Any) -> Iterator[GraphNode]:
    # ``aten.view`` for an overload of it, ``getitem`` for Python's operator
    packet = getattr(node.target, "overloadpacket", None)
    operator = str(packet) if packet is not None else str(getattr(node.target, "__name__", node.target))
    if operator.rpartition(".")[2] in _LEFT_OUT:
        return
    results: Mapping[str, Any] = {k: _operand(v) for k, v in node.kwargs.items() if k not in ("device", "layout")}
    results = {k: v for k, v in results.items() if k not in ("pin_memory", "memory_format")}
    result = type_name(getattr(node.meta.get("val"), "dtype", ""))
    yield GraphNode(operator, tuple(map(_operand, node.args)), (node.name,), results, (result,))


def _operand(x: Any) -> Any:
    if type(x).__name__ == "Node":
        return Ref(x.name)
    if isinstance(x, (list, tuple)):
        return [_operand(part) for part in x]
    if type(x).__name__ == "dtype":
        return _TYPES.get(str(x).removeprefix("torch."), str(x))
    return x


def _shape(shape: Any) -> tuple[int | str, ...]:
    """Lengths, a word for each that was left open."""
    return tuple(n if isinstance(n, int) else str(n) for n in shape)


def _held(program: Any, target: str) -> np.ndarray:
    tensor = program.state_dict.get(target, program.constants.get(target))
    if tensor is None:
        raise InputError(f"the program holds no values of {target}")
    if tensor.is_floating_point():
        return np.asarray(tensor.detach().cpu().double().numpy())
    values = np.asarray(tensor.cpu().numpy())
    return whole(values) if values.dtype.kind in "iu" else values
