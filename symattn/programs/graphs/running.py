"""Running a graph on any kind of array: node by node, each operator by its name in the table of its language."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np

from symattn.arrays.planes import Planes
from symattn.document.errors import InputError, SymattnError
from symattn.programs.graphs.form import Graph, GraphNode, Ref, Rule
from symattn.programs.graphs.ranges import settled
from symattn.programs.graphs.values import Context, Joined

#: Operators that take ``Joined`` arrays as they are.
APART = frozenset(["MatMul", "Gemm", "Add", "Split", "Slice", "dot_general", "add", "split", "slice", "getitem"])
_OF_TORCH = ("linear", "addmm", "matmul", "add", "chunk", "split", "split_with_sizes", "slice")
APART |= {f"aten.{name}" for name in _OF_TORCH}
#: What a front end makes of a function of arrays of these shapes: its graph.
Export = Callable[[Callable[..., Any], Sequence[tuple[int, ...]]], Graph]


def on_kind(
    function: Callable[..., Any],
    kind: type[Planes],
    export: Export,
    constant: Callable[[Any], Any] = lambda x: x,
    graphs: dict[Any, Graph] | None = None,
) -> Callable[..., Any]:
    """``function`` for arrays of ``kind``; arguments that are none of it, such as masks, are constants.

    Of several outputs it gives the first. ``constant`` is an argument as the function takes it; ``graphs`` keeps what
    was exported, by shapes and constants. Raises what ``export`` raises, and ``InputError`` for an operator that is not
    read.
    """
    graphs = {} if graphs is None else graphs

    def called(*places: Any, **keywords: Any) -> Any:
        leaves = [*places, *keywords.values()]
        at = {i: tuple(x.plain_shape) for i, x in enumerate(leaves) if isinstance(x, kind)}

        def of_arrays(*arrays: Any) -> Any:
            filled = dict(zip(at, arrays, strict=True))
            every = [filled[i] if i in filled else constant(x) for i, x in enumerate(leaves)]
            result = function(*every[: len(places)], **dict(zip(keywords, every[len(places) :], strict=True)))
            return result[0] if isinstance(result, (tuple, list)) else result

        fixed = [x.tolist() if isinstance(x, np.ndarray) else x for i, x in enumerate(leaves) if i not in at]
        key = str((at, tuple(keywords), fixed))
        if key not in graphs:
            graphs[key] = export(of_arrays, list(at.values()))
        pairs = zip((x.name for x in graphs[key].inputs), (leaves[i] for i in at), strict=True)
        return run(graphs[key], dict(pairs), leaves[min(at)])[0]

    return called


def unknown(graph: Graph) -> tuple[str, ...]:
    """The operators of a graph that are not read, each once."""
    return tuple(dict.fromkeys(node.operator for node in graph.nodes if node.operator not in graph.rules))


def check_operators(graph: Graph) -> None:
    """Raise InputError that names the first operator that is not read."""
    names = unknown(graph)
    if names:
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        raise InputError(
            f"{graph.name}: the operator {names[0]} is not read{more}; hint: give a graph of attention alone"
        )


def run(graph: Graph, given: Mapping[str, Any], like: object) -> tuple[Any, ...]:
    """The outputs of the graph for arrays by the names of its inputs and weights, on the kind of array of ``like``.

    Raises ``InputError`` for an operator that is not read and for a missing array that some node takes; what a
    kind lacks is refused by name, with the operator that asked for it.
    """
    context = Context(like)
    values: dict[str, Any] = {**graph.constants, **given}
    used = graph.used
    lacking = next((g.name for g in (*graph.inputs, *graph.weights) if g.name in used and g.name not in given), None)
    if lacking is not None:
        raise InputError(f"{graph.name}: no array is given for {lacking}")
    for node in (_typed(graph, node) for node in graph.nodes):
        if node.operator not in graph.rules:
            check_operators(graph)
        result = _made(graph.rules[node.operator], context, node, values)
        several = result if isinstance(result, tuple) and graph.language != "torch" else (result,)
        if lost := next((name for name in node.outputs[len(several) :] if name), None):
            raise InputError(f"{node.operator}: the output {lost[:60]!r} is not read")
        typed = zip_longest(several[: len(node.outputs)], node.types[: len(several)], fillvalue="")
        several = tuple(_settled(node, x, outcome) for x, outcome in typed)
        values.update((name, x) for name, x in zip(node.outputs, several, strict=False) if name)
    return tuple(values[name] for name in graph.outputs)


def _typed(graph: Graph, node: GraphNode) -> GraphNode:
    """The node; one that may be of truth values or of bits by the name that it has for what it makes."""
    of_bits = f"{node.operator}.bits"
    return replace(node, operator=of_bits) if of_bits in graph.rules and node.types[:1] != ("bool",) else node


def _made(rule: Rule, context: Context, node: GraphNode, values: Mapping[str, object]) -> Any:
    operands = [_value(x, values) for x in node.operands]
    if node.operator not in APART:
        operands = [x.whole(context) if isinstance(x, Joined) else x for x in operands]
    try:
        return rule(context, *operands, **{k: _value(x, values) for k, x in node.attributes.items()})
    except SymattnError as error:
        words = str(error).removeprefix(f"{node.operator}: ")
        raise type(error)(f"{node.operator}: {words}") from None
    except (TypeError, ValueError, IndexError, AttributeError, KeyError, ZeroDivisionError, StopIteration) as error:
        words = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise InputError(f"{node.operator} cannot be computed: {words}") from error


def _settled(node: GraphNode, x: Any, told: str) -> Any:
    try:
        return settled(x, told)
    except SymattnError as error:
        raise type(error)(f"{node.operator}: {error}") from None


def _value(x: object, values: Mapping[str, Any]) -> Any:
    if isinstance(x, Ref):
        return values[x.name]
    if isinstance(x, (list, tuple)):
        return [_value(part, values) for part in x]
    return x
