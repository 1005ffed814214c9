"""The supported operators of ONNX, as calls of the functions of ``graph_operators``.

Source: ONNX, Operator Schemas, opsets 11 to 25; an input that used to be an attribute is also accepted as an attribute.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from symattn.arrays.array import Array
from symattn.document.errors import InputError
from symattn.programs.graphs import fused
from symattn.programs.graphs import graph_operators as op
from symattn.programs.graphs.running import Dialect
from symattn.programs.graphs.values import Context, Rule, Value, cast, length, lengths, place, sizes

TYPES = {1: "float", 10: "float", 11: "float", 16: "float", 9: "bool", 2: "int", 3: "int", 6: "int", 7: "int"}


def _cast(c: Context, x: Value, to: int, **_: object) -> Value:
    if to not in TYPES:
        raise InputError(f"the type number {to} is not read")
    return cast(c, x, TYPES[to])


def _slice(c: Context, x: Value, starts: Value, ends: Value, axes: Value = None, steps: Value = None) -> Value:
    return op.parts(c, x, *(None if a is None else np.atleast_1d(a) for a in (starts, ends, steps, axes)))


def _split(c: Context, x: Value, split: Value = None, axis: int = 0, num_outputs: int = 0) -> Value:
    if split is None:
        return op.chunk(c, x, num_outputs, axis)
    return op.split(c, x, list(np.atleast_1d(split)), axis)


def _reduce(name: str) -> Rule:
    rule = op.reduce(name)

    def run(c: Context, x: Value, axes: Value = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Value:
        if axes is None or not np.size(axes):
            return x if noop_with_empty_axes else rule(c, x, None, bool(keepdims))
        return rule(c, x, axes, bool(keepdims))

    return run


def _softmax(c: Context, x: Value, axis: int = -1, flattening: bool = False) -> Value:
    if flattening and place(axis, x.ndim) != x.ndim - 1:
        raise InputError("Softmax over several axes, as opsets below 13 have it, is not read")
    return op.softmax(c, x, axis)


def _flatten(c: Context, x: Array, axis: int = 1) -> Value:
    """Flatten to two axes: all before ``axis``, and all from there on."""
    k = x.ndim if axis == x.ndim else place(axis, x.ndim)
    lengths = [length(n) for n in x.shape]
    return op.reshape(c, x, (math.prod(lengths[:k]), math.prod(lengths[k:])))


def _kept_reshape(c: Context, x: Value, shape: Value) -> Value:
    """Reshape; 0 keeps the length of the axis, as in ONNX."""
    wanted = [x.shape[k] if isinstance(n, int) and n == 0 else n for k, n in enumerate(lengths(shape))]
    return op.reshape(c, x, wanted)


RULES: Mapping[str, Rule] = {
    **op.table(op.binary, "Add=add Sub=subtract Mul=multiply And=logical_and Or=logical_or Equal=equal Less=less"),
    **op.table(op.binary, "LessOrEqual=less_equal Greater=greater GreaterOrEqual=greater_equal"),
    **op.table(op.unary, "Sqrt=sqrt Exp=exp Log=log Tanh=tanh Erf=erf Abs=abs Neg=negative Not=logical_not"),
    "Reciprocal": lambda c, x: op.divide(c, 1.0, x),
    "Div": op.divide_whole,
    "Pow": op.power,
    "Where": op.where,
    "Cast": _cast,
    "Identity": op.same,
    "Constant": lambda c, value=None, **others: value if value is not None else next(iter(others.values())),
    "ConstantOfShape": lambda c, shape, value=0.0: op.full(c, shape, np.asarray(value).reshape(-1)[0]),
    "Range": op.arange,
    "Trilu": op.triangle,
    "Size": lambda c, x: np.asarray(math.prod(length(n) for n in x.shape)),
    "Shape": lambda c, x, start=0, end=None: sizes(x.shape)[start:end],
    "Reshape": lambda c, x, shape, allowzero=0: op.reshape(c, x, shape) if allowzero else _kept_reshape(c, x, shape),
    "Flatten": _flatten,
    "Transpose": lambda c, x, perm=None: op.transpose(c, x, perm),
    "Unsqueeze": op.unsqueeze,
    "Squeeze": op.squeeze,
    "Expand": op.expand,
    "Concat": lambda c, *xs, axis: op.concat(c, xs, axis),
    "Split": _split,
    "Slice": _slice,
    "Gather": op.gather,
    "ReduceSum": _reduce("sum"),
    "ReduceMax": _reduce("max"),
    "ReduceMean": _reduce("mean"),
    "MatMul": lambda c, a, b: op.product(c, a, b),
    "Gemm": op.product,
    "Softmax": _softmax,
    "Attention": fused.attention,
    "com.microsoft.MultiHeadAttention": fused.multi_head_attention,
    "com.microsoft.GroupQueryAttention": fused.group_query_attention,
}
ONNX = Dialect(
    RULES,
    apart=frozenset(["MatMul", "Gemm", "Add", "Split", "Slice"]),
    turned=frozenset(["Transpose"]),
    transposes=lambda node, _: node.operator == "Gemm" and bool(node.attributes.get("transB", 0)),
)
