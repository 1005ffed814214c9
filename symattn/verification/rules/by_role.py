"""Mistakes by the role of a step, for every definition that states its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from symattn.attention.flow import Step
from symattn.attention.stated_flow import FORWARD, StatedFlow
from symattn.bounds.mistake import Mistake, MistakeFamily
from symattn.verification.rules import (
    activations,
    backward_passes,
    caching,
    layer_outputs,
    log_sums,
    merges,
    norms,
    residuals,
    rotating,
    subtractions,
    sums,
)

#: From a definition and one of its steps to the mistakes in it.
Rule = Callable[[Any, Step], Iterator[Mistake]]
FamilyRule = Callable[[Any, Step], Iterator[MistakeFamily]]

#: The role of a step of an attention in a definition, which has all mistakes of ``yield_known_mistakes``.
OF_ATTENTION = FORWARD
#: Roles of steps whose entries have no mistakes by themselves: lengths are no arrays, what is read was written, entries
#: in other places are those of the array before, and the output of sums is wrong where these are.
WITHOUT_ENTRIES = frozenset(
    {OF_ATTENTION, "length", "read", "arranged", "layers", "factor", "mixed"}
)
#: The rule of each role; a step of another role has the mistakes that every array has.
RULES: Mapping[str, Rule] = {
    "sum": sums.mistakes_of_sum,
    "returned": sums.mistakes_of_returned,
    "offset": norms.mistakes_of_offset,
    "layer norm": partial(norms.mistakes_of_step, kind="layer"),
    "rms norm": partial(norms.mistakes_of_step, kind="rms"),
    "lse": log_sums.mistakes_of_step,
    "merge": merges.mistakes_of_step,
    "positions": partial(rotating.mistakes_of_table_step, of=rotating.of_positions),
    "frequencies": partial(rotating.mistakes_of_table_step, of=rotating.of_frequencies),
    "angles": partial(rotating.mistakes_of_table_step, of=rotating.of_angles_and_sections),
    "cosines": partial(rotating.mistakes_of_table_step, of=rotating.of_magnitudes),
    "rotation": rotating.mistakes_of_rotation,
    "length": caching.mistakes_of_length,
    "read": caching.mistakes_of_read,
    "returned cache": caching.mistakes_of_returned,
    "layers": layer_outputs.mistakes_of_layers,
    "difference": subtractions.mistakes_of_difference,
    "difference of attentions": subtractions.mistakes_of_attentions,
    "half": subtractions.mistakes_of_half,
    "factor": subtractions.mistakes_of_factor,
    "norm factor": subtractions.mistakes_of_norm_factor,
    "residual": residuals.mistakes_of_residual,
    "activation": activations.mistakes_of_activation,
    **backward_passes.RULES,
}
#: The rule of each role that has less likely mistakes, too.
FURTHER: Mapping[str, Rule] = {
    "rotation": rotating.further_mistakes_of_rotation,
    "stored weights": backward_passes.further_mistakes_of_weights,
}
#: The rule of each role that has mistakes with a number.
NUMBERED: Mapping[str, FamilyRule] = {
    "merge": merges.families_of_step,
    "angles": rotating.families_of_angles,
    "residual": residuals.families_of_residual,
    "activation": activations.families_of_activation,
}


def mistakes(spec: StatedFlow, own: Mapping[str, Rule] = MappingProxyType({})) -> Iterator[Mistake]:
    """Yield the mistakes in the steps of a definition, in their order; ``own`` are rules of further roles."""
    rules = {**RULES, **own}
    for step in spec.pipeline_of_all:
        if step.role in rules:
            yield from rules[step.role](spec, step)


def further_mistakes(spec: StatedFlow) -> Iterator[Mistake]:
    """Yield less likely mistakes in the steps of a definition, in their order."""
    for step in spec.pipeline_of_all:
        if step.role in FURTHER:
            yield from FURTHER[step.role](spec, step)


def families(
    spec: StatedFlow, own: Mapping[str, FamilyRule] = MappingProxyType({})
) -> Iterator[MistakeFamily]:
    """Yield the mistakes with a number in the steps of a definition, in their order; ``own`` as above."""
    rules = {**NUMBERED, **own}
    for step in spec.pipeline_of_all:
        if step.role in rules:
            yield from rules[step.role](spec, step)
