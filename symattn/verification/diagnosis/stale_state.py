"""Functions that use again what an earlier call has made: positions, tables or masks kept by lengths alone.

Each round takes lengths that no call had before, and calls three times: with them, with another number of keys, and
with the first ones again and other numbers. Where every first call is right and in every round a later one is wrong,
the calls before are to blame, and no length: the two numbers of keys take turns in coming first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.inputs import Sizes
from symattn.verification.counterexample import shown
from symattn.verification.probing.search import FAMILIES
from symattn.verification.report import Fault

if TYPE_CHECKING:
    from symattn.verification.engine import Session

_ROUNDS, _LEAST = 6, 4
_FROM, _TO = 5, 120  # lengths


def earlier_used(session: Session) -> Fault | None:
    """The fault, if that is what the calls show."""
    later: list[CaseResult] = []
    for first, rest in _rounds(session):
        wrong = [r for r in rest if r.finding in ("values", "not finite", "shape", "raises")]
        if first.finding is not None or not first.decisive or not wrong:
            return None
        later.append(wrong[0])
    if len(later) < _LEAST:
        return None
    message = (
        f"what an earlier call made is used again: in lengths that are new, all {len(later)} first calls are right, "
        "and in each of them a later call with other numbers or another number of keys is wrong"
    )
    return Fault(
        _step(session, later), "what an earlier call made is used again", message, shown(session.subject, later[0])
    )


def _rounds(session: Session) -> Iterator[tuple[CaseResult, list[CaseResult]]]:
    rng = np.random.default_rng((session.seed, 4))
    unused, entries = _unused(session), FAMILIES["normal"](rng)
    for number in range(min(_ROUNDS, len(unused) // 3)):
        n, few, many = unused[3 * number : 3 * number + 3]
        order = (few, many, few) if number % 2 else (many, few, many)
        called = (
            session.run_case(Case("earlier calls", "", session.maker.make(Sizes(n, n_k, 4, 3), entries, rng)))
            for n_k in order
        )
        yield next(called), list(called)


def _unused(session: Session) -> list[int]:
    """Lengths that no call had."""
    had = {s[n] for r in session.records for s in [session.subject.sizes(r)] for n in ("n_q", "n_k")}
    step = session.domain.multiple_of
    most = min(_TO, session.domain.max_tokens)
    return [n for n in range(-(-_FROM // step) * step, most + 1, step) if n not in had]


def _step(session: Session, later: list[CaseResult]) -> str:
    """Where scores are 0, positions have no effect and masks have all of theirs."""
    idle = [{n: np.zeros_like(a) if n in ("q", "w_q") else a for n, a in r.case.inputs.items()} for r in later]
    wrong = any(session.run_case(Case("earlier calls", "", given)).finding is not None for given in idle)
    if wrong:
        return "mask" if session.spec.masks_anything else "call"
    return "position" if session.spec.position is not None else "call"
