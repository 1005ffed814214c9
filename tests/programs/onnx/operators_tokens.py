"""LinearAttention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention.linear import delta_token, empty_state, gated_step, scan
from symattn.attention.projections import merge_heads, split_heads
from tests.programs.onnx.calls import Call

Arrays = dict[str, Any]


def linear_attention(call: Call) -> Arrays:
    """Token by token, each state read by the heads of queries that share it: o_t = scale · q_t S_t."""
    rule, g = call.attributes["update_rule"], call.attributes["kv_num_heads"]
    q = split_heads(call.inputs["query"], call.attributes["q_num_heads"])
    xp = namespace_of(q)
    b, h, n, d = q.shape
    # Heads of queries that share a state are an axis of their own, of length 1 for all else.
    members = xp.reshape(q, (b, g, h // g, n, d))
    k, v = (split_heads(call.inputs[name], g)[:, :, None] for name in ("key", "value"))
    decay, beta = (_per_head(call.inputs.get(name), g) for name in ("decay", "beta"))
    state = call.inputs["past_state"][:, :, None] if "past_state" in call.inputs else empty_state(k, v)
    gates = [decay] if "gated" in rule else []
    if "delta" in rule:
        state, y = scan(delta_token, state, range(n + 1), members, k, v, beta, *gates)
    else:
        state, y = scan(gated_step, state, range(n + 1), members, k, v, *gates)
    scale = call.attributes.get("scale", 0)
    y = y * xp.asarray(scale, dtype=q.dtype) if scale else y / xp.sqrt(xp.asarray(d, dtype=q.dtype))
    return {"output": merge_heads(xp.reshape(y, (b, h, n, v.shape[-1]))), "present_state": state[:, :, 0]}


def _per_head(x: Any, heads: int) -> Any:
    """Decays or rates (b, n, heads · d) for each head, with the axis of those that share; (b, n, 1) for all heads."""
    return None if x is None else split_heads(x, heads if x.shape[-1] > 1 else 1)[:, :, None]


OPERATORS: Mapping[str, Callable[[Call], Arrays]] = {
    "LinearAttention": linear_attention,
}
