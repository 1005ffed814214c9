"""Every operator, by the definitions of ``symattn.attention``: a call in, outputs by the operator's names out.

A call has a node's attributes with their defaults, and its inputs by the names that the operator's text gives them.
FlexAttention's text multiplies queries and keys by √scale each, before their product; the definition scales the
product. The kind ``rounded`` allows either.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from symattn import functional, graphs, streaming
from tests.programs.onnx.cases import Case, model
from tests.programs.onnx.graphs import run as run_body

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """What an operator is given: its node, arrays by the graph's names, the rest by the operator's."""

    node: Any
    arrays: Mapping[str, Any]
    attributes: Mapping[str, Any]
    inputs: Mapping[str, Any]


def call(case: Case, lift: Callable[[Any], Any]) -> Call:
    """The case's call, its inputs lifted to a kind of array."""
    from onnx.helper import get_attribute_value

    found = _schema(case)
    defaults = {name: a.default_value for name, a in found.attributes.items() if a.default_value.name}
    given = {a.name: a for a in case.node.attribute}
    values = {name: get_attribute_value(a) for name, a in (defaults | given).items()}
    attributes = {name: v.decode() if isinstance(v, bytes) else v for name, v in values.items()}
    arrays = {name: lift(array) for name, array in case.inputs.items()}
    formal = zip((i.name for i in found.inputs), case.node.input, strict=False)
    return Call(case.node, arrays, attributes, {name: arrays[actual] for name, actual in formal if actual})


def by_name(case: Case, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs under the operator's names as outputs under the graph's names."""
    formal = zip((o.name for o in _schema(case).outputs), case.node.output, strict=False)
    return {actual: outputs[name] for name, actual in formal if actual}


def _schema(case: Case) -> Any:
    """What the installed package says of the operator, in the version that the case is made for."""
    import onnx

    return onnx.defs.get_schema(case.operator, case.opset, case.node.domain)


# -- operators by definitions ------------------------------------------------------------------------------------------
def flex_attention(call: Call) -> Arrays:
    """The specification of the node without its graphs, through which scores and weights pass here."""
    modifiers = {name: graph for name in ("score_mod", "prob_mod") if (graph := call.attributes.get(name))}
    found = graphs.attention_of(_without(call.node, modifiers), call.arrays)
    if not modifiers:
        return {"Y": found.outputs[call.node.output[0]]}
    steps = found.spec.trace(**found.inputs)
    s = steps["scaled"]
    a = functional.softmax(run_body(modifiers["score_mod"], s) if "score_mod" in modifiers else s)
    a = run_body(modifiers["prob_mod"], a) if "prob_mod" in modifiers else a
    return {"Y": a @ steps["v_shared" if "v_shared" in steps else "v"]}


def _without(node: Any, names: Mapping[str, Any]) -> Any:
    import onnx

    plain = onnx.NodeProto()
    plain.CopyFrom(node)
    del plain.attribute[:]
    plain.attribute.extend(a for a in node.attribute if a.name not in names)
    return plain


def log_softmax_of(call: Call) -> Arrays:
    return {"output": over_axis(call.inputs["input"], call.attributes["axis"], log_softmax)}


def log_softmax(s: Any) -> Any:
    """s_j − m − log Σ_l e^{s_l − m}: subtracted one after another, so that a large m costs no digits."""
    xp = s.__array_namespace__()
    return s - functional.row_max(s) - xp.log(xp.sum(functional.exponentials(s), axis=-1, keepdims=True))


def over_axis(x: Any, axis: int, function: Callable[[Any], Any]) -> Any:
    """A function of the last axis, along another one."""
    xp = x.__array_namespace__()
    order = list(range(x.ndim))
    order[axis], order[-1] = order[-1], order[axis]
    return xp.permute_dims(function(xp.permute_dims(x, order)), order)


def linear_attention(call: Call) -> Arrays:
    """Token by token, each state read by the heads of queries that share it: o_t = scale · q_t S_t."""
    rule, g = call.attributes["update_rule"], call.attributes["kv_num_heads"]
    q = functional.split_heads(call.inputs["query"], call.attributes["q_num_heads"])
    xp = q.__array_namespace__()
    b, h, n, d = q.shape
    # Heads of queries that share a state are an axis of their own, of length 1 for all else.
    members = xp.reshape(q, (b, g, h // g, n, d))
    k, v = (functional.split_heads(call.inputs[name], g)[:, :, None] for name in ("key", "value"))
    decay, beta = (_per_head(call.inputs.get(name), g) for name in ("decay", "beta"))
    state = call.inputs["past_state"][:, :, None] if "past_state" in call.inputs else streaming.empty_state(k, v)
    gates = [decay] if "gated" in rule else []
    if "delta" in rule:
        state, y = streaming.scan(streaming.delta_token, state, range(n + 1), members, k, v, beta, *gates)
    else:
        state, y = streaming.scan(streaming.gated_step, state, range(n + 1), members, k, v, *gates)
    scale = call.attributes.get("scale", 0)
    y = y * xp.asarray(scale, dtype=q.dtype) if scale else y / xp.sqrt(xp.asarray(d, dtype=q.dtype))
    return {"output": functional.merge_heads(xp.reshape(y, (b, h, n, v.shape[-1]))), "present_state": state[:, :, 0]}


def _per_head(x: Any, heads: int) -> Any:
    """Decays or rates (b, n, heads · d) for each head, with the axis of those that share; (b, n, 1) for all heads."""
    return None if x is None else functional.split_heads(x, heads if x.shape[-1] > 1 else 1)[:, :, None]


OPERATORS: Mapping[str, Callable[[Call], Arrays]] = {
    "FlexAttention": flex_attention, "LogSoftmax": log_softmax_of, "LinearAttention": linear_attention,
}  # fmt: skip


# -- operators by graphs: the node as a graph, run by ``symattn.programs.graphs`` --------------------------------------
AS_GRAPHS = ("Attention", "LayerNormalization", "RMSNormalization", "RotaryEmbedding", "Softmax")


def run_as_graph(case: Case, lift: Callable[[Any], Any]) -> dict[str, Any]:
    """The outputs of the graph by their names, for inputs lifted to a kind of array."""
    names = tuple(name for name in case.node.output if name)
    arrays = {name: lift(array) for name, array in case.inputs.items()}
    graph = replace(graphs.read(model(case)), outputs=names)
    return dict(zip(names, graphs.run(graph, arrays, next(iter(arrays.values()))), strict=True))


def run(case: Case, lift: Callable[[Any], Any]) -> dict[str, Any]:
    """The case's outputs by the definition, for inputs lifted to a kind of array, by their names in the graph."""
    if case.operator in AS_GRAPHS:
        return run_as_graph(case, lift)
    return by_name(case, OPERATORS[case.operator](call(case, lift)))
