"""The common form of graphs: nodes that name an operator, constants, weights, inputs whose sizes may be letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from symattn.document.errors import InputError

MOST_NODES = 10_000
#: What an operator does with a node: the context, its operands in order, its attributes by name.
Rule = Callable[..., Any]


class Ref(NamedTuple):
    """A value by its name in the graph."""

    name: str


@dataclass(frozen=True)
class GraphNode:
    """An operator of the graph's own language, what it takes (``Ref``, plain values, lists of them), what it makes.

    An operand that is left out is None. ``attributes`` are told by name. ``types`` are those of what it makes, such as
    ``uint8``, ``bool`` and ``float`` for one of any format, where the graph tells them, else an empty word or none.
    """

    operator: str
    operands: tuple[Any, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    types: tuple[str, ...] = ()

    def refs(self) -> Iterator[Ref]:
        """The values that it takes."""
        yield from refs((self.operands, tuple(self.attributes.values())))


class GraphArray(NamedTuple):
    """An input or a weight: its name, its lengths, a word where a length was left open, whether it holds floats, and
    what it is called by those who made it, where that is another name."""

    name: str
    shape: tuple[int | str, ...]
    floats: bool = True
    label: str = ""


@dataclass(frozen=True)
class Graph:
    """A graph of one ``language`` (``onnx``, ``torch``): nodes in an order in which they can be run.

    ``weights`` are arrays that any numbers may stand for, ``constants`` values that are what they are, ``rules`` the
    operators of the language that are read.
    """

    language: str
    name: str
    inputs: tuple[GraphArray, ...]
    weights: tuple[GraphArray, ...]
    constants: Mapping[str, Any]
    nodes: tuple[GraphNode, ...]
    outputs: tuple[str, ...]
    rules: Mapping[str, Rule] = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.nodes) > MOST_NODES:
            raise InputError(f"{self.name} has {len(self.nodes)} nodes; at most {MOST_NODES} are read")
        if not self.outputs:
            raise InputError(f"{self.name} has no output")
        known = [g.name for g in (*self.inputs, *self.weights)] + list(self.constants)
        _check(self.name, self.nodes, known, self.outputs)

    @property
    def used(self) -> frozenset[str]:
        """The values that some node takes, or that are outputs."""
        return frozenset(r.name for node in self.nodes for r in node.refs()) | frozenset(self.outputs)

    @property
    def letters(self) -> tuple[str, ...]:
        """The sizes that were left open, in the order in which the inputs name them."""
        return tuple(dict.fromkeys(n for g in self.inputs for n in g.shape if isinstance(n, str)))


def refs(x: Any) -> Iterator[Ref]:
    """The references within an operand."""
    if isinstance(x, Ref):
        yield x
    elif isinstance(x, (list, tuple)):
        for part in x:
            yield from refs(part)


def _check(name: str, nodes: tuple[GraphNode, ...], known: list[str], outputs: tuple[str, ...]) -> None:
    """Raise InputError for a name that stands twice, and for a value that nothing before its use makes."""
    there = set(known)
    if len(there) < len(known):
        twice = next(n for n in known if known.count(n) > 1)
        raise InputError(f"{name}: two values are called {twice[:60]!r}")
    for node in nodes:
        lacking = next((r.name for r in node.refs() if r.name not in there), None)
        if lacking is not None:
            why = "nothing before it makes that: a cycle, or nodes out of order"
            raise InputError(f"{name}: {node.operator} takes {lacking[:60]!r}, and {why}")
        twice = next((n for n in node.outputs if n in there), "")
        if twice:
            raise InputError(f"{name}: two values are called {twice[:60]!r}")
        there.update(n for n in node.outputs if n)
    if missing := next((n for n in outputs if n not in there), None):
        raise InputError(f"{name}: nothing makes the output {missing[:60]!r}")
