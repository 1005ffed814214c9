"""The common form of graphs: nodes that name an operator, constants, weights, and inputs with open sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import signature
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from symattn.arrays.planes import Planes
from symattn.arrays.residues.primes import NoRoot
from symattn.document.errors import InputError, SymattnError
from symattn.programs.graphs.values import (
    NOT_READ,
    Context,
    Joined,
    Rule,
    Value,
    is_plain,
    lighter,
    settled,
)
from symattn.programs.names import Function
from symattn.programs.refusing import one_line

# Each test runs every node, so larger graphs, and longer unrolled loops, are refused.
MOST_NODES = 10_000
# kinds that name themselves in what they refuse, which an operator says better
_KINDS = ("modular", "indexed")


class Ref(NamedTuple):
    """A reference to a value by its name in the graph."""

    name: str


@dataclass(frozen=True)
class GraphNode:
    """An operator of the graph's own language, its operands (``Ref``, plain values, lists of them), and its outputs.

    A missing operand is None. ``attributes`` are passed by name. ``types`` are those of the outputs, such as ``uint8``,
    ``bool``, and ``float`` for any float format; if the graph does not state them, "" or missing. ``place`` returns
    where the source code has the operator, ``file.py:line``, or "".
    """

    operator: str
    operands: tuple[Value, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Value] = field(default_factory=dict)
    types: tuple[str, ...] = ()
    place: Callable[[], str] = field(default=str, repr=False, compare=False)

    def refs(self) -> Iterator[Ref]:
        """Yield the references that the node takes."""
        yield from refs((self.operands, tuple(self.attributes.values())))


class GraphArray(NamedTuple):
    """An input or a weight: its name, its shape with words for open sizes, whether it holds floats, and its label, the
    original name if that is another one."""

    name: str
    shape: tuple[int | str, ...]
    floats: bool = True
    label: str = ""


@dataclass(frozen=True)
class Dialect:
    """The operators of a language of graphs, ``rules`` by name, and their roles in recognising weights.

    apart       operators that take ``Joined`` arrays as they are
    turned      operators that transpose a matrix
    passed      operators that keep the first axis first
    transposes  returns whether a node multiplies by the transpose of the operand of this name
    tuples      whether a node has one output, a tuple, from which an operator takes items
    """

    rules: Mapping[str, Rule] = field(repr=False)
    apart: frozenset[str]
    turned: frozenset[str]
    transposes: Callable[[GraphNode, str], bool]
    passed: frozenset[str] = frozenset()
    tuples: bool = False


@dataclass(frozen=True)
class Graph:
    """A graph of one ``dialect``: nodes in an order in which they can be run.

    ``weights`` are arrays with arbitrary numbers, ``constants`` fixed values.
    """

    dialect: Dialect
    name: str
    inputs: tuple[GraphArray, ...]
    weights: tuple[GraphArray, ...]
    constants: Mapping[str, Value]
    nodes: tuple[GraphNode, ...]
    outputs: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raise ``InputError`` for a name that occurs twice, and for a value that no earlier node makes."""
        name = self.name
        known = [g.name for g in (*self.inputs, *self.weights)] + list(self.constants)
        if len(self.nodes) > MOST_NODES:
            raise InputError(f"{name} has {len(self.nodes)} nodes; at most {MOST_NODES} are read")
        if not self.outputs:
            raise InputError(f"{name} has no output")
        there = set(known)
        if len(there) < len(known):
            twice = next(n for n in known if known.count(n) > 1)
            raise InputError(f"{name}: two values are called {twice[:60]!r}")
        for node in self.nodes:
            # Nodes stand in the order in which they run, so that names are known before use.
            lacking = next((r.name for r in node.refs() if r.name not in there), None)
            if lacking is not None:
                why = "nothing before it makes that: a cycle, or nodes out of order"
                raise InputError(f"{name}: {node.operator} takes {lacking[:60]!r}, and {why}")
            if twice := next((n for n in node.outputs if n in there), ""):
                raise InputError(f"{name}: two values are called {twice[:60]!r}")
            # An output that nobody reads has an empty name.
            there.update(n for n in node.outputs if n)
        if missing := next((n for n in self.outputs if n not in there), None):
            raise InputError(f"{name}: nothing makes the output {missing[:60]!r}")

    @cached_property
    def used(self) -> frozenset[str]:
        """The names of values that some node takes, or that are outputs."""
        taken = frozenset(ref.name for node in self.nodes for ref in node.refs())
        return taken | frozenset(self.outputs)

    @property
    def letters(self) -> tuple[str, ...]:
        """The open sizes, in the order of the inputs."""
        lengths = (n for g in self.inputs for n in g.shape)
        return tuple(dict.fromkeys(n for n in lengths if isinstance(n, str)))


def refs(x: Value) -> Iterator[Ref]:
    """Yield the references within an operand."""
    if isinstance(x, Ref):
        yield x
    elif isinstance(x, (list, tuple)):
        for part in x:
            yield from refs(part)


# -- running a graph on any kind of array: node by node, each operator by its name in the table of its language --------
#: Returns the graph of a function of arrays of these shapes.
Export = Callable[[Function, Sequence[tuple[int, ...]]], Graph]


def on_kind(
    function: Function,
    kind: type[Planes],
    export: Export,
    constant: Callable[[Value], Value] = lambda x: x,
    graphs: dict[str, Graph] | None = None,
) -> Function:
    """Return ``function`` for arrays of ``kind``; other arguments, such as masks, are constants.

    ``constant`` converts such an argument for the function; ``graphs`` caches exported graphs by shapes and constants.
    Raises what ``export`` raises, and ``InputError`` for an unsupported operator.
    """
    graphs = {} if graphs is None else graphs

    def called(*places: Value, **keywords: Value) -> Value:
        leaves = [*places, *keywords.values()]
        at = {i: tuple(x.plain_shape) for i, x in enumerate(leaves) if isinstance(x, kind)}

        def of_arrays(*arrays: Value) -> Value:
            filled = dict(zip(at, arrays, strict=True))
            every = [filled[i] if i in filled else constant(x) for i, x in enumerate(leaves)]
            by_place = every[: len(places)]
            by_name = every[len(places) :]
            return function(*by_place, **dict(zip(keywords, by_name, strict=True)))

        # Values of constants are part of the key, since tracing may depend on them.
        fixed = [
            x.tolist() if isinstance(x, np.ndarray) else x
            for i, x in enumerate(leaves)
            if i not in at
        ]
        key = str((at, tuple(keywords), fixed))
        if key not in graphs:
            graphs[key] = export(of_arrays, list(at.values()))
        names = (x.name for x in graphs[key].inputs)
        pairs = zip(names, (leaves[i] for i in at), strict=True)
        outputs = run(graphs[key], dict(pairs), leaves[min(at)])
        return outputs if len(outputs) > 1 else outputs[0]

    return called


def as_function(graph: Graph) -> Function:
    """Return the graph as a function of its inputs, in order or by name, which returns the first output."""

    def called(*places: Value, **keywords: Value) -> Value:
        arrays = dict(zip((x.name for x in graph.inputs), places, strict=False)) | keywords
        like = next(x for x in arrays.values() if not is_plain(x))
        return run(graph, arrays, like)[0]

    return called


def unknown(graph: Graph) -> tuple[str, ...]:
    """Return the unsupported operators of a graph, each once."""
    return tuple(
        dict.fromkeys(
            node.operator for node in graph.nodes if node.operator not in graph.dialect.rules
        )
    )


def check_operators(graph: Graph) -> None:
    """Raise ``InputError`` with the first unsupported operator."""
    names = unknown(graph)
    if names:
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        raise InputError(
            f"{graph.name}: the operator {names[0]} is not read{more}; hint: give a graph of attention alone"
        )


def run(graph: Graph, inputs: Mapping[str, Value], like: object) -> tuple[Value, ...]:
    """Return the outputs of the graph for arrays by the names of its inputs and weights, on the kind of ``like``.

    ``like`` is an array, or the context of a graph of which this one is a part.

    Raises ``InputError`` for an unsupported operator and for a missing array that some node takes; operations that a
    kind lacks are refused by name, with the operator that needs them.
    """
    if not isinstance(like, Context):
        context = Context(like)
        has_loops = any("body" in node.attributes for node in graph.nodes)
        with lighter(context.kind) if has_loops else nullcontext():
            return run(graph, inputs, context)
    values: dict[str, Value] = {**graph.constants, **inputs}
    used = graph.used
    lacking = next(
        (
            g.name
            for g in (*graph.inputs, *graph.weights)
            if g.name in used and g.name not in inputs
        ),
        None,
    )
    if lacking is not None:
        raise InputError(f"{graph.name}: no array is given for {lacking}")
    for node in (_choose_bits_operator(graph, node) for node in graph.nodes):
        if node.operator not in graph.dialect.rules:
            check_operators(graph)
        result = _compute_node_value(graph.dialect, like, node, values)
        several = result if isinstance(result, tuple) and not graph.dialect.tuples else (result,)
        # An output without a name is unused; a named one that the rule lacks is refused.
        beyond = (name for name in node.outputs[len(several) :] if name)
        if lost := next(beyond, None):
            raise InputError(f"{node.operator}: the output {lost[:60]!r} is not read")
        typed = zip_longest(several[: len(node.outputs)], node.types[: len(several)], fillvalue="")
        several = tuple(_settle_node_value(node, x, outcome) for x, outcome in typed)
        results = zip(node.outputs, several, strict=False)
        values.update((name, x) for name, x in results if name)
    outputs = [values[name] for name in graph.outputs]
    return tuple(None if x is NOT_READ else x for x in outputs)


def _choose_bits_operator(graph: Graph, node: GraphNode) -> GraphNode:
    """Return the node, with the operator for bits if it has one and its output is not boolean."""
    of_bits = f"{node.operator}.bits"
    known = of_bits in graph.dialect.rules and node.types[:1] != ("bool",)
    return replace(node, operator=of_bits) if known else node


def _compute_node_value(
    dialect: Dialect, context: Context, node: GraphNode, values: Mapping[str, object]
) -> Value:
    try:
        operands = [_resolve_references(x, values) for x in node.operands]
        if node.operator not in dialect.apart:
            operands = [x.whole(context) if isinstance(x, Joined) else x for x in operands]
        return dialect.rules[node.operator](
            context,
            *operands,
            **{k: _resolve_references(x, values) for k, x in node.attributes.items()},
        )
    except NoRoot:  # which asks for other primes
        raise
    except SymattnError as error:
        raise _locate_refusal_in_graph(error, node) from None
    # A rule that meets unexpected shapes or arguments refuses the node; it is no crash.
    except (
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        KeyError,
        ZeroDivisionError,
        StopIteration,
    ) as error:
        unread = isinstance(error, TypeError) and _find_unread_argument(dialect, node)
        why = unread or f"{node.operator} cannot be computed: {one_line(error)[:120]}"
        words = InputError(why)
        raise _locate_refusal_in_graph(words, node) from error


def _find_unread_argument(dialect: Dialect, node: GraphNode) -> str:
    """Return words for the first argument of a node that its rule does not take, or lacks; "" if all fit."""
    declared = signature(dialect.rules[node.operator]).parameters.values()
    by_place = [p for p in declared if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    # The context is the first, and operands follow.
    filled, count = by_place[: 1 + len(node.operands)], len(node.operands)
    open_ = [p for p in declared if p not in filled]
    by_name = {p.name: p for p in open_ if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    unread = [name for name in node.attributes if name not in by_name]
    if unread and all(p.kind is not p.VAR_KEYWORD for p in declared):
        value = node.attributes[unread[0]]
        what = " that is computed" if any(refs(value)) else f" = {value!r}"
        return f"{unread[0][:60]}{what[:60]} is not read"
    missing = [name for name, p in by_name.items() if p.default is p.empty]
    if absent := next((name for name in missing if name not in node.attributes), ""):
        return f"{absent} is missing"
    if count >= len(by_place) and all(p.kind is not p.VAR_POSITIONAL for p in declared):
        return f"it has {count} operands; at most {len(by_place) - 1} can be read"
    return ""


def _locate_refusal_in_graph(error: SymattnError, node: GraphNode) -> SymattnError:
    """Return a refusal with the operator and the place of its node, once: graphs within graphs add nothing to it."""
    if getattr(error, "operator", ""):
        return error
    place = node.place()
    named = f"{node.operator} ({place})" if place else node.operator
    words = str(error).removeprefix(f"{node.operator}: ")
    for kind in _KINDS:
        words = words.removeprefix(f"{kind}: ")
    # A sentence whose subject is the operator goes on after the place; any other follows a colon.
    rest = words.removeprefix(f"{node.operator} ")
    message = f"{named}: {words}" if rest == words else f"{named} {rest}"
    result = type(error)(message)
    result.operator = node.operator  # type: ignore[attr-defined]
    return result


def _settle_node_value(node: GraphNode, x: Value, message: str) -> Value:
    try:
        return settled(x, message)
    except SymattnError as error:
        raise _locate_refusal_in_graph(error, node) from None


def _resolve_references(x: object, values: Mapping[str, Value]) -> Value:
    if isinstance(x, Ref):
        value = values[x.name]
        if value is NOT_READ:
            raise InputError("a result that another operator returns beside its first is not read")
        return value
    if isinstance(x, (list, tuple)):
        return [_resolve_references(part, values) for part in x]
    return x
