"""Decide whether enough was tried for “no fault”: cases of every group, and some that show each step wrong.

A step has power where the definition with a mistake in that step, run on a case that was tried, gives what no legal
implementation of the right one can give. The mistakes are made by rule. One that changes nothing on any input that the
domain promises, such as the bias of the keys under a softmax, is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from symattn.attention.flow import Step
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Inputs
from symattn.bounds.case_result import UNFIT, Expected
from symattn.bounds.reference import RIGHT, Values, Variant, canonical, float64_outputs, variant_values
from symattn.document.evidence import Verdict
from symattn.verification.report import StepPower

if TYPE_CHECKING:
    from symattn.bounds.judgement import Measured

LEAST = 3  # cases of each group, where it has so many
_CASES = 12  # in which the smallest share of a mistake is sought
_NOTHING = 2.0**-40  # a change of the output that is none, as a part of its largest entry
#: What a mistake leaves of a definition, as a function of its inputs in float64.
Outputs: TypeAlias = "Callable[[Inputs], Sequence[np.ndarray]]"


@dataclass(frozen=True)
class Mutation:
    """A mistake of a step, in words, and the outputs with it."""

    step: str
    words: str
    outputs: Outputs
    variant: Variant = RIGHT  # of attention


Alike: TypeAlias = Sequence[Mutation]
#: A case that was tried, and what is expected of its outputs.
Tried: TypeAlias = "tuple[Inputs, Sequence[Expected | Measured]]"


def powers(
    right: Outputs,
    mutations: Mapping[str, Sequence[Alike]],
    drawn: Sequence[Inputs],
    tried: Sequence[Tried],
    otherwise: Callable[[Mutation], float] = lambda mutation: np.inf,
) -> tuple[StepPower, ...]:
    """For each step one of its mistakes that the cases ``tried`` show, or else the first that they do not show.

    Mistakes that change no output of the ``drawn`` inputs are none. Of those that are alike one is enough, and the
    first that are mistakes at all are meant; a step without any is left out. ``otherwise`` gives the smallest share of
    a mistake that shows by other means than the bound.
    """
    result = []
    for step, kinds in mutations.items():
        changing = ([m for m in alike if any(_changes(right, m, inputs) for inputs in drawn)] for alike in kinds)
        alike = next(filter(None, changing), None)
        if alike is not None:
            result.append(_power(step, alike, tried, otherwise))
    return tuple(result)


def _power(step: str, alike: Alike, tried: Sequence[Tried], otherwise: Callable[[Mutation], float]) -> StepPower:
    """Looked for in cases that are evenly spread; of the first mistake in all of them, where these show none."""
    for mutation in alike:
        share = min((_shown(mutation, case) for case in tried[:: max(1, -(-len(tried) // _CASES))]), default=np.inf)
        share = min(share, otherwise(mutation))
        if share < 1:
            return StepPower(step, mutation.words, share)
    share = next((x for x in (_shown(alike[0], case) for case in tried) if x < 1), np.inf)
    return StepPower(step, alike[0].words, share)


def least_shown(mutation: Mutation, tried: Sequence[Tried]) -> float:
    """The smallest part of a mistake that any of the cases shows; +∞ where none shows the whole of it."""
    return min((_shown(mutation, case) for case in tried), default=np.inf)


def _changes(right: Outputs, mutation: Mutation, inputs: Inputs) -> bool:
    for a, b in zip(_computed(right, inputs) or (), _computed(mutation.outputs, inputs) or (), strict=False):
        if a.shape != b.shape or (np.isfinite(a) != np.isfinite(b)).any():
            return True
        size = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
        if (np.abs(a - b)[np.isfinite(a)] > _NOTHING * max(size, 2.0**-200)).any():
            return True
    return False


def _shown(mutation: Mutation, case: Tried) -> float:
    """allowed / |change|: an exact computation with more than that share of the mistake is beyond what is allowed."""
    inputs, expected = case
    shares = [np.inf]
    for y, e in zip(_computed(mutation.outputs, inputs) or (), expected, strict=False):
        near, allowed = e.near, e.allowed
        if y.shape != near.shape:
            return 0.0
        with np.errstate(all="ignore"):
            share = np.where(np.isfinite(y), allowed / np.abs(y - near), 0.0)
        result = np.isfinite(near) & np.isfinite(allowed) & (y != near)
        shares.append(float(share[result].min(initial=np.inf)))
    return min(shares)


def _computed(outputs: Outputs, inputs: Inputs) -> list[np.ndarray] | None:
    """The outputs in float64; None where there are none for such shapes."""
    try:
        return float64_outputs(outputs, inputs)
    except UNFIT:
        return None


# -- the mistakes of attention -----------------------------------------------------------------------------------------
def of_attention(spec: Attention, names: Iterable[str]) -> tuple[Outputs, dict[str, list[Alike]]]:
    """The definition, and for every step of it what mistakes there may be, by rule: it is left out; its heads stand in
    another order; its numbers are too large."""
    spec = canonical(spec)
    result: dict[str, list[Alike]] = {}
    for step in spec.pipeline(frozenset(names)):
        for rules in _RULES:
            alike = [_mutation(spec, step, words, rule) for words, rule in rules.items()]
            result.setdefault(alike[0].step, []).append(alike)
    return _run(spec, Variant()), result


def _mutation(spec: Attention, step: Step, words: str, rule: Callable[[Step, Values], object]) -> Mutation:
    def change(spec: Attention, values: Values) -> Any:
        return rule(step, values)

    variant = Variant({step.name: change})
    return Mutation(ARRAYS[step.name].title.lower(), words, _run(spec, variant), variant)


def of_variant(spec: Attention, step: str, words: str, variant: Variant) -> Mutation:
    """A variant of the definition as a mistake."""
    return Mutation(step, words, _run(spec, variant), variant)


def _run(spec: Attention, variant: Variant) -> Outputs:
    return lambda inputs: [variant_values(spec, dict(inputs), variant)["output"]]


def _own(step: Step, values: Values) -> Any:
    return step.run(*[values[name] for name in step.of])


def _left_out(step: Step, values: Values) -> Any:
    before, after = values[step.of[0]], _own(step, values)
    if np.shape(before) != np.shape(after):
        raise ValueError("no such step can be left out")
    return before


def _heads(step: Step, values: Values) -> Any:
    result = np.asarray(_own(step, values))
    if result.ndim < 3:
        raise ValueError("there are no heads")
    return np.roll(result, 1, axis=-3)


def _times(factor: float) -> Callable[[Step, Values], Any]:
    return lambda step, values: np.asarray(_own(step, values)) * factor


_RULES: tuple[Mapping[str, Callable[[Step, Values], Any]], ...] = (
    {"left out": _left_out},
    {"heads in another order": _heads},
    {"1 % too large": _times(1.01), "twice as large": _times(2), "all 0": _times(0)},
)


# -- whether it is enough ----------------------------------------------------------------------------------------------
def lacking(counts: Mapping[str, tuple[int, int]], found: Sequence[StepPower], option: str) -> tuple[str, ...]:
    """Name what a verdict lacks: groups, with how many cases were tried and how many it takes; steps.

    ``option`` says what ended the work, and would let it go on; it is empty where the number of calls did.
    """
    more = option or "a Domain of fewer tokens, of which more cases are tried"
    few = [f"{name} ({tried} of at least {least})" for name, (tried, least) in counts.items() if tried < least]
    blind = [f"{power.step} {power.mistake}" for power in found if not power.seen]
    result = []
    if few:
        result.append(f"Too few cases were tried of: {', '.join(few)}; hint: {more}")
    if blind:
        result.append(
            f"No case that was tried would have shown: {'; '.join(blind)}; hint: more --examples, fewer promises on "
            "sizes and scores, a finer --dtype, or --contract fused if scores are kept in a wider type"
        )
    return tuple(result)


def verdict(faults: Sequence[object], missing: Sequence[str]) -> Verdict:
    """A fault; else undecided where something is missing."""
    return Verdict.FAULT if faults else Verdict.UNDECIDED if missing else Verdict.NO_FAULT
