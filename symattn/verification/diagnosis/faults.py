"""From judged cases to faults: the wrong step, the known mistake, and the smallest input that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from symattn.bounds.called_target import same_bits
from symattn.bounds.case_result import UNFIT, Case, CaseResult
from symattn.verification.diagnosis.causes import Cause, causes
from symattn.verification.diagnosis.conditions import separating
from symattn.verification.diagnosis.conduct import conduct, misread, only_aliased, unsteady
from symattn.verification.reduce import Inputs, counterexample, reduce, shapes, shown
from symattn.verification.report import STEPS, Fault

if TYPE_CHECKING:
    from symattn.verification.engine import Session

_NAMED = 3  # mistakes that are named if several explain the same
_SAME = {"values": ("values", "not finite"), "not finite": ("not finite",)}


def faults(session: Session) -> tuple[Fault, ...]:
    """Return all faults, in the order of the steps."""
    session.progress("causes")
    first = unsteady(session)
    if first is not None:
        return (first,)
    show = partial(shown, session.subject)
    stale = _stale(session) or misread(session.records, show)
    explained = causes(session) if stale is None and not only_aliased(session.records) else ()
    if explained and not any(cause.sure and cause.mistakes for cause in explained):
        stale = session.subject.remembered(session)
    result = [stale] if stale else [*_wrong(session, explained)]
    if not any(cause.raises for cause in explained):
        result += _failing(session)
    result += conduct(session.records, session.precision.input.name, show)
    result += session.subject.misconduct(session)
    return tuple(sorted(result, key=lambda f: STEPS.index(f.step)))


def _stale(session: Session) -> Fault | None:
    """Return the fault if all wrong outputs are, bit for bit, those of earlier calls with other inputs."""
    wrong = [(k, r) for k, r in enumerate(session.records) if r.finding in ("values", "not finite")]
    if not wrong or not all(
        any(e.finding is None and same_bits(e.outcome, r.outcome) for e in session.records[:k]) for k, r in wrong
    ):
        return None
    message = "returns the result of an earlier call for other numbers in the same shapes"
    return Fault("call", "the result of an earlier call is returned", message, shown(session.subject, wrong[0][1]))


def _wrong(session: Session, explained: tuple[Cause[Any], ...]) -> Iterator[Fault]:
    for cause in explained:
        session.progress("smallest input")
        # the smallest case that shows the cause; for an unexplained wrong shape, a case with it
        misshapen = [] if cause.mistakes else [r for r in cause.records if r.finding == "shape"]
        telling = next(chain(misshapen, filter(cause.shows, cause.records)), cause.records[0])
        smallest = _smallest(session, telling, cause.shows if cause.shows(telling) else _anything)
        named = cause.sure and bool(cause.mistakes)
        step, words, message = _named(session, cause) if named else _unnamed(session, smallest, cause)
        message += _outputs(session, smallest, cause) + f"; besides, {cause.besides}" * bool(cause.besides)
        example = session.subject.explained(counterexample(session.subject, smallest), smallest, cause)
        yield Fault(step, words, message, example, session.subject.observed(session, step))


def _anything(judged: CaseResult) -> bool:
    return True


def _named(session: Session, cause: Cause[Any]) -> tuple[str, str | None, str]:
    first = cause.mistakes[0]
    if len(cause.mistakes) == 1:
        return first.step, first.cause, first.cause + session.subject.expectation(first.step)
    steps = sorted({m.step for m in cause.mistakes}, key=STEPS.index)
    words = "; or ".join(m.cause for m in cause.mistakes[:_NAMED])
    return steps[0], words, f"{words} (each explains everything observed)"


def _unnamed(session: Session, smallest: CaseResult, cause: Cause[Any]) -> tuple[str, None, str]:
    """Describe what the smallest input shows, since the reader sees only that one."""
    form = session.subject.form(session, [smallest, *cause.records])
    if form:
        words = f"the output loses relative accuracy: it is within the bound of {form}, and of no other form"
        return "merge", None, words
    what = {"shape": "the output has a wrong shape", "not finite": "the output is not finite where it must be"}
    beyond = f"the output is beyond what any implementation in this arithmetic{session.precision.contracted} can give"
    words = what.get(smallest.finding or "", beyond)
    if smallest.finding == "shape":
        step, seen = session.subject.misshapen, shapes(session.subject, smallest)
    else:
        step, seen = session.subject.blamed(session, smallest, cause.records)
    known = f"no known mistake {'that was tried ' * cause.search.cut}explains it"
    if cause.mistakes:
        first, alone = f"“{cause.mistakes[0].cause}”", len(session.records) == 1
        known = f"the first failures are consistent with {first}, other inputs are not"
        known = f"this case alone is consistent with {first}, and others were not tried" if alone else known
    return step, None, f"{words}; {known}" + (f"; {seen}" if seen else "")


def _outputs(session: Session, smallest: CaseResult, cause: Cause[Any]) -> str:
    """Say which outputs are wrong, if there are several, and which one the counterexample shows."""
    outputs, among = session.subject.outputs, cause.search.among
    if len(outputs) < 2 or smallest.ratios is None:
        return ""
    wrong = frozenset().union(*(r.wrong for r in cause.records))
    names = ", ".join(outputs[k] for k in sorted(wrong & among if among else wrong))
    return f"; wrong in {names}, shown in {outputs[smallest.where[0]]}"


def _failing(session: Session) -> Iterator[Fault]:
    """Yield the fault of calls that raised while others returned."""
    failed = [r for r in session.records if r.finding == "raises"]
    if not failed:
        return
    smallest = _smallest(session, min(failed, key=lambda r: r.case.size), _anything)
    error = smallest.outcome.error
    others = [r for r in session.records if r.finding != "raises"]
    results = (
        words for words, _ in separating(session, failed, others) if " = " not in words
    )  # which one call may have
    condition = next(results, "")
    where = f" where {condition}" if condition else f" for {len(failed)} of {len(session.records)} inputs"
    cause = f"the call fails{where if condition else ' for some inputs'}"
    yield Fault("call", cause, f"gives no array{where}: {error}", counterexample(session.subject, smallest))


def _smallest(session: Session, judged: CaseResult, shows: Callable[[CaseResult], bool]) -> CaseResult:
    """Reduce the finding to the smallest inputs that show it."""
    best, subject = [judged], session.subject

    def fails(inputs: Inputs) -> bool:
        if session.effort.over:
            return False
        try:
            whole = subject.completed(session, inputs)
            if not subject.fits(session, whole):
                return False
            case_result = session.run_case(Case(judged.case.group, judged.case.name, whole, judged.case.memory))
        except UNFIT:
            return False
        alike = case_result.finding in _SAME.get(judged.finding or "", (judged.finding,)) and shows(case_result)
        if alike:
            best[0] = case_result
        return alike

    reduce(dict(judged.case.inputs), fails, subject.axes(judged.case.inputs), session.domain)
    return best[0]
