"""Mistakes with the gate of the output: left out, another function of it, at another place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from symattn.attention import projections, softmax
from symattn.attention.flow import find_projection
from symattn.attention.spec import Attention
from symattn.bounds.mistake import At, Mistake, Wrong, in_steps
from symattn.verification.rules.steps import left_out


def mistakes(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """Yield mistakes in the step that multiplies by the gate."""
    # The gate may be the step "gated", or the output itself without a projection. By its noun it is left out, and
    # applied twice (``recorded_steps``).
    name = next(step.name for step in spec.pipeline(names) if "gate" in step.of)
    for words, share in _SHARES.items():
        yield in_steps("gate", words, **{name: _times(share)})
    if spec.gates_projection:
        words = "the output gate comes before the output projection, not after"
        yield in_steps("gate", words, projected=_gated_before_projection, output=left_out)
        words = "the bias of the output is added after the output gate"
        yield in_steps("gate", words, projected=_projected_without_bias, output=_gated_before_bias)
        return
    words = "the output gate multiplies the values, not the output"
    yield in_steps(
        "gate", words, True, "gated_values", gated_values=_gated_values, **{name: left_out}
    )
    words = "the output gate multiplies the queries, not the output"
    yield in_steps("gate", words, scores=_scores_of_gated_queries, **{name: left_out})
    # With an output projection the gate could stand on either side of it.
    projection = find_projection(spec.pipeline(names))
    if projection is not None:
        words = "the output gate comes after the output projection, not before"
        late: dict[str, Wrong] = {name: left_out, projection.name: _gated_after_projection}
        yield in_steps("gate", words, **late)


def _sigmoid(x: Any) -> Any:
    return softmax.sigmoid_weights(x, 0)


def _gate(at: At) -> Any:
    return at.values["gate"]


def _times(share: Callable[[At, Any], Any]) -> Wrong:
    """Return the step with another function of the gate."""
    return lambda at: at.first * share(at, _gate(at))


#: Functions of the gate that stand for its sigmoid, with words.
_SHARES: dict[str, Callable[[At, Any], Any]] = {
    "the output gate multiplies without its sigmoid": lambda at, x: x,
    "the output gate has the other sign: 1 − σ": lambda at, x: _sigmoid(-x),
    "the output gate is g σ(g) (SiLU), not σ(g)": lambda at, x: x * _sigmoid(x),
    "the output gate is tanh(g), not σ(g)": lambda at, x: at.xp.tanh(x),
    "the output gate is 2 σ(g), not σ(g)": lambda at, x: 2 * _sigmoid(x),
    "the output gate is 1 + σ(g), not σ(g)": lambda at, x: 1 + _sigmoid(x),
    "the output gate is a softmax over the columns": lambda at, x: softmax.softmax(x),
}


def _gated_values(at: At) -> Any:
    """Return values times the gate of their own place. Raises ``KeyError`` unless there are as many queries as keys."""
    gate, values = _gate(at), at.met
    if gate.shape[-2] != values.shape[-2]:
        raise KeyError("queries and keys differ in number")
    return values * _sigmoid(gate)


def _scores_of_gated_queries(at: At) -> Any:
    gate, q = _gate(at), at.first
    if gate.shape[-1] not in (1, q.shape[-1]):
        raise KeyError("queries and gates differ in width")
    return at.right(q * _sigmoid(gate))


def _gated_before_projection(at: At) -> Any:
    """Return the projection of the heads times the gate. Raises ``KeyError`` unless they are as wide as the output."""
    gate, heads = _gate(at), at.first
    several = at.spec.heads > 1
    width = heads.shape[-1] * (at.spec.heads if several else 1)
    if gate.shape[-1] not in (1, width):
        raise KeyError("heads and gates differ in width")
    if several and gate.shape[-1] > 1:
        gate = projections.split_heads(gate, at.spec.heads)
    elif several:
        gate = gate[..., None, :, :]
    return at.right(heads * _sigmoid(gate))


def _projected_without_bias(at: At) -> Any:
    return at.right() - at.values["b_o"]


def _gated_before_bias(at: At) -> Any:
    return at.right() + at.values["b_o"]


def _gated_after_projection(at: At) -> Any:
    """Return the projected output times the gate of all heads side by side. Raises ``KeyError`` for other widths."""
    gate, output = _gate(at), at.right()
    merged = projections.merge_heads(gate) if at.spec.heads > 1 else gate
    if merged.shape[-1] not in (1, output.shape[-1]):
        raise KeyError("outputs and gates differ in width")
    return output * _sigmoid(merged)
