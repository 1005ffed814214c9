"""Models of one fused operator, or of a few: what ONNX's own evaluator gives for them, and what symattn reads."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from symattn import graphs

FLOAT = TensorProto.FLOAT


def of_arrays(given: Mapping[str, np.ndarray], outputs: str = "Y", opset: int = 25, **attributes: Any) -> Any:
    """One node ``Attention`` for arrays by the operator's names of its inputs; ``-`` is an output that is left out."""
    roles = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
    names = [role if role in given else "" for role in roles]
    while not names[-1]:
        names.pop()
    made = [name.strip("-") for name in outputs.split()]
    told = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in given.items()
    ]
    results = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, None) for n in made if n]
    node = helper.make_node("Attention", names, made, **attributes)
    return helper.make_model(
        helper.make_graph([node], "attention", told, results), opset_imports=[helper.make_opsetid("", opset)]
    )


def computed(model: Any, given: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The first output by symattn in float64, and by ONNX's reference evaluator."""
    graph = graphs.read(model)
    (ours,) = graphs.run(graph, given, given["Q"])
    return ours, ReferenceEvaluator(model).run(list(graph.outputs), dict(given))[0]


def layer(
    nodes: list[Any], sizes: tuple[str, str] = ("n", "n"), heads: tuple[int, int] = (2, 2), opset: int = 25,
    more: Mapping[str, tuple[int, tuple[Any, ...]]] | None = None, **weights: np.ndarray,
) -> Any:  # fmt: skip
    """A model of q, k, v → y with heads of four columns; ``more`` inputs by name, each of a type and a shape."""
    (n, m), (h, g) = sizes, heads
    told = [helper.make_tensor_value_info("q", FLOAT, ["b", h, n, 4])]
    told += [helper.make_tensor_value_info(name, FLOAT, ["b", g, m, 4]) for name in "kv"]
    told += [helper.make_tensor_value_info(name, *shape) for name, shape in (more or {}).items()]
    arrays = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    output = helper.make_tensor_value_info("y", FLOAT, ["b", h, n, 4])
    graph = helper.make_graph(nodes, "layer", told, [output], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def attends(q: str = "q", k: str = "k", *more: str, **attributes: Any) -> Any:
    """The node ``Attention`` that gives y."""
    return helper.make_node("Attention", [q, k, "v", *more], ["y"], **attributes)
