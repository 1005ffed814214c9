"""ONNX's operators that hold whole steps of attention, by the definitions of ``symattn.attention``.

Sources: ONNX, Operator Schemas, Attention-23 to -25, RotaryEmbedding-23, RMSNormalization-23, LayerNormalization-17.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from symattn.arrays.array import Array
from symattn.attention.norms import centre, layer_norm, rms_norm
from symattn.attention.positions.rotary import rotate
from symattn.attention.projections import merge_heads, split_heads
from symattn.document.errors import InputError
from symattn.programs.graphs.attending import meant_scale
from symattn.programs.graphs.operators import gather
from symattn.programs.graphs.values import Context, decimal, is_plain, place
from symattn.programs.onnx.attention import FLOATS, INPUTS, OUTPUTS, OnnxNode, of_node


def attention(c: Context, *operands: Any, opset: int, **attributes: Any) -> tuple[Any, ...]:
    """Attention as ``programs.onnx`` reads the node: Y, present_key, present_value and qk_matmul_output."""
    if len(operands) > len(INPUTS):
        raise InputError(f"{len(operands)} inputs; known: {', '.join(INPUTS)}")
    given = {role: _lifted(c, role, x) for role, x in zip(INPUTS, operands, strict=False) if x is not None}
    if "scale" in attributes and "Q" in given:
        heads = attributes.get("q_num_heads", 1)
        attributes["scale"] = meant_scale(given["Q"].shape[-1] // max(heads, 1), attributes["scale"])
    attributes |= {name: decimal(attributes[name]) for name in ("scale", "softcap") if attributes.get(name) is not None}
    node = OnnxNode("Attention", attributes, {}, {role: role for role in OUTPUTS})
    result = of_node(node, given, opset).outputs
    return tuple(result[role] for role in OUTPUTS)


def _lifted(c: Context, role: str, x: Any) -> Any:
    """Numbers as an array of the kind; booleans stay, and lengths of a cache, which must be known."""
    if role != "nonpad_kv_seqlen":
        return c.lifted(x)
    if not is_plain(x):
        raise InputError("nonpad_kv_seqlen is computed from the inputs, which is not read")
    return np.asarray(x)


def rotary_embedding(
    c: Context, x: Any, cos: Any, sin: Any, position_ids: object = None, interleaved: int = 0, num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Array:  # fmt: skip
    """The first columns of each head turned by the angles of its place: all, unless a width is told."""
    if x.ndim == 3 and (num_heads < 1 or x.shape[-1] % num_heads):
        raise InputError(f"num_heads is {num_heads}, which does not divide the {x.shape[-1]} columns of X")
    heads = split_heads(x, num_heads) if x.ndim == 3 else x
    cos, sin = (_rows(c, c.lifted(table), position_ids) for table in (cos, sin))
    width = rotary_embedding_dim or heads.shape[-1]
    if not (2 * cos.shape[-1] == 2 * sin.shape[-1] == width):
        raise InputError(f"tables of {cos.shape[-1]} and {sin.shape[-1]} columns turn {width} columns; half is needed")
    y = rotate(heads, cos[..., None, :, :], sin[..., None, :, :], "interleaved" if interleaved else "half")
    return merge_heads(y) if x.ndim == 3 else y


def _rows(c: Context, table: Any, places: Any) -> Any:
    """The rows of a table that places name: (most, r/2) for places (b, n) → (b, n, r/2)."""
    if places is None:
        return table
    if not is_plain(places):
        raise InputError("position_ids are computed from the inputs, which is not read; hint: the tables' own rows")
    return c.xp.stack([gather(c, table, row) for row in np.atleast_2d(np.asarray(places))], axis=0)


def rms_normalization(
    c: Context, x: Any, scale: Any, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    """X / √(mean(X²) + ε) · scale over the axes from ``axis`` on."""
    _check_stashed(stash_type)
    flat, back = _flattened(c, x, axis)
    return back(rms_norm(flat, decimal(epsilon), _parameter(c, scale, x, axis)))


def layer_normalization(
    c: Context, x: Any, scale: Any, b: Any = None, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Any, Any, Any]:
    """(X − mean) / √(variance + ε) · Scale + B over the axes from ``axis`` on; the mean; 1 / √(variance + ε)."""
    _check_stashed(stash_type)
    flat, back = _flattened(c, x, axis)
    gain, bias = (_parameter(c, p, x, axis) for p in (scale, b))
    variance = c.xp.mean(centre(flat) * centre(flat), axis=-1, keepdims=True)
    return (
        back(layer_norm(flat, decimal(epsilon), gain, bias)),
        back(c.xp.mean(flat, axis=-1, keepdims=True)),
        back(1 / c.xp.sqrt(variance + c.lifted(decimal(epsilon)))),
    )


def _check_stashed(kind: int) -> None:
    """The format in which the norm is taken is not followed, as no rounding is; it must be one of floats."""
    if kind not in FLOATS:
        raise InputError(f"stash_type is {kind}; known: {FLOATS}")


def _flattened(c: Context, x: Any, axis: int) -> tuple[Any, Callable[[Any], Any]]:
    """The axes from ``axis`` on as one, and the way back, which leaves an axis of length 1 for one that was summed."""
    k = place(axis, x.ndim)
    rows, columns = tuple(x.shape[:k]), tuple(x.shape[k:])
    if len(columns) == 1:
        return x, lambda y: y
    flat = c.xp.reshape(x, (*rows, math.prod(columns)))
    return flat, lambda y: c.xp.reshape(y, (*rows, *(columns if y.shape[-1] != 1 else (1,) * len(columns))))


def _parameter(c: Context, p: Any, x: Array, axis: int) -> Any:
    """A gain or a bias as one axis, where the axes from ``axis`` on are one."""
    if p is None:
        return None
    columns = tuple(x.shape[place(axis, x.ndim) :])
    p = c.lifted(p)
    if p.ndim > len(columns):
        raise InputError(f"a gain or bias of {p.ndim} axes, where {len(columns)} are normalised, is not read")
    return p if len(columns) == 1 else c.xp.reshape(c.xp.broadcast_to(p, columns), (math.prod(columns),))
