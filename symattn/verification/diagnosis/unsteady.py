"""Functions that give other results for the same input: dropout left on, uninitialised memory, errors by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from symattn.verification.counterexample import shown
from symattn.verification.judged import Judged
from symattn.verification.report import Fault
from symattn.verification.target import Outcome, same_bits

if TYPE_CHECKING:
    from symattn.verification.engine import Session

_AGAIN = 4  # of the smallest wrong cases that are called again, and of larger ones: chance spares what is small


def unsteady(session: Session) -> Fault | None:
    """Other results for the same input, further apart than any legal ones, or an error at some calls only.

    Nothing that one call has shown says what the next one does; so nothing else is diagnosed then.
    """
    failed = [r for r in session.records if r.finding in ("values", "not finite", "raises") and not late(r)]
    failed.sort(key=lambda r: r.case.size)
    for judged in (*failed[:_AGAIN], *failed[_AGAIN :: max(1, len(failed) // _AGAIN)]):
        for _ in range(2):
            words = _difference(judged, session.call(judged.case))
            if words:
                message = f"gives different results for the same input: {words}"
                return Fault("call", "different results for the same input", message, shown(session.subject, judged))
    return None


def _difference(once: Judged, second: Outcome) -> str:
    """In words; empty where both are the same, or as near as the results of legal orders of summation."""
    first = once.outcome
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


def late(judged: Judged) -> bool:
    """Whether the call did not return in time."""
    return judged.outcome.error is not None and judged.outcome.error.reason == "time limit"
