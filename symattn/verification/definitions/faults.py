"""From judged cases to faults: what is wrong, by which known mistake, and the smallest input that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from symattn.errors import SymattnError
from symattn.verification.definitions.diagnose import Cause, causes, coarser
from symattn.verification.definitions.judging import Judged, explains
from symattn.verification.definitions.smallest import counterexample, reduced, shapes, shown
from symattn.verification.diagnosis.conduct import conduct
from symattn.verification.judge import Case
from symattn.verification.report import Fault
from symattn.verification.target import same_bits

if TYPE_CHECKING:
    from symattn.verification.definitions.engine import Session

_ALIKE = {"values": ("values", "not finite"), "not finite": ("not finite", "values")}
_AGAIN = 4  # wrong cases that are called again


def faults(session: Session) -> tuple[Fault, ...]:
    """All faults; of a function that is not steady, that alone."""
    first = _unsteady(session) or _stale(session)
    if first is not None:
        return (first, *_conduct(session))
    found = causes(session.subject, session.precision, session.records, session.effort.left)
    return (*(_wrong(session, cause) for cause in found), *_failing(session), *_conduct(session))


def _unsteady(session: Session) -> Fault | None:
    """Other results for the same input, further apart than any legal ones, or an error at some calls only."""
    failed = [r for r in session.records if r.finding in ("values", "not finite", "raises") and not _late(r)]
    for judged in sorted(failed, key=lambda r: r.case.size)[:_AGAIN]:
        again = session.try_(judged.case)
        words = _difference(judged, again) if again is not None else ""
        if words:
            message = f"gives different results for the same input: {words}"
            return Fault("call", "different results for the same input", message, shown(session.subject, judged))
    return None


def _difference(once: Judged, again: Judged) -> str:
    if (once.outcome.error is None) != (again.outcome.error is None):
        return f"one call gives an array, another {once.outcome.error or again.outcome.error}"
    for a, b, right in zip(once.got, again.got, once.expected, strict=False):
        if a is None or b is None or a.shape != b.shape or a.shape != right.allowed.shape:
            continue
        with np.errstate(invalid="ignore"):
            apart = (np.abs(a - b) > 2 * right.allowed) | (np.isfinite(a) != np.isfinite(b))
        if apart.any():
            at = tuple(int(i) for i in np.argwhere(apart)[0])
            index = ", ".join(str(i + 1) for i in at)
            return f"output {index} is {a[at]:.9g} at one call and {b[at]:.9g} at another"
    return ""


def _stale(session: Session) -> Fault | None:
    """Wrong outputs that all are, bit for bit, what an earlier call with other inputs gave."""
    wrong = [r for r in session.records if r.finding in ("values", "not finite")]
    if not wrong or not all(_repeats(session.records, r) for r in wrong):
        return None
    message = "returns what an earlier call gave, for other numbers in the same shapes"
    cause = "the result of an earlier call is returned"
    return Fault("call", cause, message, shown(session.subject, wrong[0]))


def _repeats(records: list[Judged], judged: Judged) -> bool:
    earlier = records[: records.index(judged)]
    return any(r.finding is None and same_bits(r.outcome, judged.outcome) for r in earlier)


def _wrong(session: Session, cause: Cause) -> Fault:
    one = cause.mistakes[0] if len(cause.mistakes) == 1 else None

    def shows(judged: Judged) -> bool:
        if one is None:
            return cause.among is None or bool(judged.wrong & cause.among)
        return explains(session.subject, session.precision, judged, one, cause.among) is True

    telling = next((r for r in cause.records if shows(r)), cause.records[0])
    smallest = _smallest(session, telling, shows)
    step, name, words = _told(session, cause, smallest)
    return Fault(step, name, words + _in(session, cause, smallest), counterexample(session.subject, smallest))


def _told(session: Session, cause: Cause, smallest: Judged) -> tuple[str, str | None, str]:
    if len(cause.mistakes) == 1:
        return cause.mistakes[0].step, cause.mistakes[0].cause, cause.mistakes[0].cause
    if cause.mistakes:
        steps = {m.step for m in cause.mistakes}
        words = "; or ".join(m.cause for m in cause.mistakes)
        step = steps.pop() if len(steps) == 1 else session.subject.step
        return step, None, f"{words} (each explains everything that was seen)"
    unknown = f"no known mistake {'that was tried ' if cause.cut else ''}explains it"
    if smallest.finding == "shape":
        told = shapes(session.subject, smallest)
        return "output", None, f"the output has a wrong shape; {unknown}; {told}"
    what = {"not finite": "the output is not finite where it must be"}
    words = what.get(smallest.finding or "", "the output is beyond what any implementation in this arithmetic can give")
    narrow = coarser(session.subject, session.precision, cause.records)
    more = f"; its errors are none that {narrow} arithmetic could not make" if narrow else ""
    return session.subject.step, None, f"{words}; {unknown}{more}"


def _in(session: Session, cause: Cause, smallest: Judged) -> str:
    """Which outputs are wrong, where there are several; and which one the counterexample shows."""
    outputs = session.subject.outputs
    if len(outputs) < 2 or not smallest.ratios:
        return ""
    wrong = sorted(frozenset().union(*(r.wrong for r in cause.records)) & (cause.among or frozenset(range(9))))
    return f"; wrong in {', '.join(outputs[k] for k in wrong)}, shown in {outputs[smallest.where[0]]}"


def _failing(session: Session) -> Iterator[Fault]:
    """Calls that raised, where others returned."""
    failed = [r for r in session.records if r.finding == "raises"]
    if not failed:
        return
    smallest = _smallest(session, min(failed, key=lambda r: r.case.size), lambda judged: True)
    verb = "did not return" if _late(smallest) else "gives no array"
    words = f"{verb} for {len(failed)} of {len(session.records)} inputs: {smallest.outcome.error}"
    cause = "the call does not return for some inputs" if _late(smallest) else "the call fails for some inputs"
    yield Fault("call", cause, words, counterexample(session.subject, smallest))


def _conduct(session: Session) -> Iterator[Fault]:
    return conduct(session.records, session.precision.input.name, lambda judged: shown(session.subject, judged))


def _smallest(session: Session, judged: Judged, shows: Callable[[Judged], bool]) -> Judged:
    """The same finding on the smallest inputs that show it."""
    best = [judged]

    def fails(inputs: dict[str, np.ndarray]) -> bool:
        if session.effort.over:
            return False
        try:
            whole = session.subject.completed(inputs, session.precision)
            if not session.subject.admitted(whole, session.domain):
                return False
            found = session.try_(Case(judged.case.group, judged.case.name, whole, judged.case.memory))
        except (SymattnError, ValueError, IndexError, TypeError, ZeroDivisionError):  # no definition for these sizes
            return False
        alike = found is not None and found.finding in _ALIKE.get(judged.finding or "", (judged.finding,))
        if found is not None and alike and shows(found):
            best[0] = found
            return True
        return False

    if not _late(judged):
        reduced(session.subject, judged.case.inputs, fails, session.domain)
    return best[0]


def _late(judged: Judged) -> bool:
    return judged.outcome.error is not None and judged.outcome.error.reason == "time limit"
