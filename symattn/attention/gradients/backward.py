"""The backward pass as it is implemented: step by step from the output back, by formulas made by hand.

Each step of the pipeline has a rule, which takes the gradient by what the step computed and gives those by what it was
computed of; the formulas are in the ``gradients_`` files. ``derivative.vjp`` gives the same from the definition alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from symattn.attention.derivative import cotangents, differentiable
from symattn.attention.gradients.backward_layers import attentions, rule
from symattn.attention.gradients.backward_rules import RULES
from symattn.attention.gradients.backward_steps import At, Gradients
from symattn.attention.layers.block import Block
from symattn.attention.layers.transformer import Transformer
from symattn.attention.spec import Attention


class Way(NamedTuple):
    """What a step is called, of which arrays it was computed, and how a gradient goes back through it."""

    name: str
    of: tuple[str, ...]
    back: Callable[[Any], Gradients]


def backward(
    model: Attention | Block | Transformer,
    cotangent: Any,
    inputs: Mapping[str, Any],
    wrt: Iterable[str] | None = None,
) -> dict[str, Any]:
    """The gradients of ⟨G, f(…)⟩ by every input named in ``wrt``, or by all that hold numbers, by their names.

    ``cotangent`` G has the shape of the output; with ``lse`` it is a pair, of which one may be None. The forward pass
    keeps every array between, as frameworks do. Raises InputError for names and shapes that do not fit.

    >>> import numpy as np
    >>> q, k, v = np.zeros((1, 2)), np.eye(2), np.array([[1.0], [3.0]])
    >>> backward(Attention(scale=1), np.ones((1, 1)), {"q": q, "k": k, "v": v}, wrt=["q"])
    {'q': array([[-0.5,  0.5]])}
    """
    under, names = differentiable(inputs, wrt)
    values = model.trace(**inputs)
    ends = _ends(model, under, values, cotangent)
    return pulled(_ways(model, [n for n, x in inputs.items() if x is not None], values), ends, values, names)


def pulled(
    ways: Iterable[Way], ends: Mapping[str, Any], values: Mapping[str, Any], names: Iterable[str]
) -> dict[str, Any]:
    """The gradients by the arrays called ``names``, from those by the arrays in ``ends``, through steps in order."""
    found = dict(ends)
    for way in reversed(list(ways)):
        if way.name not in found:
            continue
        for name, part in zip(way.of, way.back(found[way.name]), strict=True):
            if part is not None:
                found[name] = found[name] + part if name in found else part
    return {n: found[n] if n in found else 0 * values[n] for n in names}


def _ends(model: Any, under: Any, values: Mapping[str, Any], cotangent: Any) -> dict[str, Any]:
    """The cotangents by the names of the outputs."""
    if not (isinstance(model, Attention) and model.lse):
        output = "logits" if isinstance(model, Transformer) else "output"
        return {output: cotangents(under, values[output], cotangent)[0][1]}
    pairs = cotangents(under, (values["output"], values["lse"]), cotangent)
    names = [n for n, g in zip(("output", "lse"), cotangent, strict=True) if g is not None]
    return {n: g for n, (_, g) in zip(names, pairs, strict=True)}


def _ways(model: Any, given: list[str], values: Mapping[str, Any]) -> list[Way]:
    specs = {} if isinstance(model, Attention) else attentions(model, given)

    def back(step: Any) -> Callable[[Any], Gradients]:
        x, y = tuple(values[n] for n in step.of), values[step.name]
        if isinstance(model, Attention):
            return partial(RULES[step.name], At(model, step.of, x, y))
        return rule(step, specs, x, y)

    return [Way(step.name, step.of, back(step)) for step in model.pipeline(given)]
