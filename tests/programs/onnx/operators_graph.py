"""Operators that graphs are read with: the node as a graph, run by ``symattn.programs.graphs``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from symattn.programs.graphs.onnx_reader import of_model
from symattn.programs.graphs.running import run as run_graph
from tests.programs.onnx.cases import Case, model

OPERATORS = ("Attention", "LayerNormalization", "RMSNormalization", "RotaryEmbedding", "Softmax")


def run(case: Case, lift: Callable[[Any], Any]) -> dict[str, Any]:
    """The outputs of the graph by their names, for inputs lifted to a kind of array."""
    names = tuple(name for name in case.node.output if name)
    arrays = {name: lift(array) for name, array in case.inputs.items()}
    graph = replace(of_model(model(case)), outputs=names)
    return dict(zip(names, run_graph(graph, arrays, next(iter(arrays.values()))), strict=True))
