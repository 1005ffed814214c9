"""Graphs of ONNX for tests, spelled out by ``onnx.helper``: a layer like GPT-2's, with faults that can be asked for."""

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def layer(fault: str = "", d: int = 4, heads: int = 2, width: int = 4) -> Any:
    """x (b, n, d) → (b, n, d): c_attn, heads, a causal mask, softmax, c_proj; spelled out.

    ``fault``: ``flipped`` mask, ``scale``, ``squared`` scale, swapped ``heads`` of the values, columns ``dealt`` to
    heads in turn, the ``own`` key masked by a large number, an ``unknown`` operator, a ``window`` of 16 keys.
    """
    maker, nodes = _Maker(), []
    columns = heads * width
    maker.weight("c_attn.weight", d, 3 * columns)
    maker.weight("c_attn.bias", 3 * columns)
    maker.weight("c_proj.weight", columns, d)
    maker.weight("c_proj.bias", d)
    nodes += [
        helper.make_node("MatMul", ["x", "c_attn.weight"], ["xw"]),
        helper.make_node("Add", ["xw", "c_attn.bias"], ["qkv"]),
        helper.make_node("Split", ["qkv", maker.ints("parts", [columns] * 3)], ["q0", "k0", "v0"], axis=-1),
        *_spelled(maker, heads, width, fault),
        helper.make_node("MatMul", ["o", "c_proj.weight"], ["ow"]),
        helper.make_node("Add", ["ow", "c_proj.bias"], ["y"]),
    ]
    if fault == "unknown":
        nodes[-1] = helper.make_node("Det", ["ow"], ["y"])
    shape = ["b", "n", d]
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        maker.arrays,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])


class _Maker:
    """Initializers."""

    def __init__(self) -> None:
        self.arrays: list[Any] = []

    def weight(self, name: str, *shape: int) -> str:
        values = np.random.default_rng(len(self.arrays)).standard_normal(shape).astype(np.float32)
        self.arrays.append(numpy_helper.from_array(values, name))
        return name

    def ints(self, name: str, values: list[int]) -> str:
        self.arrays.append(numpy_helper.from_array(np.array(values, dtype=np.int64), name))
        return name

    def number(self, name: str, value: float) -> str:
        self.arrays.append(numpy_helper.from_array(np.array(value, dtype=np.float32), name))
        return name


def _spelled(maker: _Maker, heads: int, width: int, fault: str) -> list[Any]:
    apart = [width, heads] if fault == "dealt" else [heads, width]
    shape, back = maker.ints("apart", [0, 0, *apart]), maker.ints("joined", [0, 0, heads * width])
    zero, one = maker.ints("zero", []), maker.ints("axis", [1])
    maker.arrays[-2].CopyFrom(numpy_helper.from_array(np.array(0, dtype=np.int64), zero))
    maker.arrays.append(numpy_helper.from_array(np.array(1, dtype=np.int64), "step"))
    scale = maker.number("scale", {"scale": 0.4, "squared": 1 / width}.get(fault, width**-0.5))
    least = maker.number("least", -np.inf if fault != "own" else -1e30)
    nodes = []
    for role in "qkv":
        nodes.append(helper.make_node("Reshape", [f"{role}0", shape], [f"{role}1"]))
        nodes.append(
            helper.make_node("Transpose", [f"{role}1"], [role], perm=[0, 3, 1, 2] if fault == "dealt" else [0, 2, 1, 3])
        )
    if fault == "heads":
        nodes.append(helper.make_node("Gather", ["v", maker.ints("order", list(range(heads))[::-1])], ["vs"], axis=1))
    order, below = ["j", "i"] if fault != "flipped" else ["i", "j"], "Less" if fault == "own" else "LessOrEqual"
    return [
        *nodes,
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["qk"]),
        helper.make_node("Mul", ["qk", scale], ["s"]),
        helper.make_node("Shape", ["x"], ["lengths"]),
        helper.make_node("Gather", ["lengths", "step"], ["n"], axis=0),
        helper.make_node("Range", [zero, "n", "step"], ["j"]),
        helper.make_node("Unsqueeze", ["j", one], ["i"]),
        *([helper.make_node(below, order, ["seen"])] if fault != "window" else _window(maker)),
        helper.make_node("Where", ["seen", "s", least], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["w"], axis=-1),
        helper.make_node("MatMul", ["w", "vs" if fault == "heads" else "v"], ["o1"]),
        helper.make_node("Transpose", ["o1"], ["o2"], perm=[0, 2, 3, 1] if fault == "dealt" else [0, 2, 1, 3]),
        helper.make_node("Reshape", ["o2", back], ["o"]),
    ]


def _window(maker: _Maker) -> list[Any]:
    return [
        helper.make_node("LessOrEqual", ["j", "i"], ["behind"]),
        helper.make_node("Add", ["j", maker.ints("reach", [16])], ["last"]),
        helper.make_node("Less", ["i", "last"], ["near"]),
        helper.make_node("And", ["behind", "near"], ["seen"]),
    ]


def bare(change: list[Any] | None = None, *, opset: int = 23, flat: int | None = None, **constants: Any) -> Any:
    """q, k, v (b, n, 4) → softmax(q kᵀ/2) v. ``change`` makes ``q2`` of ``q``; ``flat`` is an axis for Softmax."""
    arrays = [numpy_helper.from_array(np.asarray(x), name) for name, x in constants.items()]
    scale = "" if "scale" in constants else "half"
    arrays += [numpy_helper.from_array(np.array(0.5, dtype=np.float32), "half")] if scale else []
    axis = {} if flat is None else {"axis": flat}
    nodes = [
        *(change or [helper.make_node("Identity", ["q"], ["q2"])]),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q2", "kt"], ["qk"]),
        helper.make_node("Mul", ["qk", scale or "used"], ["s"]),
        helper.make_node("Softmax", ["s"], ["w"], **axis),
        helper.make_node("MatMul", ["w", "v"], ["y"]),
    ]
    told = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["b", "n", 4]) for n in ("q", "k", "v", "y")]
    graph = helper.make_graph(nodes, "bare", told[:3], told[3:], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
