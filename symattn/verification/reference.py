"""The one definition, run in balls on given inputs: what the output is, and what the bound needs to know.

Wrong variants run the same way: a ``Variant`` changes some steps of the definition and leaves the others as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from symattn.arrays.ball import Ball
from symattn.attention.flow import Step
from symattn.attention.spec import Attention
from symattn.verification.target import Inputs

Values = dict[str, Any]
Change = Callable[[Attention, Values], Any]


@dataclass(frozen=True)
class Variant:
    """A change of the definition: for some steps, another function of all that was computed before.

    ``rows`` says that every row of weights still sums to 1, ``values`` which array the weights meet.
    """

    steps: Mapping[str, Change] = field(default_factory=dict)
    rows: bool = True
    values: str = "v"


RIGHT = Variant()


@dataclass(frozen=True)
class Run:
    """One run: all arrays in balls (``values``), the same from absolute values, and lengths of paths.

    ``absolute`` holds q, k, v, scores and scaled as sums of the absolute values of their monomials in the inputs.
    ``terms`` counts the roundings that a monomial of a score can meet in products and sums, ``value_terms`` those of a
    value.
    """

    spec: Attention
    values: Values
    absolute: Values
    terms: np.ndarray
    value_terms: int
    variant: Variant = RIGHT

    @property
    def output(self) -> Ball:
        """The exact output, in balls."""
        out: Ball = self.values["output"]
        return out

    @property
    def final_scores(self) -> Ball:
        """The scores as the softmax receives them."""
        s: Ball = self.values["masked" if "masked" in self.values else "scaled"]
        return s

    @property
    def allowed(self) -> np.ndarray:
        """Booleans (…, n_q, n_k): which scores are no −∞."""
        found: np.ndarray = np.asarray(Ball.xp.isfinite(self.final_scores))
        return found

    @property
    def output_step(self) -> Step | None:
        """The step from the heads' outputs to the output, where there is one."""
        return self.steps[-1] if "attended" in self.values else None

    @property
    def steps(self) -> tuple[Step, ...]:
        """The definition's own steps."""
        return self.spec.pipeline(frozenset(self.values))


def run(spec: Attention, inputs: Inputs, variant: Variant = RIGHT) -> Run:
    """Run the definition, or a variant of it, at the present precision of balls."""
    given = {name: _lifted(name, array) for name, array in inputs.items()}
    values = _trace(spec, given, variant)
    absolute = _trace(spec, {n: _absolute(n, a) for n, a in inputs.items()}, variant, until="scaled")
    return Run(spec, values, absolute, _terms(spec, inputs, values, variant), _value_terms(inputs), variant)


def _trace(spec: Attention, given: Values, variant: Variant, until: str = "output") -> Values:
    values = dict(given)
    for step in spec.pipeline(frozenset(given)):
        change = variant.steps.get(step.name)
        of = ("weights", variant.values) if step.of == ("weights", "v") else step.of
        values[step.name] = change(spec, values) if change else step.run(*[values[n] for n in of])
        if step.name == until:
            break
    return values


def _lifted(name: str, array: Any) -> Any:
    if array.dtype == bool:
        return array
    return Ball.literal(array) if name == "mask" else Ball.lift(array)


def _absolute(name: str, array: Any) -> Any:
    return array if name in ("mask", "keep") else Ball.lift(np.abs(array))


def _terms(spec: Attention, inputs: Inputs, values: Values, variant: Variant) -> np.ndarray:
    """How many products and sums a monomial of each score passes; a product with zero is exact and counts nothing.

    From q and k: one product and at most N − 1 sums, N the number of products that are not zero. Through projections
    a monomial x_ia w_al w'_bl y_jb meets at most d_model and one for the bias on either side, and d_k, in any order in
    which the sums over a, b, l are taken (so also for x (W_Q W_Kᵀ) yᵀ).
    """
    shape = values["scores"].plain_shape
    if "w_q" in inputs:
        d_model, d_k = inputs["w_q"].shape[-2], values["q"].plain_shape[-1]
        return np.full(shape, 2 * (d_model + 1) + d_k)
    marks = {n: (np.asarray(inputs[n]) != 0).astype(float) for n in ("q", "k", "v", "x", "y") if n in inputs}
    marks |= {n: inputs[n] for n in ("mask", "keep") if n in inputs}
    return np.asarray(_trace(spec, marks, variant, until="scores")["scores"]).astype(int)


def _value_terms(inputs: Inputs) -> int:
    return int(inputs["w_v"].shape[-2]) + 1 if "w_v" in inputs else 0
