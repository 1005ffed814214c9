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
    backward_passes,
    caching,
    log_sums,
    merges,
    norms,
    rotating,
    sums,
)

#: From a definition and one of its steps to the mistakes in it.
Rule = Callable[[Any, Step], Iterator[Mistake]]
FamilyRule = Callable[[Any, Step], Iterator[MistakeFamily]]

#: The role of a step of an attention in a definition, which has all mistakes of ``yield_known_mistakes``.
OF_ATTENTION = FORWARD
#: Roles of steps whose entries have no mistakes by themselves: lengths are no arrays, and what is read was written.
WITHOUT_ENTRIES = frozenset({OF_ATTENTION, "length", "read"})
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
