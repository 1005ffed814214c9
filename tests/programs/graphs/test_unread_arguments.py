"""What an operator's rule does not take is refused by its name, in every language of graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from symattn import InputError
from symattn.programs.graphs.jax_table import JAX
from symattn.programs.graphs.onnx_table import ONNX
from symattn.programs.graphs.running import Graph, GraphArray, GraphNode, Ref, run
from symattn.programs.graphs.torch_table import TORCH

X = Ref("x")


@pytest.mark.parametrize(
    ("dialect", "operator", "operands", "attributes", "words"),
    [
        (TORCH, "aten.softmax", (X, 0), {"approximate": "tanh"}, r"^aten\.softmax: approximate = 'tanh' is not read$"),
        (TORCH, "aten.neg", (X, 1, 2), {}, r"^aten\.neg: it has 3 operands; at most 1 can be read$"),
        (TORCH, "aten.exp", (X,), {"out": X}, r"^aten\.exp: out that is computed is not read$"),
        (ONNX, "MatMul", (X, X), {"alpha": 2.0}, r"^MatMul: alpha = 2.0 is not read$"),
        (ONNX, "Concat", (X, X), {}, r"^Concat: axis is missing$"),
        (JAX, "squeeze", (X,), {"dimensions": [], "mode": "clip"}, r"^squeeze: mode = 'clip' is not read$"),
    ],
)
def test_an_argument_that_is_not_taken_is_named(
    dialect: Any, operator: str, operands: tuple[Any, ...], attributes: dict[str, Any], words: str
) -> None:
    node = GraphNode(operator, operands, ("y",), attributes)
    graph = Graph(dialect, "graph", (GraphArray("x", (2,)),), (), {}, (node,), ("y",))
    with pytest.raises(InputError, match=words):
        run(graph, {"x": np.ones(2)}, np.ones(2))
