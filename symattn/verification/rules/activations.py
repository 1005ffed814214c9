"""Mistakes of an activation between two projections: another function, or one of other numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from symattn.attention.constants import number
from symattn.attention.flow import Step
from symattn.attention.layers.steps import ACTIVATIONS, relu, sigmoid
from symattn.bounds.changed_steps import ChangedSteps, in_stated_steps
from symattn.bounds.mistake import At, Mistake, MistakeFamily, change

_LIKELY = ("relu", "gelu", "gelu_tanh", "silu")
_SLOPES = tuple(map(float, np.geomspace(1e-3, 1, 25)))
_THETAS = tuple(map(float, np.geomspace(0.25, 8, 25)))

#: Wrong steps between the projections of the feed-forward layer, with the activation f, by whether it is gated.
HIDDEN: dict[bool, dict[str, Callable[..., Any]]] = {
    False: {"the activation is left out": lambda f, up: up * 1},
    True: {
        "the activation is left out": lambda f, gate, up: gate * up,
        "the activation is that of the other projection: of up, not of the gate": lambda f, gate, up: (
            gate * f(up)
        ),
        "the activation is that of both projections, up and gate": lambda f, gate, up: (
            f(gate) * f(up)
        ),
        "the activation is that of the product of gate and up": lambda f, gate, up: f(gate * up),
        "the gate is added, not multiplied": lambda f, gate, up: f(gate) + up,
        "the gate is left out": lambda f, gate, up: f(up),
    },
}


def mistakes_of_activation(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield mistakes of f(up), or f(gate) ⊙ up, for the ``activation`` f of the definition."""
    for other in _LIKELY:
        if other != spec.activation:
            words = f"the activation is {other}, not {spec.activation}"
            wrong = partial(_activate_by, ACTIVATIONS[other].run)
            yield in_stated_steps(spec, step.blames, words, {step.name: wrong})
    f = ACTIVATIONS[spec.activation].run
    for words, hidden in HIDDEN[spec.gated].items():
        wrong = partial(_combine_projections, partial(hidden, f))
        yield in_stated_steps(spec, step.blames, words, {step.name: wrong})


def families_of_activation(spec: Any, step: Step) -> Iterator[MistakeFamily]:
    """Yield x σ(θ x) as activation, such as the quick GELU with θ = 1.702, and a leaky one in place of ReLU."""

    def family(words: str, activate: Callable[[float, Any], Any], grid: tuple[float, ...]) -> Any:
        def way(x: float) -> ChangedSteps:
            wrong = partial(_activate_by, partial(activate, x))
            return ChangedSteps(spec, {step.name: change(step.name, wrong)})

        return MistakeFamily(step.blames, words, way, grid)

    words = "the activation is x σ({} x), as the quick GELU with 1.702"
    yield family(words, _activate_quickly, _THETAS)
    if spec.activation == "relu":
        words = "the activation is leaky: numbers below 0 are multiplied by {}, not by 0"
        yield family(words, _leak, _SLOPES)


def _activate_by(f: Callable[[Any], Any], at: At) -> Any:
    first, *others = at.taken
    return f(first) * others[0] if others else f(first)


def _combine_projections(hidden: Callable[..., Any], at: At) -> Any:
    return hidden(*at.taken)


def _activate_quickly(theta: float, z: Any) -> Any:
    return z * sigmoid(z * number(theta, z))


def _leak(slope: float, z: Any) -> Any:
    # max(−z, 0) is −z where z is below 0, and 0 elsewhere.
    return relu(z) - number(slope, z) * relu(-z)
