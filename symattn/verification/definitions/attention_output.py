"""The output of an attention alone, as a definition: its steps, probes of each, residues, and its mistakes.

One run of the steps bounds every way of computing the output (``output_run``), and its inputs are made by the roles of
arrays in these steps (``inputs_by_roles``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from symattn.arrays.formats import HALF
from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds import judge, reference
from symattn.bounds.called_target import Inputs
from symattn.bounds.case_result import Expected
from symattn.bounds.inputs import measure_largest_score
from symattn.document import codec
from symattn.verification.definitions.definition_flow import FlowOfSteps
from symattn.verification.definitions.definition_subject import Definition
from symattn.verification.definitions.inner_attention import InnerAttention
from symattn.verification.definitions.inputs_by_roles import InputsByRoles
from symattn.verification.definitions.output_run import OutputRun

if TYPE_CHECKING:
    from symattn.verification.engine import Session

#: Groups that test what is computed rather than its arithmetic.
_MEANT = frozenset({"worked", "scale", "structure", "mask", "windows", "long"})


def subject(spec: Attention) -> Definition:
    """Return the definition of the output of an attention."""
    return Definition(
        title="",
        step="weights",
        inputs=(),
        outputs=("output",),
        ways=(spec,),
        mistakes=(),
        shapes=(),
        make_source=lambda definition: InputsByRoles(spec),
        make_flow=lambda definition: FlowOfSteps(spec),
        inner=InnerAttention(
            spec,
            names=(),
            arrange=dict,
            largest_score=partial(measure_largest_score, spec),
            arrays_of=dict,
            returned=True,
        ),
        output_run=OutputRun(
            None, partial(judge.of_attention, spec), screened=partial(_screened, spec)
        ),
        described=spec,
        fields=codec.changed_fields(spec),
        look_closer=_look_closer,
        look_early=_look_early,
        what="the specification",
        misshapen="call",
        enough=inf,
        climbed=600,
        meant=_MEANT,
        screened_groups=frozenset(),
        probed_groups=frozenset(),
    )


def _screened(spec: Attention, precision: Precision, inputs: Inputs) -> Sequence[Expected] | None:
    # Half precision is bounded instead, as its roundings hide more than the bound.
    if precision.input.name in HALF:
        return None
    (near,) = reference.float64_outputs(lambda arrays: (spec(**arrays),), inputs)
    return [judge.in_floats(spec, inputs, precision, near)]


def _look_closer(session: Session) -> None:
    """See ``arithmetic.aims``; only the bits of half precision show its arithmetic."""
    if session.precision.input.name in HALF or session.power:
        from symattn.verification.arithmetic.aims import look_closer

        look_closer(session)


def _look_early(session: Session) -> None:
    """See ``arithmetic.aims.look_early``."""
    if session.precision.input.name in HALF:
        from symattn.verification.arithmetic.aims import look_early

        look_early(session)
