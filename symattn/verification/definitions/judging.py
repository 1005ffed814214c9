"""The exact outputs of a definition and their bounds, for the judge; and which mistakes reproduce an output."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import flint
import numpy as np

from symattn.arrays.precision import Precision
from symattn.arrays.rounded import Rounded, rounded
from symattn.arrays.special import Undefined
from symattn.bounds.called_target import Inputs
from symattn.bounds.case_result import CaseResult, ExactOutput, Expected, Part, matches
from symattn.bounds.judge import Legal, explained, union
from symattn.bounds.reference import float64_outputs, lifted

if TYPE_CHECKING:
    from symattn.verification.definitions.definition_mistakes import Compute, DefinitionMistake
    from symattn.verification.definitions.definition_subject import Definition


def legal(subject: Definition, precision: Precision, inputs: Inputs) -> Legal:
    """Return what is legal: the outputs by each way of the definition."""
    return Legal(
        [partial(expected, subject, inputs, precision, [way]) for way in subject.ways],
        partial(_undecided, subject, inputs),
        [k for k, name in enumerate(subject.outputs) if name in subject.loose],
        subject.changes,
    )


def expected(subject: Definition, inputs: Inputs, precision: Precision, ways: Sequence[Compute]) -> list[Expected]:
    """Return the outputs by these ways, and the largest of their bounds."""
    runs = [outputs(subject, inputs, precision, way) for way in ways]
    return union([[ExactOutput(y.value.entries, y.bound) for y in run] for run in runs])


def outputs(subject: Definition, inputs: Inputs, precision: Precision, way: Compute) -> tuple[Rounded, ...]:
    """Run one way on the kind ``rounded``."""
    kind = rounded(precision)
    return subject.run(way, {name: lifted(np.asarray(a), kind) for name, a in inputs.items()})


def _undecided(subject: Definition, inputs: Inputs) -> list[ExactOutput]:
    """Return what is legal if a comparison depends on rounding: any numbers, in the shapes of float64."""
    result = float64_outputs(subject.right, inputs)
    ball = np.frompyfunc(lambda x: flint.arb(float(x)) if np.isfinite(x) else Undefined("it is open"), 1, 1)
    return [ExactOutput(np.asarray(ball(y), dtype=object), np.full(y.shape, np.inf)) for y in result]


def explains(
    subject: Definition,
    precision: Precision,
    judged: CaseResult,
    mistake: DefinitionMistake,
    among: frozenset[int] | None = None,
) -> bool | None:
    """Return whether a mistake reproduces the outputs, all or those ``among``; None if that is undecidable."""
    wrong = partial(expected, subject, judged.case.inputs, precision, [mistake.run])
    return explained(judged, wrong, partial(_reproduces, mistake), among)


def _reproduces(mistake: DefinitionMistake, part: Part, wrong: Expected) -> bool | None:
    """The same for one output. A mistake has only one way; the errors of others are taken from the definition."""
    allowed = wrong.allowed
    if part.expected.allowed.shape == allowed.shape:
        allowed = np.maximum(allowed, np.where(np.isfinite(part.expected.allowed), part.expected.allowed, 0))
    result = np.isfinite(allowed)
    if part.got is not None and part.got.shape == allowed.shape:  # code computes infinity for x/0, which is undefined
        result &= ~(np.isinf(part.got) & np.isnan(wrong.near))
    return matches(part, wrong.widened(allowed), result, mistake.exact)
