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
from symattn.verification.definitions.inner_attention import InnerAttention
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
    Ways and mistakes take arrays in the axes of the steps. If arrays are passed in others, ``laid`` makes a function of
    these of each of them, so that no way or mistake knows the order in which its arrays are passed.
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
        "described": spec,
        "outputs": spec.returned,
        "mistakes": Later(lambda: by_role.mistakes(spec, rules)),
        "others": Later(lambda: (*others, *by_role.further_mistakes(spec))),
        "numbered": tuple(by_role.families(spec, numbered_rules)),
    }
    # Steps alone, which no command can name, have no such title.
    if "title" not in more:
        usual["title"] = called(spec)
    definition = Definition(
        step=step,
        inputs=inputs,
        shapes=tuple(shapes),
        ways=tuple(every),
        make_flow=partial(FlowOfStatedSteps, spec=spec, laid=laid),
        **usual | more,
    )
    return _lay_definition(laid, definition)


# -- arrays as they are passed -----------------------------------------------------------------------------------------
def _lay_definition(laid: Laid, definition: Definition) -> Definition:
    """Return a definition whose ways and mistakes take arrays as they are passed."""
    return replace(
        definition,
        ways=_lay_ways(laid, definition.ways),
        recorded=_lay_ways(laid, definition.recorded),
        mistakes=Later(lambda: _lay_mistakes(laid, definition.mistakes)),
        others=Later(lambda: _lay_mistakes(laid, definition.others)),
        numbered=tuple(_lay_family(laid, family) for family in definition.numbered),
        inner=_lay_attention(laid, definition.inner),
    )


def _lay_attention(laid: Laid, inner: InnerAttention | None) -> InnerAttention | None:
    """Return an attention inside, whose mistakes are those of a definition of arrays as they are passed."""
    if inner is None or inner.wrong is None:
        return inner
    run = inner.wrong.run
    return replace(inner, wrong=replace(inner.wrong, run=lambda x: _lay_way(laid, run(x))))


def _lay_way(laid: Laid, way: Compute) -> Compute:
    """Return a way for arrays as they are passed, with its words."""
    if isinstance(way, DefinitionForm):
        return DefinitionForm(way.words, _lay_way(laid, way.run))
    return replace(way, laid=laid) if isinstance(way, ChangedSteps) else laid(way)


def _lay_ways(laid: Laid, ways: Iterable[Compute]) -> tuple[Compute, ...]:
    return tuple(_lay_way(laid, way) for way in ways)


def _lay_mistakes(laid: Laid, mistakes: Iterable[Mistake]) -> Iterator[Mistake]:
    for mistake in mistakes:
        way, around = _lay_way(laid, mistake.run), _lay_ways(laid, mistake.around)
        yield replace(mistake, way=way, around=around)


def _lay_family(laid: Laid, family: MistakeFamily) -> MistakeFamily:
    return replace(family, way=lambda x: _lay_way(laid, family.mistake(x, "").run))
