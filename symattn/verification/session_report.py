"""The report of a verification: its verdict, checks and notes, from all that was tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from symattn.bounds.called_target import LIMITS
from symattn.bounds.case_result import WIDER, CaseResult
from symattn.document.evidence import Grade
from symattn.document.text import equal_sizes
from symattn.verification import power
from symattn.verification.effort import MAX_LATE_OF_SIZE, spent
from symattn.verification.probing import hints, refusals
from symattn.verification.report import Check, Fault, LargestSizes, Report, StepPower

if TYPE_CHECKING:
    from symattn.verification.engine import Session

# Late calls on small inputs leave the verdict open; the hint follows the option of the limit.
_ON_SMALL_INPUTS = {
    "--time-limit": "It hangs on small inputs, or is slow there; hint: raise --time-limit if it is slow",
    "--memory-limit": "It needs too much memory on small inputs; hint: raise --memory-limit",
}


def _limit_of(session: Session) -> str:
    """Return the option that raises the limit which the first call without a result has met."""
    error = session.late[0].outcome.error
    return LIMITS["time limit" if error is None else error.reason]


def make_verification_report(session: Session, faults: tuple[Fault, ...]) -> Report:
    """Return the report of a verification with these faults, or with what many outputs show together."""
    subject = session.subject
    # Bits, and outputs judged together, speak only where no single output is a fault.
    of_bits = session.trial.fault if session.trial else None
    results = faults or tuple(filter(None, (of_bits or session.beyond,)))
    reservations = tuple(_yield_verdict_reservations(session))
    notes = tuple(
        dict.fromkeys(
            (*_yield_session_notes(session), *subject.notes(session, bool(results)), *reservations)
        )
    )
    step_powers: tuple[StepPower, ...] = (
        () if results or session.wrong_platform else subject.flow.measure_power(session)
    )
    missing: tuple[str, ...] = ()
    alone = session.verdict_alone and not results and not session.wrong_platform
    if session.wrong_platform:
        missing = (f"Outputs in floats are not judged: {session.wrong_platform}",)
    elif not results:
        option = (
            f"raise {_limit_of(session)}"
            if session.late
            else "raise --budget"
            if session.finding.struck
            else ""
        )
        missing = (
            *power.lacking(dict(_yield_group_case_counts(session)), step_powers, option),
            *_yield_unsettled_differences(session),
        )
        if any(session.is_small(r.case) for r in session.late):
            missing += (_ON_SMALL_INPUTS[_limit_of(session)],)
        missing += tuple(
            f"{one.words} would not be detected: {one.how}"
            for one in session.sought
            if not one.seen
        )
        if session.power and not session.sought:
            missing += (
                "mistakes of the sizes that were requested were not tried; hint: raise --budget",
            )
    return Report(
        power.verdict(results, missing),
        session.runner.describe(),
        session.precision.words,
        subject.words(session),
        session.seed,
        results,
        tuple(checks(session)),
        notes,
        "".join(session.stdout),
        fields=subject.fields,
        power=step_powers,
        missing=missing,
        arithmetic=session.trial.arithmetic if session.trial else None,
        sought=session.sought,
        reservations=reservations,
        repairs=session.repairs.repairs,
        largest=find_largest_judged_sizes(session),
        smallest=subject.smallest_seen(session) if alone else (),
    )


def find_largest_judged_sizes(session: Session) -> LargestSizes:
    """Return the sizes of the largest call that was judged, and of the largest on residues."""
    every = (*session.records, *session.larger)
    returned = (r for r in every if r.outcome.error is None and session.tells(r.case))
    judged = [session.subject.source.own_sizes(r) for r in returned]
    return hints.largest_sizes(judged, session.identity)


def _yield_group_case_counts(session: Session) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield each group that the subject requires, with the number of cases tried and required."""
    subject = session.subject
    tried = Counter(r.case.group for r in (*session.records, *session.refused))
    for name, group in {
        **subject.source.first(),
        **subject.source.later(),
        **subject.source.last(),
    }.items():
        # A group may yield fewer cases than required, and is then complete with these.
        if tried[name] < power.LEAST:
            result = filter(session.admits, group(session, np.random.default_rng(session.seed)))
            yield name, (tried[name], len(list(islice(result, power.LEAST))))
    for name, least in subject.source.required(session).items():
        yield name, (tried[name], least)


def _yield_unsettled_differences(session: Session) -> Iterator[str]:
    """Yield differences that only residues show, and outputs in which no case could have shown a fault."""
    # Residues come first, since their difference is exact.
    if session.identity is not None and session.identity.difference is not None:
        yield from hints.unexplained(session.identity, session.identity.difference)
    names = session.subject.outputs
    bounded = (r for r in session.records if r.ratios is not None and r.whole)
    result = [r for r in bounded if session.tells(r.case)]
    # An output is covered if one case bounds it closely enough to decide.
    open_ = [
        n
        for k, n in enumerate(names)
        if not any(r.parts[k].expected.decisive().any() for r in result)
    ]
    if open_ and len(names) > 1:
        hint = "hint: raise --budget, or choose a finer --dtype"
        yield f"No case bounds {', '.join(open_)} well enough to show a fault; {hint}"


def checks(session: Session) -> Iterator[Check]:
    """A line for each group of cases that were judged, and for what residues say."""
    for name in dict.fromkeys(r.case.group for r in session.records):
        records = [r for r in session.records if r.case.group == name]
        wrong = sum(r.finding is not None for r in records)
        result = any(r.decisive for r in records if r.ratios is not None)
        grade = Grade.REFUTED if wrong else Grade.SAMPLED if result else Grade.UNDECIDED
        yield Check(name, grade, len(records), wrong, max(r.worst for r in records))
    identity = session.identity
    if identity is not None and identity.agrees:
        count = len(identity.pairs)
        yield Check(hints.GROUP, identity.evidence.grade, count, 0, 0.0, identity.epsilon)


def _yield_verdict_reservations(session: Session) -> Iterator[str]:
    """Yield the notes that limit the verdict: inputs in other forms, and those that were refused, undecided, late,
    wrong or not tried."""
    yield from session.runner.convention.reservations
    if session.refused:
        yield from refusals.notes(session)
    yield from session.subject.reservations(session)
    yield from _beyond_bounds(session)
    if undecided := sum(r.undecided for r in session.records):
        yield f"For {undecided} inputs a comparison depends on rounding: there no numbers were judged."
    if session.late:
        smallest = min(session.late, key=lambda r: r.case.size)
        sizes = equal_sizes(session.subject.source.own_sizes(smallest))
        error = smallest.outcome.error
        count = len(session.late)
        # So many late calls stop further ones of that size.
        left = "; inputs that are as large were left out" * (count >= MAX_LATE_OF_SIZE)
        more = f"{_limit_of(session)} gives more"
        yield f"Calls without a result to judge: {count}, such as {sizes}: {error}{left}; {more}."
    if session.repairs.note:
        yield session.repairs.note
    efforts = session.finding, session.explaining, session.effort_of_searches
    yield from spent(*efforts, session.budget, session.untried)


def _beyond_bounds(session: Session) -> Iterator[str]:
    """Yield a reservation on NaN and infinities where numbers may overflow, so that the bound says nothing."""

    def lost(judged: CaseResult) -> bool:
        for part in judged.parts:
            if part.got is not None and part.ratios is not None:
                # An infinite bound allows any number, so that NaN may hide a fault there.
                open_ = ~np.isfinite(part.got) & np.isinf(part.expected.allowed)
                if open_.any() and bool((open_ & np.isfinite(part.expected.near)).any()):
                    return True
        return False

    results = sorted(filter(lost, session.records), key=lambda r: r.case.size)
    if results:
        smallest = results[0]
        several = "s" * (len(results) > 1)
        at = f"{smallest.case.name}; {equal_sizes(session.subject.source.own_sizes(smallest))}"
        yield (
            f"For {len(results)} input{several} it returns NaN or infinities where no bound holds, since numbers may "
            f"overflow or scores are too coarse there: the smallest is: {at}."
        )


def _yield_session_notes(session: Session) -> Iterator[str]:
    yield from session.runner.notes
    yield from session.runner.convention.notes
    if session.runner.convention.compiles:
        yield from _yield_interpreted_call_note(session)
    yield from _yield_returned_array_notes(session)
    # Sorted, so that the note does not depend on the order of calls.
    warned = {w for r in session.records for w in r.outcome.warnings}
    if warned:
        yield f"It warns: {sorted(warned)[0]}" + (
            f" (and {len(warned) - 1} more)" if len(warned) > 1 else ""
        )
    if session.stdout:
        yield f"It prints ({sum(t.count(chr(10)) for t in session.stdout)} lines); --show-output shows what."


def _yield_interpreted_call_note(session: Session) -> Iterator[str]:
    """Yield a note on how many of the judged calls were computed by NumPy in the place of JAX's compiler."""
    judged = (*session.records, *session.larger)
    interpreted = sum(r.outcome.interpreted for r in judged)
    if interpreted:
        yield (
            f"For {interpreted} of {len(judged)} judged calls, NumPy ran what JAX would have compiled for their sizes "
            "alone, in the same formats; the first wrong call of each group there was judged by JAX's own result, and "
            "a mistake of its compiler alone would not show."
            + (
                ""
                if session.is_trusted
                else " What would have been noticed is stated by compiled calls alone."
            )
        )


def _yield_returned_array_notes(session: Session) -> Iterator[str]:
    """Yield notes on a dtype other than that of the inputs, and on returned arrays that are not judged."""
    usual = session.precision.input.name
    wanted = len(session.subject.outputs)
    for dtype in sorted(
        {r.outcome.dtype for r in session.records if r.outcome.dtype and r.finding != "dtype"}
    ):
        # Wider than float64, in which outputs are compared.
        if dtype in WIDER:
            yield f"For {usual} inputs it returns {dtype}; that was rounded to float64 and judged with this rounding."
        elif dtype != usual:
            yield f"For {usual} inputs it returns {dtype}."
    if any(r.outcome.returned > wanted for r in session.records):
        several = f"more than {wanted} arrays; the first were taken"
        yield f"It returns {several if wanted > 1 else 'a tuple; the first item was taken'}."
