"""Faults of conduct: another dtype, changed arguments, overwritten results, views that are misread, and other results
for the same input, as of dropout left on, uninitialised memory, errors by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.bounds.case_result import CaseResult
from symattn.bounds.target import Outcome, same_bits
from symattn.verification.counterexample import shown
from symattn.verification.report import Counterexample, Fault

if TYPE_CHECKING:
    from symattn.verification.engine import Session


def conduct(records: Sequence[Any], wanted: str, shown: Callable[[Any], Counterexample]) -> Iterator[Fault]:
    """A fault for each kind of misconduct among judged cases, at the smallest of them; ``wanted`` is the dtype of the
    inputs."""
    result: dict[str, tuple[str, Callable[[Any], str], Callable[[Any], str]]] = {
        "dtype": (
            "output",
            lambda r: f"the output is returned as {r.outcome.dtype}",
            lambda r: f"returns {r.outcome.dtype} for {wanted} inputs",
        ),
        "mutates": (
            "call",
            lambda r: f"the argument {', '.join(r.outcome.mutated)} is changed in place",
            lambda r: f"changes its argument {', '.join(r.outcome.mutated)}" + _aliased(records),
        ),
        "overwrites": (
            "call",
            lambda r: "a later call overwrites the array that an earlier one has returned",
            lambda r: "a later call changes the array that an earlier one has returned",
        ),
    }
    for finding, (step, cause, words) in result.items():
        judged = min((r for r in records if r.finding == finding), key=lambda r: r.case.size, default=None)
        if judged is not None:
            yield Fault(step, cause(judged), words(judged), shown(judged))


def only_aliased(records: Sequence[Any]) -> bool:
    """Return whether arguments are changed, and values are wrong only where one array is passed for several of them."""
    wrong = [r for r in records if r.finding in ("values", "not finite")]
    return any(r.finding == "mutates" for r in records) and all(r.case.memory == "shared" for r in wrong)


def misread(records: Sequence[Any], shown: Callable[[Any], Counterexample]) -> Fault | None:
    """The fault where all is right but for arrays that lie otherwise in memory than row by row."""
    wrong = [r for r in records if r.finding in ("values", "not finite")]
    if not wrong or any(r.case.memory in ("contiguous", "shared") for r in wrong):
        return None
    cause = "arrays are read as if they were contiguous in memory"
    views = ", ".join(dict.fromkeys(r.case.name for r in wrong))
    return Fault(
        "call", cause, f"{cause}: the same numbers are right otherwise, and wrong for {views}", shown(wrong[0])
    )


def _aliased(records: Sequence[Any]) -> str:
    wrong = any(r.finding in ("values", "not finite") for r in records)
    return "; where one array is passed for several of them the output is wrong" * (wrong and only_aliased(records))


_AGAIN = 4  # of the smallest wrong cases that are called again, and of larger ones: chance spares what is small


def unsteady(session: Session) -> Fault | None:
    """Other results for the same input, further apart than any legal ones, or an error at some calls only.

    Nothing that one call has shown says what the next one does; so nothing else is diagnosed then.
    """
    failed = [r for r in session.records if r.finding in ("values", "not finite", "raises")]
    failed.sort(key=lambda r: r.case.size)
    for judged in (*failed[:_AGAIN], *failed[_AGAIN :: max(1, len(failed) // _AGAIN)]):
        for _ in range(2):
            words = _difference(judged, session.call(judged.case))
            if words:
                message = f"gives different results for the same input: {words}"
                return Fault("call", "different results for the same input", message, shown(session.subject, judged))
    return None


def _difference(once: CaseResult, second: Outcome) -> str:
    """In words; empty where both are the same, or as near as the results of legal orders of summation."""
    first = once.outcome
    if second.late:
        return ""
    if (first.error is None) != (second.error is None):
        return f"one call gives an array, another {first.error or second.error}"
    if second.error is not None or (same_bits(first, second) and not second.others):
        return ""
    arrays = zip((first.output, *first.others), (second.output, *second.others), once.parts, strict=False)
    for a, b, part in arrays:
        allowed = part.expected.allowed
        if a is None or b is None or a.shape != b.shape or a.size != allowed.size:
            continue
        with np.errstate(invalid="ignore"):
            apart = (np.abs(a - b) > 2 * allowed.reshape(a.shape)) | (np.isfinite(a) != np.isfinite(b))
        if apart.any():
            at = tuple(int(i) for i in np.argwhere(apart)[0])
            index = ", ".join(str(i + 1) for i in at)
            return f"output {index} is {a[at]:.9g} at one call and {b[at]:.9g} at another"
    return ""
