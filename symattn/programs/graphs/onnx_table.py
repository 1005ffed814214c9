"""The supported operators of ONNX, as calls of ``graph_operators``; for steps of attention by ``symattn.attention``.

Source: ONNX, Operator Schemas, opsets 11 to 25, Attention-23 to -25; an input that used to be an attribute is also
accepted as an attribute.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np

from symattn.arrays.array import Array
from symattn.attention.positions.rotary import rotate
from symattn.attention.projections import merge_heads, split_heads
from symattn.attention.sizes import same
from symattn.document.errors import InputError
from symattn.programs.graphs import graph_operators
from symattn.programs.graphs import graph_operators as op
from symattn.programs.graphs.running import Dialect
from symattn.programs.graphs.values import (
    Context,
    Rule,
    Value,
    are_booleans,
    cast,
    decimal,
    is_plain,
    length,
    lengths,
    place,
    whole,
)
from symattn.programs.onnx import INPUTS, OUTPUTS, OnnxNode, of_node

#: Numbers of ONNX's TensorProto.DataType, and the types of values that they are read as.
TYPES = {
    1: "float",
    10: "float",
    11: "float",
    16: "float",
    9: "bool",
    2: "int",
    3: "int",
    6: "int",
    7: "int",
}


def _cast_onnx_tensor(c: Context, x: Value, to: int, **_: object) -> Value:
    if to not in TYPES:
        raise InputError(f"the type number {to} is not read")
    return cast(c, x, TYPES[to])


def _split_onnx_tensor(
    c: Context, x: Value, split: Value = None, axis: int = 0, num_outputs: int = 0
) -> Value:
    if split is None:
        return op.chunk(c, x, num_outputs, axis)
    return op.split(c, x, list(np.atleast_1d(split)), axis)


def _make_onnx_reduction(name: str) -> Rule:
    rule = op.reduce(name)

    def run(
        c: Context, x: Value, axes: Value = None, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Value:
        # No axes mean all of them, unless the attribute says that nothing is reduced.
        if axes is None or not np.size(axes):
            return x if noop_with_empty_axes else rule(c, x, None, bool(keepdims))
        return rule(c, x, axes, bool(keepdims))

    return run


def _softmax_of_onnx(c: Context, x: Value, axis: int = -1, flattening: bool = False) -> Value:
    if flattening and place(axis, x.ndim) != x.ndim - 1:
        raise InputError("Softmax over several axes, as opsets below 13 have it, is not read")
    return op.softmax(c, x, axis)


def _flatten_onnx_tensor(c: Context, x: Array, axis: int = 1) -> Value:
    """Flatten to two axes: all before ``axis``, and all from there on."""
    # ``axis`` may be the number of axes, which is no place of an axis.
    k = x.ndim if axis == x.ndim else place(axis, x.ndim)
    lengths = [length(n) for n in x.shape]
    rows = math.prod(lengths[:k])
    columns = math.prod(lengths[k:])
    return op.reshape(c, x, (rows, columns))


def _kept_reshape(c: Context, x: Value, shape: Value) -> Value:
    """Reshape; 0 keeps the length of the axis, as in ONNX."""
    wanted = [
        x.shape[k] if isinstance(n, int) and n == 0 else n for k, n in enumerate(lengths(shape))
    ]
    return op.reshape(c, x, wanted)


def attention(c: Context, *operands: Value, opset: int, **attributes: Value) -> tuple[Value, ...]:
    """Compute Attention as ``programs.onnx`` reads it: Y, present_key, present_value and qk_matmul_output."""
    if len(operands) > len(INPUTS):
        raise InputError(f"{len(operands)} inputs; known: {', '.join(INPUTS)}")
    inputs = {role: x for role, x in zip(INPUTS, operands, strict=False) if x is not None}
    for (
        role,
        x,
    ) in inputs.items():  # booleans stay, and so do lengths of a cache, which must be known
        if role == "nonpad_kv_seqlen" and not is_plain(x):
            raise InputError("nonpad_kv_seqlen is computed from the inputs, which is not read")
        inputs[role] = np.asarray(x) if role == "nonpad_kv_seqlen" else c.lifted(x)
    if "scale" in attributes and "Q" in inputs:
        heads = attributes.get("q_num_heads", 1)
        attributes["scale"] = graph_operators.meant_scale(
            inputs["Q"].shape[-1] // max(heads, 1), attributes["scale"]
        )
    attributes |= {
        name: decimal(attributes[name])
        for name in ("scale", "softcap")
        if attributes.get(name) is not None
    }
    node = OnnxNode("Attention", attributes, {}, {role: role for role in OUTPUTS})
    result = of_node(node, inputs, opset).outputs
    return tuple(result[role] for role in OUTPUTS)


# -- operators of ONNX Runtime -----------------------------------------------------------------------------------------
# ONNX Runtime's own operators MultiHeadAttention and GroupQueryAttention, as ONNX's ``Attention`` with their additions.
#
# Source: ONNX Runtime, ContribOperators.md, com.microsoft.MultiHeadAttention and com.microsoft.GroupQueryAttention.
# Other features, such as a padding mask that adds −10000 to scores, packed inputs, sinks and quantised caches, are
# refused by name.

_OPSET = 25  # the opset of Attention whose attributes are used here


def multi_head_attention(
    c: Context,
    query: object,
    key: object = None,
    value: object = None,
    bias: Value = None,
    key_padding_mask: object = None,
    attention_bias: Value = None,
    past_key: Value = None,
    past_value: Value = None,
    past_sequence_length: object = None,
    cache_indirection: object = None,
    *,
    num_heads: int,
    scale: float = 0.0,
    unidirectional: int = 0,
    **more: Value,
) -> tuple[Value, ...]:
    """Compute attention of queries (b, n_q, h d_k), keys and values alike, with a ``bias`` of the three side by side.

    In ``unidirectional`` attention, query i sees the keys up to i and those of the past; there must be as many new keys
    as queries, since the source does not define other numbers.
    """
    more.pop("mask_filter_value", None)  # only for the padding mask
    inputs = {"key_padding_mask": key_padding_mask, "past_sequence_length": past_sequence_length}
    _refuse_unread_onnx_inputs(inputs | {"cache_indirection": cache_indirection} | more)
    tokens = _lift_unpacked_tokens(c, query, key, value)
    if unidirectional and not same(tokens[0].shape[-2], tokens[1].shape[-2]):
        raise InputError(
            "unidirectional attention of another number of new keys than of queries is not read"
        )
    if bias is not None:
        ends = list(accumulate((whole(x.shape[-1], "the columns") for x in tokens), initial=0))
        if tuple(bias.shape) != (ends[-1],):
            raise InputError(f"bias has the shape {tuple(bias.shape)}, expected {(ends[-1],)}")
        parts = (
            graph_operators.part(c, c.lifted(bias), 0, start, end) for start, end in pairwise(ends)
        )
        tokens = tuple(x + b for x, b in zip(tokens, parts, strict=True))
    past = 0 if past_key is None else length(past_key.shape[-2])
    _check_bias(attention_bias, past + length(tokens[1].shape[-2]))
    result: dict[str, Value] = {
        "is_causal": unidirectional,
        "q_num_heads": num_heads,
        "kv_num_heads": num_heads,
    }
    result |= {"scale": scale} if scale else {}  # 0 means the default
    return attention(c, *tokens, attention_bias, past_key, past_value, opset=_OPSET, **result)[:3]


def group_query_attention(
    c: Context,
    query: object,
    key: object = None,
    value: object = None,
    past_key: Value = None,
    past_value: Value = None,
    seqlens_k: object = None,
    total_sequence_length: object = None,
    cos_cache: Value = None,
    sin_cache: Value = None,
    position_ids: Value = None,
    attention_bias: Value = None,
    head_sink: object = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    scale: float = 0.0,
    softcap: float = 0.0,
    do_rotary: int = 0,
    rotary_interleaved: int = 0,
    local_window_size: int = -1,
    **more: Value,
) -> tuple[Value, ...]:
    """Compute causal attention with fewer key heads; a query sees the last ``local_window_size`` keys up to its own.

    With ``do_rotary``, queries and new keys are rotated by the angles of their positions after the past. All sequences
    must be as long as their keys: lengths that differ along a batch are refused.
    """
    # Further attributes at their defaults change nothing.
    not_at_default = {name: x for name, x in more.items() if x not in (0, -1, "NONE")}
    _refuse_unread_onnx_inputs({"head_sink": head_sink} | not_at_default)
    if local_window_size == 0 or local_window_size < -1:
        raise InputError(f"local_window_size is {local_window_size}, which is not read")
    q, k, v = _lift_unpacked_tokens(c, query, key, value)
    past = 0 if past_key is None else length(past_key.shape[-2])
    if not same(q.shape[-2], k.shape[-2]):
        raise InputError("another number of new keys than of queries is not read")
    _check_lengths(seqlens_k, total_sequence_length, length(q.shape[0]), past + length(k.shape[-2]))
    _check_bias(attention_bias, past + length(k.shape[-2]))
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise InputError("do_rotary needs cos_cache and sin_cache")
        # Without ids, new tokens are at the positions after the past.
        places = (
            position_ids
            if position_ids is not None
            else graph_operators.arange(c, past, past + length(q.shape[-2]))
        )
        tables = [graph_operators.gather(c, c.lifted(x), places) for x in (cos_cache, sin_cache)]
        layout = "interleaved" if rotary_interleaved else "half"
        q = _rotate_joined_heads(q, num_heads, tables, layout)
        k = _rotate_joined_heads(k, kv_num_heads, tables, layout)
    result: dict[str, Value] = {
        "is_causal": 1,
        "q_num_heads": num_heads,
        "kv_num_heads": kv_num_heads,
    }
    # 0 means the default
    result |= {name: x for name, x in (("scale", scale), ("softcap", softcap)) if x}
    # The local window includes the query itself; ONNX's left window starts before it.
    result |= {"left_window_size": local_window_size - 1} if local_window_size > 0 else {}
    return attention(c, q, k, v, attention_bias, past_key, past_value, opset=_OPSET, **result)[:3]


def _rotate_joined_heads(x: Value, heads: int, tables: Sequence[Value], layout: str) -> Value:
    """Rotate each head of tokens (b, n, h·d) by tables (b, n, d/2) of cosines and sines."""
    # Tables are shared by all heads, so they have an axis of length 1 for heads.
    cos, sin = (table[..., None, :, :] for table in tables)
    return merge_heads(rotate(split_heads(x, heads), cos, sin, layout))


def _refuse_unread_onnx_inputs(others: dict[str, Value]) -> None:
    """Raise ``InputError`` for an input or attribute that is given but not supported."""
    if unread := next((name for name, x in others.items() if x is not None), None):
        raise InputError(f"{unread} is not read")


def _lift_unpacked_tokens(c: Context, *tokens: Value) -> tuple[Value, ...]:
    if any(x is None or x.ndim != 3 for x in tokens):
        raise InputError(
            "queries, keys and values that are not three arrays of three axes are not read"
        )
    return tuple(map(c.lifted, tokens))


def _check_bias(bias: Value, keys: Value) -> None:
    """Check that the bias of scores has four axes, a column for each key, and no booleans."""
    if bias is None:
        return
    if bias.ndim != 4 or not same(bias.shape[-1], keys) or are_booleans(bias):
        shape = tuple(bias.shape)
        raise InputError(
            f"attention_bias has the shape {shape}; it must be numbers of four axes, the last of {keys}"
        )


def _check_lengths(seqlens_k: Value, total: Value, sequences: Value, keys: Value) -> None:
    """Check that all sequences have ``keys`` keys: ``seqlens_k`` holds their numbers less 1, ``total`` the largest."""
    for name, x in (("seqlens_k", seqlens_k), ("total_sequence_length", total)):
        if x is None:
            raise InputError(f"there is no {name}")
        if not is_plain(x):
            raise InputError(f"{name} is computed from the inputs, which is not read")
    lengths, longest = (np.asarray(x).reshape(-1) for x in (seqlens_k, total))
    # Padding would make the number of keys differ between sequences.
    if not same(len(lengths), sequences):
        raise InputError(f"seqlens_k has {len(lengths)} entries for {sequences} sequences")
    if not all(same(length(n) + 1, keys) for n in lengths):
        raise InputError(f"seqlens_k says that some of {keys} keys are padding, which is not read")
    if len(longest) != 1 or not same(length(longest[0]), keys):
        raise InputError(f"total_sequence_length does not say that there are {keys} keys")


def sizes(shape: Value) -> np.ndarray:
    """Return a shape as a plain array of whole numbers, or of objects if some sizes are open."""
    result = [length(n) for n in shape]
    if all(isinstance(n, int) for n in result):
        return np.array(result, dtype=np.int64)
    values = np.empty(len(result), dtype=object)
    for at, n in enumerate(result):
        values[at] = n
    return values


RULES: Mapping[str, Rule] = {
    **op.table(
        op.binary,
        "Add=add Sub=subtract Mul=multiply And=logical_and Or=logical_or Equal=equal Less=less",
    ),
    **op.table(op.binary, "LessOrEqual=less_equal Greater=greater GreaterOrEqual=greater_equal"),
    **op.table(
        op.unary, "Sqrt=sqrt Exp=exp Log=log Tanh=tanh Erf=erf Abs=abs Neg=negative Not=logical_not"
    ),
    "Reciprocal": lambda c, x: op.divide(c, 1.0, x),
    "Div": op.divide_whole,
    "Mod": op.of_known(
        "a remainder", lambda a, b, fmod=0: (np.fmod if fmod else np.remainder)(a, b)
    ),
    "Pow": op.power,
    "Where": op.where,
    "Cast": _cast_onnx_tensor,
    "Identity": op.same,
    "Constant": lambda c, value=None, **others: (
        value if value is not None else next(iter(others.values()))
    ),
    "ConstantOfShape": lambda c, shape, value=0.0: op.full(
        c, shape, np.asarray(value).reshape(-1)[0]
    ),
    "Range": op.arange,
    "Trilu": op.triangle,
    "Size": lambda c, x: np.asarray(math.prod(length(n) for n in x.shape)),
    "Shape": lambda c, x, start=0, end=None: sizes(x.shape)[start:end],
    "Reshape": lambda c, x, shape, allowzero=0: (
        op.reshape(c, x, shape) if allowzero else _kept_reshape(c, x, shape)
    ),
    "Flatten": _flatten_onnx_tensor,
    "Transpose": lambda c, x, perm=None: op.transpose(c, x, perm),
    "Unsqueeze": op.unsqueeze,
    "Squeeze": op.squeeze,
    "Expand": op.expand,
    "Concat": lambda c, *xs, axis: op.concat(c, xs, axis),
    "Split": _split_onnx_tensor,
    "Slice": lambda c, x, starts, ends, axes=None, steps=None: op.parts(
        c, x, *(None if a is None else np.atleast_1d(a) for a in (starts, ends, steps, axes))
    ),
    "Gather": op.gather,
    "ReduceSum": _make_onnx_reduction("sum"),
    "ReduceMax": _make_onnx_reduction("max"),
    "ReduceMean": _make_onnx_reduction("mean"),
    "MatMul": lambda c, a, b: op.product(c, a, b),
    "Gemm": op.product,
    "Softmax": _softmax_of_onnx,
    "Attention": attention,
    "com.microsoft.MultiHeadAttention": multi_head_attention,
    "com.microsoft.GroupQueryAttention": group_query_attention,
}
ONNX = Dialect(
    RULES,
    apart=frozenset(["MatMul", "Gemm", "Add", "Split", "Slice"]),
    turned=frozenset(["Transpose"]),
    transposes=lambda node, _: node.operator == "Gemm" and bool(node.attributes.get("transB", 0)),
)
