"""Read programs of ``torch.export`` into the common form. A program is an object: files of programs are not opened."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from symattn.arrays.planes import Planes
from symattn.arrays.residues import degree
from symattn.arrays.residues.primes import NoRoot
from symattn.document.errors import InputError, SymattnError
from symattn.programs.frameworks import import_torch
from symattn.programs.graphs import running
from symattn.programs.graphs.running import Graph, GraphArray, GraphNode, Ref
from symattn.programs.graphs.torch_recorder import (
    ATTENTION,
    COMPILER,
    PLACED,
    operand_of,
    record,
    values_of,
)
from symattn.programs.graphs.torch_table import RULES, TORCH
from symattn.programs.graphs.values import Value, type_name
from symattn.programs.names import Function
from symattn.programs.refusing import one_line

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram
    from torch.fx import Node

#: Checks that torch adds to a program; they compute nothing.
_LEFT_OUT = (
    "_assert_scalar",
    "_assert_tensor_metadata",
    "sym_constrain_range",
    "sym_constrain_range_for_size",
)
#: The module whose import takes seconds, and which nothing but an export loads.
_EXPORTER = "torch.export._trace"


def on_kinds(
    dtype: str, ask_to_load: Callable[[], bool] = lambda: False
) -> Callable[[Function, type[Planes]], Function]:
    """Return a converter of functions of tensors to functions of arrays of a kind; see ``running.on_kind``.

    A function is recorded, or exported if that does not do. To load ``torch.export`` takes seconds, so that the process
    is asked to in whose copy the function runs; ``ask_to_load`` returns whether there is one.

    The converter raises ``InputError`` if the function cannot be exported, or an operator is not supported.
    """
    # What is compiled cannot be recorded.
    if COMPILER in sys.modules:
        warm()
    torch = import_torch()
    recorded_graphs, graphs = dict[str, Graph](), dict[str, Graph]()
    unrecorded: list[SymattnError] = []

    def make(function: Function, kind: type[Planes]) -> Function:
        torch.set_num_threads(1)  # threads do not survive copying the process
        label = getattr(function, "__name__", type(function).__name__)

        def record_graph(of_tensors: Function, shapes: Sequence[tuple[int, ...]]) -> Graph:
            return record(of_tensors, shapes, dtype, label)

        def export(of_tensors: Function, shapes: Sequence[tuple[int, ...]]) -> Graph:
            examples = [torch.zeros(shape, dtype=getattr(torch, dtype)) for shape in shapes]
            graph = of_program(
                _export_torch_function(of_tensors, examples, label), label, every=True
            )
            if others := running.unknown(graph):
                raise InputError(f"{label}: torch's operator {others[0]} is not read")
            return graph

        def make_constant(x: Value) -> Value:
            return constant(x, dtype)

        as_recorded = running.on_kind(function, kind, record_graph, make_constant, recorded_graphs)
        as_exported = running.on_kind(function, kind, export, make_constant, graphs)

        def called(*places: object, **keywords: object) -> Value:
            try:
                if not unrecorded:
                    result = as_recorded(*places, **keywords)
                    note_attention(kind, recorded_graphs)
                    return result
            except NoRoot:  # which asks for other primes
                raise
            except SymattnError as error:
                # An export has operators of another level, and says why there is none.
                if _EXPORTER not in sys.modules and ask_to_load():
                    raise
                unrecorded.append(error)
            warm()
            result = as_exported(*places, **keywords)
            note_attention(kind, graphs)
            return result

        return called

    return make


def note_attention(kind: type[Planes], graphs: Mapping[str, Graph]) -> None:
    """Note that there is no bound if some graph calls torch's own attention."""
    nodes = (node for graph in graphs.values() for node in graph.nodes)
    if hasattr(kind, "field") and any(node.operator == ATTENTION for node in nodes):
        kind.field.decisions.chance = degree.UNKNOWN
        kind.field.unbounded["torch's own attention is taken as documented"] = None


def constant(x: Value, dtype: str) -> Value:
    if not isinstance(x, np.ndarray):
        return x
    torch = import_torch()
    # A copy, since a tensor would share the memory of an argument that may be read-only.
    tensor = torch.from_numpy(np.array(x))
    return tensor.to(getattr(torch, dtype)) if x.dtype.kind == "f" else tensor


def _export_torch_function(
    function: Function, examples: list[Tensor], label: str
) -> ExportedProgram:
    torch = import_torch()

    class Exported(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, *tensors: object) -> Value:
            return function(*tensors)

    def export(module: Function) -> ExportedProgram:
        return torch.export.export(module, tuple(examples), strict=False)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own
            try:
                return export(Exported())
            except RuntimeError:  # it contains a backward pass, which must be traced first
                from torch.fx.experimental.proxy_tensor import make_fx

                return export(make_fx(function)(*examples))
    except Exception as error:  # a user's function may raise anything
        raise InputError(f"{label} cannot be exported: {one_line(error)}") from error


def _decompose_exported_program(program: ExportedProgram, name: str) -> ExportedProgram:
    """Return the program with missing and mutating operators decomposed, as far as torch can."""
    called = {
        node.target
        for node in program.graph.nodes
        if node.op == "call_function" and not _is_check(node)
    }
    # Mutating operators have no rule, and decomposition replaces them by functional ones.
    writes = any(
        getattr(getattr(target, "_schema", None), "is_mutable", False) for target in called
    )
    if not writes and all(_name_of_torch_operator(target) in RULES for target in called):
        return program  # the usual case: decomposing takes longer than exporting
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own
            return program.run_decompositions(_select_decompositions())
    except Exception as error:  # custom operators may raise anything
        raise InputError(f"{name} cannot be exported: {one_line(error)}") from error


@cache
def _select_decompositions() -> Mapping[object, Function]:
    """Return torch's decompositions of operators that are not in the table."""
    every = import_torch().export.default_decompositions()
    return {
        target: rule
        for target, rule in every.items()
        if _name_of_torch_operator(target) not in RULES
    }


def decomposition(operator: object) -> Function | None:
    """Return the function of operators in the table by which torch decomposes an operator that is not; None if none."""
    return _select_decompositions().get(operator)


def _name_of_torch_operator(target: object) -> str:
    """Return ``aten.view`` for an overload of it, ``getitem`` for Python's operator."""
    packet = getattr(target, "overloadpacket", None)
    return str(packet) if packet is not None else str(getattr(target, "__name__", target))


def _is_check(node: Node) -> bool:
    return _name_of_torch_operator(node.target).rpartition(".")[2] in _LEFT_OUT


@cache
def warm() -> None:
    """Export something once, so that copies of this process share the imports, which take seconds."""
    torch = import_torch()
    of_program(_export_torch_function(lambda x: x.add_(1), [torch.zeros(1)], "nothing"))


def of_program(program: ExportedProgram, name: str = "the program", every: bool = False) -> Graph:
    """Return the graph of an ``ExportedProgram``, of its first output or of ``every`` output.

    Parameters are weights; buffers and constants keep their values.
    """
    program = _decompose_exported_program(program, name)
    kinds = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    inputs, weights, nodes = [], [], []
    constants: dict[str, Value] = {}
    outputs: tuple[str, ...] = ()
    for node in program.graph.nodes:
        if node.op == "placeholder":
            spec = kinds[node.name]
            result = spec.kind.name
            if result == "PARAMETER":
                weights.append(
                    GraphArray(
                        node.name,
                        _convert_symbolic_shape(node.meta["val"].shape),
                        label=spec.target,
                    )
                )
            elif result in ("BUFFER", "CONSTANT_TENSOR"):
                constants[node.name] = _read_values_of_target(program, spec.target)
            elif result == "TOKEN":  # it orders checks, which compute nothing
                constants[node.name] = None
            elif result == "USER_INPUT":
                value = node.meta.get("val")
                if hasattr(value, "shape"):
                    inputs.append(
                        GraphArray(
                            node.name,
                            _convert_symbolic_shape(value.shape),
                            value.is_floating_point(),
                        )
                    )
                else:
                    constants[node.name] = value
            else:
                raise InputError(f"{name}: an input of the kind {result} is not read")
        elif node.op == "call_function":
            nodes += list(_convert_torch_node(node))
        elif node.op == "output":
            # only the outputs for the caller: buffers that the program changes may precede them
            returned = (
                s.arg for s in program.graph_signature.output_specs if s.kind.name == "USER_OUTPUT"
            )
            outputs = tuple(arg.name for arg in returned if hasattr(arg, "name"))[
                : None if every else 1
            ]
        else:
            raise InputError(f"{name}: the node {node.name} of the kind {node.op} is not read")
    return Graph(TORCH, name, tuple(inputs), tuple(weights), constants, tuple(nodes), outputs)


def _convert_torch_node(node: Node) -> Iterator[GraphNode]:
    # Checks of sizes compute nothing.
    if _is_check(node):
        return
    keywords = {k: operand(v) for k, v in node.kwargs.items() if k not in PLACED}
    result = type_name(getattr(node.meta.get("val"), "dtype", ""))
    yield GraphNode(
        _name_of_torch_operator(node.target),
        tuple(map(operand, node.args)),
        (node.name,),
        keywords,
        (result,),
    )


def operand(x: Value) -> Value:
    if type(x).__name__ == "Node":
        return Ref(x.name)
    if isinstance(x, (list, tuple)):
        return [operand(part) for part in x]
    return operand_of(x)


def _convert_symbolic_shape(shape: Iterable[object]) -> tuple[int | str, ...]:
    """Return the lengths, with words for open ones."""
    return tuple(n if isinstance(n, int) else str(n) for n in shape)


def _read_values_of_target(program: ExportedProgram, target: str) -> np.ndarray:
    tensor = program.state_dict.get(target, program.constants.get(target))
    if tensor is None:
        raise InputError(f"the program holds no values of {target}")
    return values_of(tensor)
