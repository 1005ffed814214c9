"""A definition that states its steps, ready to be verified: its first way and its mistakes come from these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from symattn.attention.stated_flow import StatedFlow
from symattn.bounds.mistake import Compute
from symattn.document.codec import called
from symattn.verification.definitions.definition_flow import FlowOfStatedSteps
from symattn.verification.definitions.definition_mistakes import Later
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.rules import by_role


def define_in_steps(
    spec: StatedFlow,
    step: str,
    inputs: tuple[Input, ...],
    shapes: Sequence[Mapping[str, int]],
    **more: Any,
) -> Definition:
    """Return the definition of stated steps, with further fields of ``Definition`` as given.

    ``step`` is blamed if no more is known of a fault. ``ways``, by default the run of the steps alone, begin with it.
    """
    ways: tuple[Compute, ...] = (spec.return_run,)
    usual: dict[str, Any] = {"title": called(spec), "outputs": spec.returned, "ways": ways}
    return Definition(
        step=step,
        inputs=inputs,
        shapes=tuple(shapes),
        mistakes=Later(lambda: by_role.mistakes(spec)),
        make_flow=partial(FlowOfStatedSteps, spec=spec),
        described=spec,
        **usual | more,
    )
