"""Known mistakes of ``LinearAttention`` in how raw gates become decays, raw steps become steps, and raw β become β."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.arrays.array import Array
from symattn.attention.flow import Step
from symattn.attention.layers.steps import sigmoid, softplus
from symattn.attention.softmax import powers
from symattn.bounds.changed_steps import in_stated_steps
from symattn.bounds.mistake import Compute, Mistake, MistakeFamily, Wrong
from symattn.verification.definitions.raw_gates import (
    ReadGates,
    limit_steps,
    read_gates,
    read_steps,
    take_lower_bound,
)
from symattn.verification.rules.other_heads import list_numbers_of_other_heads

if TYPE_CHECKING:
    from symattn.verification.definitions.linear import LinearAttention


def yield_raw_gate_mistakes(spec: LinearAttention, step: Step) -> Iterator[Mistake]:
    """Yield raw gates that become other logarithms of decays."""
    if spec.gate_form is None:
        return

    def by(words: str, read: ReadGates, other: LinearAttention | None = None) -> Mistake:
        return replace(_read_otherwise(spec, step, words, read), spec=other)

    for words, read in {**_WRONG_GATES[spec.gate_form], **_WRONG_PARTS}.items():
        yield by(words, read)
    if spec.gate_form == "sigmoid":
        other = replace(spec, gate_form="softplus", lower_bound=None)
        words = "gates are those without a lower bound, −e^A times a softplus"
        yield by(words, lambda _, *arrays: read_gates(other, *arrays), other)
    for words, change in _RATES_OF_HEADS.items():
        yield by(words, partial(_read_with_other_rates, change))
    for words, change in _BIASES_OF_HEADS.items():
        yield by(words, partial(_read_with_other_biases, change))


def _read_otherwise(spec: LinearAttention, step: Step, words: str, read: ReadGates) -> Mistake:
    """Return the mistake of reading what a step takes in another way."""
    wrong: Wrong = lambda at: read(at.spec, *at.taken)  # noqa: E731
    return in_stated_steps(spec, step.blames, words, {step.name: wrong})


def _read_with_other_rates(
    change: Callable[[Array], Any], spec: LinearAttention, g: Array, A_log: Array, dt_bias: Array
) -> Any:
    return read_gates(spec, g, change(A_log), dt_bias)


def _read_with_other_biases(
    change: Callable[[Array], Any], spec: LinearAttention, g: Array, A_log: Array, dt_bias: Array
) -> Any:
    return read_gates(spec, g, A_log, change(dt_bias))


#: Wrong gates by the form that is right.
_WRONG_GATES: dict[str, dict[str, ReadGates]] = {
    "softplus": {
        "the softplus of raw gates is left out": lambda spec, g, a, b: -powers(a) * (g + b),
        "the rate of the gates is A, not e^A": lambda spec, g, a, b: -a * softplus(g + b),
        "the rate e^A of the gates is left out": lambda spec, g, a, b: -softplus(g + b),
        "the bias is added after the softplus of raw gates, not before": lambda spec, g, a, b: (
            -powers(a) * (softplus(g) + b)
        ),
        "raw gates have a sigmoid in place of the softplus": lambda spec, g, a, b: (
            -powers(a) * sigmoid(g + b)
        ),
    },
    "sigmoid": {
        "the lower bound of the gates is left out: they are −σ": lambda spec, g, a, b: (
            -sigmoid(powers(a) * (g + b))
        ),
        "the rate of the gates is A, not e^A": lambda spec, g, a, b: (
            take_lower_bound(spec, g) * sigmoid(a * (g + b))
        ),
        "the rate e^A of the gates is left out": lambda spec, g, a, b: (
            take_lower_bound(spec, g) * sigmoid(g + b)
        ),
        "the rate e^A multiplies the sigmoid of raw gates, not what it is taken of": lambda spec, g, a, b: (
            take_lower_bound(spec, g) * powers(a) * sigmoid(g + b)
        ),
        "the bias is added after the rate e^A multiplies raw gates, not before": lambda spec, g, a, b: (
            take_lower_bound(spec, g) * sigmoid(powers(a) * g + b)
        ),
    },
}  # fmt: skip
#: Wrong rates and biases of both forms.
_WRONG_PARTS: dict[str, ReadGates] = {
    "the bias of raw gates is left out": lambda spec, g, a, b: read_gates(spec, g, a, 0 * b),
    "the bias of raw gates is subtracted": lambda spec, g, a, b: read_gates(spec, g, a, -b),
    "the rate of the gates is e^(−A), not e^A": lambda spec, g, a, b: read_gates(spec, g, -a, b),
}
_RATES_OF_HEADS = list_numbers_of_other_heads("the rate A", "the rates A of gates")
_BIASES_OF_HEADS = list_numbers_of_other_heads("the gates' bias", "the biases of gates")


# -- raw steps ---------------------------------------------------------------------------------------------------------
def mistakes_of_raw_steps(spec: LinearAttention, step: Step) -> Iterator[Mistake]:
    """Yield raw steps that become other steps."""
    if spec.step_form is None:
        return

    def by(words: str, read: ReadGates) -> Mistake:
        return _read_otherwise(spec, step, words, read)

    for words, read in _WRONG_STEPS.items():
        yield by(words, read)
    if spec.step_least is not None or spec.step_most is not None:
        yield by("the limits of steps are left out", lambda spec, dt, b: softplus(dt + b))
        yield by(
            "raw steps are limited before their softplus, not after it",
            lambda spec, dt, b: softplus(limit_steps(dt + b, spec.step_least, spec.step_most)),
        )
    if spec.step_least is not None and spec.step_most is not None:
        words = "the lower limit of steps is left out"
        yield by(words, lambda spec, dt, b: limit_steps(softplus(dt + b), None, spec.step_most))
        words = "the upper limit of steps is left out"
        yield by(words, lambda spec, dt, b: limit_steps(softplus(dt + b), spec.step_least, None))
    for words, change in _BIASES_OF_STEPS.items():
        yield by(words, partial(_read_steps_with_other_biases, change))


def families_of_raw_steps(spec: LinearAttention, step: Step) -> Iterator[MistakeFamily]:
    """Yield steps that are cut off at a number, as by another ``dt_limit``, or by the range of their initial values."""
    if spec.step_form is None:
        return
    grid = [float(limit) for limit in np.geomspace(1e-4, 20.0, 50)]

    def cut(below: bool, limit: float) -> Compute:
        def read(spec: LinearAttention, dt: Array, b: Array) -> Any:
            steps = softplus(dt + b)
            if below:
                return limit_steps(steps, limit, spec.step_most)
            return limit_steps(steps, spec.step_least, limit)

        return _read_otherwise(spec, step, "", read).run

    yield MistakeFamily(step.blames, "steps are cut off below {}", partial(cut, True), grid)
    yield MistakeFamily(step.blames, "steps are cut off above {}", partial(cut, False), grid)


def _read_steps_with_other_biases(
    change: Callable[[Array], Any], spec: LinearAttention, dt: Array, dt_bias: Array
) -> Any:
    return read_steps(spec, dt, change(dt_bias))


#: Wrong steps, which have the limits of the right ones.
_WRONG_STEPS: dict[str, ReadGates] = {
    "the softplus of raw steps is left out": lambda spec, dt, b: limit_steps(
        dt + b, spec.step_least, spec.step_most
    ),
    "the softplus of raw steps is taken twice": lambda spec, dt, b: limit_steps(
        softplus(softplus(dt + b)), spec.step_least, spec.step_most
    ),
    "raw steps have a sigmoid in place of the softplus": lambda spec, dt, b: limit_steps(
        sigmoid(dt + b), spec.step_least, spec.step_most
    ),
    "raw steps have an exponential in place of the softplus": lambda spec, dt, b: limit_steps(
        powers(dt + b), spec.step_least, spec.step_most
    ),
    "the bias is added after the softplus of raw steps, not before": lambda spec, dt, b: (
        limit_steps(softplus(dt) + b, spec.step_least, spec.step_most)
    ),
    "the bias of raw steps is left out": lambda spec, dt, b: read_steps(spec, dt, 0 * b),
    "the bias of raw steps is subtracted": lambda spec, dt, b: read_steps(spec, dt, -b),
}
_BIASES_OF_STEPS = list_numbers_of_other_heads("the steps' bias", "the biases of steps")


# -- raw β -------------------------------------------------------------------------------------------------------------
def mistakes_of_raw_betas(spec: LinearAttention, step: Step) -> Iterator[Mistake]:
    """Yield raw β that become other ones."""
    for words, read in _WRONG_BETAS.items() if spec.beta_form else ():
        yield _read_otherwise(spec, step, words, read)


_WRONG_BETAS: dict[str, ReadGates] = {
    "the sigmoid of raw β is left out": lambda spec, b: b,
    "the sigmoid of raw β is taken twice": lambda spec, b: sigmoid(sigmoid(b)),
    "β is twice the sigmoid of raw ones": lambda spec, b: 2 * sigmoid(b),
    "β is the sigmoid of −b, 1 − β": lambda spec, b: sigmoid(-b),
    "raw β have a softplus in place of the sigmoid": lambda spec, b: softplus(b),
    "raw β have an exponential in place of the sigmoid": lambda spec, b: powers(b),
}
