"""RotaryEmbedding and LinearAttention: token by token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention.groups import repeat_heads
from symattn.attention.linear import delta_step
from symattn.attention.positions import rotate_half, rotate_interleaved
from symattn.attention.projections import merge_heads, split_heads
from tests.onnx.calls import Call

Arrays = dict[str, Any]


def rotary_embedding(call: Call) -> Arrays:
    """The first columns of each head rotated by the angles of its positions."""
    x, cos, sin = (call.inputs[name] for name in ("X", "cos_cache", "sin_cache"))
    packed = x.ndim == 3
    if packed:
        x = split_heads(x, call.attributes["num_heads"])
    if "position_ids" in call.inputs:
        cos, sin = (table[call.inputs["position_ids"]] for table in (cos, sin))
    width = call.attributes["rotary_embedding_dim"] or x.shape[-1]
    rotate = rotate_interleaved if call.attributes["interleaved"] else rotate_half
    turned = rotate(x[..., :width], cos[..., None, :, :], sin[..., None, :, :])
    y = namespace_of(x).concat([turned, x[..., width:]], axis=-1) if width < x.shape[-1] else turned
    return {"Y": merge_heads(y) if packed else y}


def linear_attention(call: Call) -> Arrays:
    """S_t = e^{g_t} S_{t−1} + k_tᵀ v_t, or the delta rule with β_t; o_t = scale · q_t S_t. Heads share states."""
    rule, heads = call.attributes["update_rule"], call.attributes["kv_num_heads"]
    groups = call.attributes["q_num_heads"] // heads
    q = split_heads(call.inputs["query"], heads * groups)
    given = {name: split_heads(x, heads) for name in ("key", "value") if (x := call.inputs[name]) is not None}
    xp = namespace_of(q)
    state = call.inputs.get("past_state")
    if state is None:
        state = given["key"].mT[..., :, :1] * given["value"][..., :1, :] * 0
    outputs = []
    for t in range(q.shape[-2]):
        state = _written(call, rule, state, t, given["key"][..., t : t + 1, :], given["value"][..., t : t + 1, :])
        outputs.append(q[..., t : t + 1, :] @ repeat_heads(state, groups))
    y = xp.concat(outputs, axis=-2)
    scale = call.attributes.get("scale", 0)
    y = y * scale if scale else y / xp.sqrt(xp.asarray(q.shape[-1], dtype=q.dtype))
    return {"output": merge_heads(y), "present_state": state}


def _written(call: Call, rule: str, state: Any, t: int, k: Any, v: Any) -> Any:
    """The state after a token: forgotten by its decay, then written to."""
    if "gated" in rule:
        decay = split_heads(call.inputs["decay"], state.shape[-3])[..., t : t + 1, :]
        state = state * namespace_of(state).exp(decay).mT
    if "delta" in rule:
        beta = split_heads(call.inputs["beta"], call.inputs["beta"].shape[-1])[..., t : t + 1, :]
        return delta_step(state, k, v, beta)
    return state + k.mT @ v


OPERATORS: Mapping[str, Callable[[Call], Arrays]] = {
    "RotaryEmbedding": rotary_embedding,
    "LinearAttention": linear_attention,
}
