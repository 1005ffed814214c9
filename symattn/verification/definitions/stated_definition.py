"""A definition that states its steps, ready to be verified: its first way and its mistakes come from these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from symattn.attention.flow import check_blamed_step
from symattn.attention.stated_flow import StatedFlow
from symattn.bounds.changed_steps import ChangedSteps, Laid
from symattn.bounds.mistake import Compute, Mistake, MistakeFamily
from symattn.document.codec import called
from symattn.verification.definitions.definition_flow import FlowOfStatedSteps
from symattn.verification.definitions.definition_forms import DefinitionForm, Later
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.rules import by_role


def define_in_steps(
    spec: StatedFlow,
    step: str,
    inputs: tuple[Input, ...],
    shapes: Iterable[Mapping[str, int]],
    ways: Sequence[Compute] = (),
    laid: Laid = lambda run: run,
    rules: Mapping[str, by_role.Rule] = MappingProxyType({}),
    numbered_rules: Mapping[str, by_role.FamilyRule] = MappingProxyType({}),
    others: Sequence[Mistake] = (),
    **more: Any,
) -> Definition:
    """Return the definition of stated steps, with further fields of ``Definition`` as given.

    ``step`` is blamed if no more is known of a fault. ``ways``, by default the run of the steps alone, begin with it.
    If arrays are passed in other axes than the steps take, ``laid`` makes a function of these of one of the steps' own.
    ``rules`` are those of roles that this definition alone has, ``numbered_rules`` of mistakes with a number.
    ``others`` are tried beside the less likely mistakes of the steps.
    Raises ``InputError`` if the definition, a step or an input blames none of ``STEPS_TO_BLAME``.
    """
    kind = type(spec).__name__
    check_blamed_step(step, f"{kind}: the definition")
    for given in inputs:
        # Without a step of its own an input blames the definition's.
        check_blamed_step(given.step or step, f"{kind}: the input {given.name!r}")
    every = ways or (spec.return_run,)
    usual: dict[str, Any] = {
        "outputs": spec.returned,
        "others": Later(lambda: (*others, *_lay_mistakes(laid, by_role.further_mistakes(spec)))),
        "numbered": tuple(
            _lay_family(laid, family) for family in by_role.families(spec, numbered_rules)
        ),
    }
    # Steps alone, which no command can name, have no such title.
    if "title" not in more:
        usual["title"] = called(spec)
    return Definition(
        step=step,
        inputs=inputs,
        shapes=tuple(shapes),
        ways=tuple(lay_way(laid, way) for way in every),
        mistakes=Later(lambda: _lay_mistakes(laid, by_role.mistakes(spec, rules))),
        make_flow=partial(FlowOfStatedSteps, spec=spec, laid=laid),
        described=spec,
        **usual | more,
    )


def lay_way(laid: Laid, way: Compute) -> Compute:
    """Return a way for arrays as they are passed, with its words."""
    if isinstance(way, DefinitionForm):
        return DefinitionForm(way.words, lay_way(laid, way.run))
    return replace(way, laid=laid) if isinstance(way, ChangedSteps) else laid(way)


def _lay_mistakes(laid: Laid, mistakes: Iterable[Mistake]) -> Iterator[Mistake]:
    yield from (replace(mistake, way=lay_way(laid, mistake.run)) for mistake in mistakes)


def _lay_family(laid: Laid, family: MistakeFamily) -> MistakeFamily:
    return replace(family, way=lambda x: lay_way(laid, family.mistake(x, "").run))
