"""A graph as a function of a specification's inputs, on any kind of array."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from symattn.attention.projections import split_heads
from symattn.attention.spec import Attention
from symattn.programs.graphs.binding import GraphSlot, bind, bound
from symattn.programs.graphs.form import Graph
from symattn.programs.graphs.running import check_operators, run
from symattn.programs.graphs.sizes import MeasuredSizes, measured
from symattn.programs.graphs.values import Context


@dataclass(frozen=True)
class Program:
    """A graph, which of its arrays is which input of ``spec``, and its sizes."""

    graph: Graph
    spec: Attention
    slots: tuple[GraphSlot, ...]
    sizes: MeasuredSizes
    output: int = 0  # which one is judged

    @classmethod
    def of(cls, graph: Graph, spec: Attention, told: Mapping[str, str] | None = None) -> Program:
        """Raises InputError for an operator that is not read, and where it is open what an array is."""
        check_operators(graph)
        slots = bind(graph, spec, told)
        return cls(graph, spec, slots, measured(graph, spec, slots))

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs of the specification, tokens first."""
        result = dict.fromkeys(part for s in self.slots for part in s.parts)
        first = [n for n in ("x", "q", "k", "v") if n in result]
        return tuple(dict.fromkeys((*first, *result)))

    def __call__(self, inputs: Mapping[str, Any]) -> Any:
        """The output that is judged, on the kind of array of the inputs."""
        like = inputs[self.names[0]]
        result = run(self.graph, bound(self.slots, Context(like), inputs), like)[self.output]
        merged = any(s.merged for s in self.slots if "q" in s.parts)
        heads = self.spec.key_heads if self.output else self.spec.heads  # further outputs are gradients by k and v
        return split_heads(result, heads) if merged else result
