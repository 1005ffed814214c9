"""The legal outputs of a definition, and whether a mistake reproduces one: ``bounds.judge`` for ways of computing.

Each way runs on the inputs with the roundings of its operations; the largest of these bounds is allowed. An output that
is that of an attention is judged by ``bounds.judge`` itself, since one bound on a run of its steps covers every way of
computing it (``output_run``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import flint
import numpy as np

from symattn.arrays.precision import Precision
from symattn.arrays.rounded import rounded
from symattn.arrays.rounding.array import MovedByRounding
from symattn.arrays.special import Undefined
from symattn.bounds.called_target import Inputs
from symattn.bounds.case_result import (
    CaseResult,
    EnclosedInFloats,
    ExactOutput,
    Expected,
    Part,
    PartlyOpen,
    ScreenedOutput,
    largest,
    matches,
)
from symattn.bounds.judge import Legal, Traced, explained, is_far_off, judge, union
from symattn.bounds.mistake import Compute, Mistake
from symattn.bounds.reference import float64_outputs, lifted
from symattn.document.errors import Refused, Undecided
from symattn.verification.definitions.definition_forms import DefinitionForm
from symattn.verification.definitions.output_run import MovedOutput

if TYPE_CHECKING:
    from symattn.verification.definitions.definition_subject import Definition


def legal(subject: Definition, precision: Precision, inputs: Inputs) -> Legal:
    """Return the legal outputs; with −∞ in a log-sum-exp each way counts where it has a value."""
    # −∞ among log-sum-exps is a part without keys.
    empty = subject.empties is not None and any(
        np.isneginf(a).any() for a in inputs.values() if a.dtype.kind == "f"
    )
    by = _legal_beside_infinities if empty else _legal_by_ways
    return by(subject, precision, inputs)


def _legal_beside_infinities(subject: Definition, precision: Precision, inputs: Inputs) -> Legal:
    """Return the legal outputs; ways that lack values for −∞ count for the entries that do not depend on it."""

    def in_floats(way: Compute, given: Inputs) -> Sequence[np.ndarray]:
        return float64_outputs(partial(subject.run, way), given)

    first, *others = subject.ways
    # Without the −∞ every way has values.
    finite = {
        n: np.where(np.isneginf(a), 0.0, a) if a.dtype.kind == "f" else a for n, a in inputs.items()
    }
    right = in_floats(first, inputs)
    numbers = [~np.isnan(a) for a in right]
    # Entries that stay the same do not depend on the part without keys.
    apart = [a == b for a, b in zip(right, in_floats(first, finite), strict=True)]
    whole, lacking = [first], list[Compute]()
    for way in others:
        has_values = all(
            map(np.array_equal, numbers, (~np.isnan(a) for a in in_floats(way, inputs)))
        )
        (whole if has_values else lacking).append(way)
    # Each way is bounded by itself, since some count for a part of the entries.
    apart_by_way = replace(subject, output_run=None)
    of_all = _legal_by_ways(replace(apart_by_way, ways=tuple(whole)), precision, inputs)
    of_finite = _legal_by_ways(replace(apart_by_way, ways=tuple(lacking)), precision, finite)
    narrowed = [partial(_bounded_at, apart, way) for way in of_finite.ways[: len(lacking)]]
    return of_all._replace(ways=[*of_all.ways, *narrowed])


def _bounded_at(
    places: Sequence[np.ndarray], way: Callable[[], Sequence[Expected]]
) -> list[Expected]:
    """Return the outputs of a way, with its bounds at these entries alone."""
    return [e.widened(np.where(at, e.allowed, 0.0)) for e, at in zip(way(), places, strict=True)]


def _legal_by_ways(subject: Definition, precision: Precision, inputs: Inputs) -> Legal:
    """Return what is legal: the outputs by each way of the definition."""
    run = subject.output_run
    loose = [k for k, name in enumerate(subject.outputs) if name in subject.loose]
    # The run of an attention bounds every way of computing the only output.
    if run is not None and run.legal is not None and len(subject.outputs) == 1:
        return run.legal(precision, inputs)._replace(loose=loose, changes=subject.changes)

    def any_numbers() -> list[ExactOutput]:
        """Return what is legal if a comparison depends on rounding, in the shapes of float64."""
        result = float64_outputs(subject.right, inputs)
        ball = np.frompyfunc(
            lambda x: flint.arb(float(x)) if np.isfinite(x) else Undefined("it is open"), 1, 1
        )
        return [
            ExactOutput(np.asarray(ball(y), dtype=object), np.full(y.shape, np.inf)) for y in result
        ]

    law = subject.law_of(inputs)
    ways: Sequence[Callable[[], Sequence[Expected]]]
    # A law replaces the bounds of the ways on the inputs that it covers.
    ways = (
        _list_bounded_ways(subject, precision, inputs)
        if law is None
        else law.ways(inputs, precision)
    )
    if _has_cosines_of_zeros(subject, inputs):
        ways = [partial(_leave_undefined_open, way) for way in ways]

    def in_other_forms() -> list[Expected]:
        """Return the first way's outputs, with the bound on forms that are not among the ways."""
        right = ways[0]()
        bounds = subject.other_forms.bound(inputs, precision) if subject.other_forms else None
        if bounds is None:
            return [*right]
        # Outputs by a law in float64 are themselves off by as much as programs in float64 may be.
        is_reference_off = law is not None and precision.score.name == "float64"
        return [
            e.widened(b + e.allowed if is_reference_off else b)
            for e, b in zip(right, bounds, strict=True)
        ]

    others = subject.other_forms is not None and not (law and law.covers_every_form(inputs))
    return Legal(
        [*ways, in_other_forms] if others else ways,
        any_numbers,
        loose,
        subject.changes,
        # Forms with words of their own are those that lose digits.
        similar=law is None
        and not others
        and not any(isinstance(way, DefinitionForm) for way in subject.ways),
        settled=(0,) if law is None and _has_bound_of_all_ways(subject) else (),
    )


def _has_bound_of_all_ways(subject: Definition) -> bool:
    """Return whether one bound covers every way of the first output, which is that of an attention."""
    return subject.output_run is not None and subject.output_run.legal is not None


def _list_bounded_ways(
    subject: Definition, precision: Precision, inputs: Inputs
) -> list[Callable[[], Sequence[Expected]]]:
    """Return the outputs by each way with their bounds; one bound of all ways for the output of an attention."""
    run = subject.output_run
    if run is None or run.legal is None:
        return [partial(expected, subject, inputs, precision, [way]) for way in subject.ways]
    (of_run,) = run.legal(precision, inputs).ways
    # Every way of the other outputs stands beside the same first output.
    first = cache(of_run)
    if not run.others:
        return [first]

    def beside(others: Compute) -> list[Expected]:
        return [*first(), *expected(subject, inputs, precision, [others])]

    return [partial(beside, others) for others in run.others]


def _has_cosines_of_zeros(subject: Definition, inputs: Inputs) -> bool:
    """Return whether scores may be 0/0, and nothing else makes an output undefined: not NaN, nor rows without a key."""
    a = subject.attention
    return (
        a is not None
        and a.score == "cosine"
        and (a.fully_masked == "zeros" or not a.masks_anything)
        and not any(x.dtype.kind == "f" and np.isnan(x).any() for x in inputs.values())
    )


def _leave_undefined_open(way: Callable[[], Sequence[Expected]]) -> list[Expected]:
    """Return the outputs of a way, whose undefined entries may be anything."""
    return [
        # An output with its run leaves such rows open itself.
        e
        if isinstance(e, Traced | MovedOutput)
        else PartlyOpen(e, _find_undefined_entries(e), e.allowed)
        for e in way()
    ]


def _find_undefined_entries(e: Expected) -> np.ndarray:
    # −∞ is no number either, and defined.
    if isinstance(e, EnclosedInFloats):
        return np.asarray(np.isnan(e.middle) & (e.radius == 0))
    is_undefined = np.frompyfunc(lambda x: isinstance(x, Undefined), 1, 1)
    return np.asarray(is_undefined(e.entries), dtype=bool)


def expected(
    subject: Definition, inputs: Inputs, precision: Precision, ways: Sequence[Compute]
) -> list[Expected]:
    """Return the outputs by these ways, and the largest of their bounds."""
    return union([_outputs_of_way(subject, inputs, precision, way) for way in ways])


def _outputs_of_way(
    subject: Definition, inputs: Inputs, precision: Precision, way: Compute
) -> list[Expected]:
    """Return the outputs by one way with its bound: in enclosures, or in balls where these do not suffice.

    The radius of enclosures is near the roundoff of float64, so that this precision needs balls.
    """

    def run(enclosed: bool) -> tuple[Any, ...]:
        kind = rounded(precision, enclosed=enclosed)
        return subject.run(way, {n: lifted(np.asarray(a), kind) for n, a in inputs.items()})

    # Balls are slow, so they run once, and only if enclosures leave something open.
    in_balls = cache(lambda: [ExactOutput(y.value.entries, y.bound) for y in run(enclosed=False)])
    if precision.score.name == "float64":
        return [*in_balls()]
    try:
        outputs = run(enclosed=True)
    except MovedByRounding:
        # A comparison that rounding may decide stays open in balls too.
        raise
    except (Undecided, Refused):
        return [*in_balls()]
    return [
        EnclosedInFloats(y.value.mid, y.value.rad, y.bound, lambda k=k: in_balls()[k].entries)  # type: ignore[misc]
        for k, y in enumerate(outputs)
    ]


def explains(
    subject: Definition,
    precision: Precision,
    judged: CaseResult,
    mistake: Mistake,
    among: frozenset[int] | None = None,
) -> bool | None:
    """Return whether a mistake reproduces the outputs, all or those ``among``; None if that is undecidable.

    A mistake has only one way; the errors of others are taken from the definition.
    """

    def reproduces(part: Part, wrong: Expected) -> bool | None:
        allowed = wrong.allowed
        if part.expected.allowed.shape == allowed.shape:
            allowed = np.maximum(
                allowed, np.where(np.isfinite(part.expected.allowed), part.expected.allowed, 0)
            )
        result = np.isfinite(allowed)
        if (
            part.got is not None and part.got.shape == allowed.shape
        ):  # where it is undefined, code may give numbers
            # Where the mistake is undefined a number of the code does not refute it.
            result &= ~(~np.isnan(part.got) & np.isnan(wrong.near))
        return matches(part, wrong.widened(allowed), result, mistake.exact)

    wrong: Callable[[], Sequence[Expected]]
    # A law is about the definition alone, so floats decide about a mistake.
    if subject.law_of(judged.case.inputs) is not None:
        wrong = partial(_by_mistake_in_floats, subject, judged, mistake)
    else:
        wrong = cache(partial(expected, subject, judged.case.inputs, precision, [mistake.run]))
    answer = explained(judged, wrong, reproduces, among)
    # By the bounds of all ways, which are larger than the first one's, a mistake may still reproduce the outputs.
    if answer is False and judged.finding == "values" and not judged.whole:

        def reproduces_nearly(part: Part, wrong: Expected) -> bool:
            return not is_far_off(part.got, wrong, precision)

        if explained(judged, wrong, reproduces_nearly, among) is not False:
            by_all = legal(subject, precision, judged.case.inputs)
            whole = judge(by_all, precision, judged.case, judged.outcome)
            return explained(whole, wrong, reproduces, among)
    return answer


def _by_mistake_in_floats(
    subject: Definition, judged: CaseResult, mistake: Mistake
) -> list[Expected]:
    """Return the outputs of a mistake in float64, allowed to be off relatively as much as the definition's."""
    outputs = float64_outputs(partial(subject.run, mistake.run), judged.case.inputs)
    relative = max(map(_relative_allowance, judged.parts))
    return [ScreenedOutput(y, np.asarray(relative * np.abs(y))) for y in outputs]


def _relative_allowance(part: Part) -> float:
    """Return the largest allowed error of an output in parts of its largest entry, of what is bounded."""
    allowed = part.expected.allowed
    most = np.where(np.isfinite(allowed), allowed, 0.0).max(initial=0.0)
    # 1e-300 stands in for the largest entry of an output of zeros.
    return float(most / max(largest(part.expected.near), 1e-300))
