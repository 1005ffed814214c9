"""FlexAttention, read by ``symattn.programs.onnx``.

The operators' text multiplies queries and keys by √scale each, before their product; the definition scales the product.
The kind ``rounded`` allows either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from symattn.attention.scores import weighted_values
from symattn.attention.softmax import softmax
from symattn.programs.onnx import attention_of
from tests.programs.onnx import graphs
from tests.programs.onnx.calls import Call

Arrays = dict[str, Any]


def flex_attention(call: Call) -> Arrays:
    """The specification of the node without its graphs, through which scores and weights pass here."""
    modifiers = {name: graph for name in ("score_mod", "prob_mod") if (graph := call.attributes.get(name))}
    found = attention_of(_without(call.node, modifiers), call.arrays)
    if not modifiers:
        return {"Y": found.outputs[call.node.output[0]]}
    steps = found.spec.trace(**found.inputs)
    s = steps["scaled"]
    a = softmax(graphs.run(modifiers["score_mod"], s) if "score_mod" in modifiers else s)
    a = graphs.run(modifiers["prob_mod"], a) if "prob_mod" in modifiers else a
    return {"Y": weighted_values(a, steps["v_shared" if "v_shared" in steps else "v"])}


def _without(node: Any, names: Mapping[str, Any]) -> Any:
    import onnx

    plain = onnx.NodeProto()
    plain.CopyFrom(node)
    del plain.attribute[:]
    plain.attribute.extend(a for a in node.attribute if a.name not in names)
    return plain


OPERATORS: Mapping[str, Callable[[Call], Arrays]] = {"FlexAttention": flex_attention}
