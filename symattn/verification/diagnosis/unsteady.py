"""Functions that give other results for the same input: dropout left on, uninitialised memory, errors by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from symattn.verification.counterexample import shown
from symattn.verification.judged import Judged
from symattn.verification.report import Fault
from symattn.verification.target import same_bits

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
            again = session.try_(judged.case)
            words = _difference(judged, again)
            if words:
                message = f"gives different results for the same input: {words}"
                return Fault("call", "different results for the same input", message, shown(session.subject, judged))
    return None


def _difference(once: Judged, again: Judged) -> str:
    """In words; empty where both are the same, or as near as the results of legal orders of summation."""
    first, second = once.outcome, again.outcome
    if (first.error is None) != (second.error is None):
        return f"one call gives an array, another {first.error or second.error}"
    if late(again) or same_bits(first, second):
        return ""
    for one, other in zip(once.parts, again.parts, strict=True):
        a, b = one.got, other.got
        if a is None or b is None or not a.shape == b.shape == one.expected.allowed.shape:
            continue
        with np.errstate(invalid="ignore"):
            apart = (np.abs(a - b) > 2 * one.expected.allowed) | (np.isfinite(a) != np.isfinite(b))
        if apart.any():
            at = tuple(int(i) for i in np.argwhere(apart)[0])
            index = ", ".join(str(i + 1) for i in at)
            return f"output {index} is {a[at]:.9g} at one call and {b[at]:.9g} at another"
    return ""


def late(judged: Judged) -> bool:
    """Whether the call did not return in time."""
    return judged.outcome.error is not None and judged.outcome.error.reason == "time limit"
