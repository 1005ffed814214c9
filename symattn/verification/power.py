"""Decide whether enough was tried for “no fault”: cases of every group, and some that expose each step.

A step is exposed if the definition with a mistake in that step, run on a case that was tried, returns what no legal
implementation of the correct one can return. The mistakes are made by rule. A change without effect on any input that
the domain promises, such as one of the bias of the keys under a softmax, is no mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from symattn.attention.flow import Step
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Inputs
from symattn.bounds.case_result import UNFIT, Expected
from symattn.bounds.reference import (
    RIGHT,
    Values,
    Variant,
    canonical,
    float64_outputs,
    variant_values,
)
from symattn.document.evidence import Verdict
from symattn.verification.report import SmallestSeen, StepPower

if TYPE_CHECKING:
    from symattn.bounds.judgement import Measured

LEAST = 3  # cases of each group that has so many
_CASES = 12  # cases in which the smallest share of a mistake is sought
_SMALL_CASE = 2048  # entries of the inputs of a case that is always searched
# the largest change of the output that counts as none, relative to its largest entry
_NOTHING = 2.0**-40
#: The outputs of a definition, with or without a mistake, as a function of its inputs in float64.
Outputs: TypeAlias = "Callable[[Inputs], Sequence[np.ndarray]]"


@dataclass(frozen=True)
class Mutation:
    """A mistake in a step, in words, and the outputs with it."""

    step: str
    words: str
    outputs: Outputs
    variant: Variant = RIGHT  # of attention


Alike: TypeAlias = Sequence[Mutation]
#: The inputs of a case that was tried, and its expected outputs.
Tried: TypeAlias = "tuple[Inputs, Sequence[Expected | Measured]]"


def powers(
    right: Outputs,
    mutations: Mapping[str, Sequence[Alike]],
    drawn: Sequence[Inputs],
    tried: Sequence[Tried],
    otherwise: Callable[[Mutation], float] = lambda mutation: np.inf,
) -> tuple[StepPower, ...]:
    """Return for each step a mistake that the cases ``tried`` show, or else its first mistake.

    Changes without effect on the outputs of the ``drawn`` inputs are no mistakes. The first kind of mistake that has an
    effect is chosen, and one of that kind is enough; a step without any is left out. ``otherwise`` returns the smallest
    share of a mistake that shows by other means than the bound.
    """

    @cache
    def expected(case: int) -> list[np.ndarray] | None:
        return _compute_float64_outputs(right, drawn[case])

    result = []
    for step, kinds in mutations.items():
        # Lazily: later kinds are tried only if the earlier ones have no effect, and later mistakes
        # of a kind, of which a definition has hundreds, only if the cases show no earlier one.
        for alike in kinds:
            changing = (
                mutation
                for mutation in alike
                if any(
                    _is_mutation_effective(mutation, inputs, expected(case))
                    for case, inputs in enumerate(drawn)
                )
            )
            first = next(changing, None)
            if first is not None:
                result.append(_measure_step_power(step, chain([first], changing), tried, otherwise))
                break
    return tuple(result)


def _measure_step_power(
    step: str,
    alike: Iterable[Mutation],
    tried: Sequence[Tried],
    otherwise: Callable[[Mutation], float],
) -> StepPower:
    """Search evenly spread cases for one that shows a mistake, then all cases; without any, name the first mistake."""
    unseen = []
    for mutation in alike:
        # Spread evenly over all cases, since neighbours in a group are alike.
        share = min(
            (
                _smallest_visible_share(mutation, case)
                for case in tried[:: max(1, -(-len(tried) // _CASES))]
            ),
            default=np.inf,
        )
        share = min(share, otherwise(mutation))
        if share < 1:
            return StepPower(step, mutation.words, share)
        unseen.append(mutation)
    # Only then all cases, since each costs a run of the definition.
    for mutation in unseen:
        share = next(
            (x for x in (_smallest_visible_share(mutation, case) for case in tried) if x < 1),
            np.inf,
        )
        if share < 1:
            return StepPower(step, mutation.words, share)
    # The first mistake of the kind stands for the step in words.
    return StepPower(step, unseen[0].words, np.inf)


def least_shown(mutation: Mutation, tried: Sequence[Tried]) -> float:
    """Return the smallest share of a mistake that any of the cases shows; +∞ if none shows all of it."""
    return min((_smallest_visible_share(mutation, case) for case in tried), default=np.inf)


def _is_mutation_effective(
    mutation: Mutation, inputs: Inputs, expected: Sequence[np.ndarray] | None
) -> bool:
    """Return whether the outputs differ from those that are expected, by more than float64 loses."""
    # Where the definition itself does not fit the inputs, nothing is compared.
    if expected is None:
        return False
    outputs = _compute_float64_outputs(mutation.outputs, inputs) or ()
    for a, b in zip(expected, outputs, strict=False):
        # Another shape, NaN or infinity is an effect of any size.
        if a.shape != b.shape:
            return True
        finite = np.isfinite(a)
        if (finite != np.isfinite(b)).any():
            return True
        # Entries that are no numbers stand apart only where there are any.
        a, b = (a, b) if finite.all() else (a[finite], b[finite])
        size = float(np.abs(a).max(initial=0.0))
        # The floor serves outputs that are all 0.
        if (np.abs(a - b) > _NOTHING * max(size, 2.0**-200)).any():
            return True
    return False


def _smallest_visible_share(mutation: Mutation, case: Tried) -> float:
    """Return allowed / |change|: an exact computation with a larger share of the mistake exceeds what is allowed."""
    inputs, expected = case
    shares = [np.inf]
    for y, e in zip(
        _compute_float64_outputs(mutation.outputs, inputs) or (), expected, strict=False
    ):
        near = e.near
        allowed = e.allowed
        # Another shape shows, however small the mistake is.
        if y.shape != near.shape:
            return 0.0
        with np.errstate(all="ignore"):
            # NaN or infinity where the definition is finite shows whatever is allowed.
            share = np.where(np.isfinite(y), allowed / np.abs(y - near), 0.0)
        # Entries without a bound, or without a change, show nothing.
        result = np.isfinite(near) & np.isfinite(allowed) & (y != near)
        shares.append(float(share[result].min(initial=np.inf)))
    return min(shares)


def _compute_float64_outputs(outputs: Outputs, inputs: Inputs) -> list[np.ndarray] | None:
    """Return the outputs in float64, or None if the shapes do not fit."""
    try:
        return float64_outputs(outputs, inputs)
    except UNFIT:
        return None


# -- the mistakes of attention -----------------------------------------------------------------------------------------
def of_attention(spec: Attention, names: Iterable[str]) -> tuple[Outputs, dict[str, list[Alike]]]:
    """Return the definition, and the mistakes of each step by rule: left out, heads in another order, too large."""
    spec = canonical(spec)
    result: dict[str, list[Alike]] = {}
    for step in spec.pipeline(frozenset(names)):
        for rules in _RULES:
            alike = [_make_step_mutation(spec, step, words, rule) for words, rule in rules.items()]
            result.setdefault(alike[0].step, []).append(alike)
    return _make_variant_outputs(spec, Variant()), result


def _make_step_mutation(
    spec: Attention, step: Step, words: str, rule: Callable[[Step, Values], object]
) -> Mutation:
    variant = Variant({step.name: lambda spec, values: rule(step, values)})
    return of_variant(spec, ARRAYS[step.name].title.lower(), words, variant)


def of_variant(spec: Attention, step: str, words: str, variant: Variant) -> Mutation:
    """Return a variant of the definition as a mistake."""
    return Mutation(step, words, _make_variant_outputs(spec, variant), variant)


def _make_variant_outputs(spec: Attention, variant: Variant) -> Outputs:
    return lambda inputs: [variant_values(spec, dict(inputs), variant)["output"]]


def _rerun_step(step: Step, values: Values) -> Any:
    return step.run(*[values[name] for name in step.of])


def _left_out(step: Step, values: Values) -> Any:
    before = values[step.of[0]]
    after = _rerun_step(step, values)
    if np.shape(before) != np.shape(after):
        # Caught as ``UNFIT``: such a mistake then counts as one without effect.
        raise ValueError("no such step can be left out")
    return before


def _roll_heads_of_step(step: Step, values: Values) -> Any:
    result = np.asarray(_rerun_step(step, values))
    if result.ndim < 3:
        raise ValueError("there are no heads")
    return np.roll(result, 1, axis=-3)


def _make_step_multiplier(factor: float) -> Callable[[Step, Values], Any]:
    return lambda step, values: np.asarray(_rerun_step(step, values)) * factor


# Kinds of mistakes; the first kind that has an effect on a step stands for the step.
_RULES: tuple[Mapping[str, Callable[[Step, Values], Any]], ...] = (
    {"left out": _left_out},
    {"heads in another order": _roll_heads_of_step},
    {
        StepPower.ONE_PERCENT: _make_step_multiplier(1.01),
        StepPower.TWICE: _make_step_multiplier(2),
        "all 0": _make_step_multiplier(0),
    },
)


#: Relative errors of a step's numbers that are tried, from the smallest.
SIZES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


def smallest_seen(
    spec: Attention,
    names: Iterable[str],
    drawn: Sequence[Inputs],
    tried: Sequence[Tried],
    otherwise: Callable[[Mutation], float] = lambda mutation: np.inf,
) -> tuple[SmallestSeen, ...]:
    """Return for each step of an attention the smallest of the ``SIZES`` that the cases ``tried`` would have shown.

    Steps whose numbers may be too large without any effect, such as exponentials before they are normalised, are left
    out. An error counts as seen if it exceeds what is allowed twice: rounding may hide one half (``StepPower``).
    """
    spec = canonical(spec)
    some = [
        *tried[:: max(1, -(-len(tried) // _CASES))],
        *(case for case in tried if _count_case_entries(case) <= _SMALL_CASE),
    ]
    right = _make_variant_outputs(spec, Variant())
    # Computed once: every step is compared with the same outputs.
    known = [(inputs, _compute_float64_outputs(right, inputs)) for inputs in drawn]
    result = []
    for step in spec.pipeline(frozenset(names)):
        sizes = [
            _make_step_mutation(spec, step, f"{size:g}", _make_step_multiplier(1 + size))
            for size in SIZES
        ]
        # A step whose smallest error has no effect, such as a factor that cancels, is left out.
        if any(_is_mutation_effective(sizes[0], inputs, expected) for inputs, expected in known):
            shares = (min(least_shown(one, some), otherwise(one)) for one in sizes)
            smallest = next(
                (size for size, share in zip(SIZES, shares, strict=True) if 2 * share < 1), None
            )
            result.append(SmallestSeen(sizes[0].step, smallest))
    return tuple(result)


def _count_case_entries(case: Tried) -> int:
    return sum(int(np.size(a)) for a in case[0].values())


# -- whether it is enough ----------------------------------------------------------------------------------------------
def lacking(
    counts: Mapping[str, tuple[int, int]], found: Sequence[StepPower], option: str
) -> tuple[str, ...]:
    """Return what a verdict lacks: groups, with the numbers of cases tried and required, and steps.

    ``option`` names the option that would let the work go on; it is empty if the number of calls ended it.
    """
    more = option or "a Domain of fewer tokens, of which more cases are tried"
    # Each group needs a few cases, whatever the other groups show.
    few = [
        f"{name} ({tried} of at least {least})"
        for name, (tried, least) in counts.items()
        if tried < least
    ]
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
    """Return the verdict: a fault, else undecided if something is missing."""
    return Verdict.FAULT if faults else Verdict.UNDECIDED if missing else Verdict.NO_FAULT
