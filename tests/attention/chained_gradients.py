"""Gradients of any ``Attention`` by the chain rule over its steps, as frameworks go back: a reference of its own.

The softmax and the cap have formulas from their results; every other step is differentiated alone. Nothing is shared
with the steps of ``Gradient``, and it also has sinks, log-sums, projections, latents and positions that these lack.
"""

from collections.abc import Mapping
from typing import Any

from symattn import Attention, vjp


def differentiate(spec: Attention, cotangent: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The gradients of ⟨G, f(…)⟩ by all inputs that hold numbers; with ``lse`` the cotangent is a pair."""
    values = spec.trace(**inputs)
    result = {"output": cotangent[0], "lse": cotangent[1]} if spec.lse else {"output": cotangent}
    # In reverse order the gradient of an array is complete when its step is reached.
    for step in reversed(spec.pipeline(inputs)):
        if step.name in result:
            operands = tuple(values[name] for name in step.of)
            parts = pull_back(spec, step, operands, values[step.name], result[step.name])
            for name, part in zip(step.of, parts, strict=True):
                add_part(result, name, part)
    names = vjp(spec, cotangent, inputs).keys()
    return {name: result[name] if name in result else 0 * inputs[name] for name in names}


def add_part(result: dict[str, Any], name: str, part: Any) -> None:
    """Add the gradient by one of the steps that read an array."""
    if part is not None:
        result[name] = result[name] + part if name in result else part


def pull_back(spec: Attention, step: Any, operands: tuple[Any, ...], y: Any, g: Any) -> tuple[Any, ...]:
    """The gradients of ⟨g, y⟩ by a step's operands; None for those that hold no numbers."""
    if step.name == "capped":
        return (g * (1 - (y / y.__array_namespace__().asarray(spec.softcap, dtype=y.dtype)) ** 2),)
    if step.name == "weights" and spec.normaliser == "softmax":
        return pull_back_softmax(spec, operands, y, g)
    named = {str(place): x for place, x in enumerate(operands)}
    gradients = vjp(lambda **arrays: step.run(*arrays.values()), g, named, ties="second")
    return tuple(map(gradients.get, named))


def pull_back_softmax(spec: Attention, operands: tuple[Any, ...], p: Any, g: Any) -> tuple[Any, ...]:
    """dS = P ⊙ (dP − D) and, for a sink, db = −(1 − rowsum(P)) D, D = rowsum(P ⊙ dP); times log b for powers of b."""
    xp = p.__array_namespace__()
    rate = 1 if spec.base is None else xp.log(xp.asarray(spec.base, dtype=p.dtype))
    d = row_sums(p, g)
    gradients = [p * (g - d) * rate]
    if spec.sink == "given":
        gradients.append(sum_per_sink(sink_gradient(p, d) * rate, operands[1]))
    return tuple(gradients) + (None,) * (len(operands) - len(gradients))


def row_sums(p: Any, g: Any) -> Any:
    """D, (…, n_q, 1)."""
    return p.__array_namespace__().sum(p * g, axis=-1, keepdims=True)


def sink_gradient(p: Any, d: Any) -> Any:
    """The part of each row, (…, n_q, 1)."""
    return -(1 - p.__array_namespace__().sum(p, axis=-1, keepdims=True)) * d


def sum_per_sink(g: Any, sink: Any) -> Any:
    """The sum over the rows that read a sink: those of its head, or all of them."""
    xp = g.__array_namespace__()
    total = xp.sum(g, axis=(-2, -1))
    while total.ndim > (sink.ndim if sink.shape != (1,) else 0):
        total = xp.sum(total, axis=0)
    return xp.reshape(total, sink.shape)
