"""The step to blame where no known mistake of attention explains a fault: what the function's own answers say."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.judge import traced
from symattn.verification.diagnosis.coarser import coarser
from symattn.verification.diagnosis.exponential import other_function
from symattn.verification.diagnosis.isolate import idle_step, needs_scores
from symattn.verification.diagnosis.misplaced import other_values
from symattn.verification.diagnosis.observe import explains, first_wrong_step
from symattn.verification.diagnosis.rows import affected, nonfinite_rows

if TYPE_CHECKING:
    from symattn.verification.engine import Session

_APART = 0.1  # scores that differ
_LARGE = 400  # entries of inputs, beyond which a case tells no more of what is affected


def blamed(session: Session, smallest: CaseResult, records: Sequence[CaseResult]) -> tuple[str, str]:
    """The step that is to blame, and what shows it: an idle step, another format, or the weights themselves; and what
    is affected."""
    if all(r.finding == "not finite" for r in records):
        step, seen = nonfinite_rows(session.records)
        if step:
            return step, seen
    wrong = [smallest, *(r for r in records if r.finding == "values")]
    step, seen = _step(session, smallest, wrong)
    words = affected(max(wrong, key=lambda r: min(r.case.size, _LARGE)), session.spec.heads > 1)
    return step, "; ".join(w for w in (seen, f"wrong are {words}" if words else "") if w)


def _step(session: Session, smallest: CaseResult, wrong: list[CaseResult]) -> tuple[str, str]:
    """The first one that one of the ways to look finds."""
    for look in (idle_step, other_function, coarser, other_values):
        step, seen = look(session, wrong)
        if step:
            return step, seen
    telling = next((r for r in (smallest, *sorted(wrong, key=lambda r: r.case.size)) if _differ(r)), smallest)
    weights = _weights(session, telling)
    if weights is None and needs_scores(session, wrong):
        return "weights", "all is right where queries are 0"
    if telling is not smallest and smallest.ratios is not None and not explains(smallest, _weights(session, smallest)):
        return "output", ""
    return first_wrong_step(session.spec, telling, weights, session.records)


def _differ(judged: CaseResult) -> bool:
    """Return whether some row has weights that differ: equal ones are right whatever keys are read."""
    if judged.ratios is None:
        return False
    run = traced(judged).run
    s = run.final_scores.midpoints()
    s = np.where(run.allowed & np.isfinite(s), s, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # rows without any key
        return bool((np.nanmax(s, axis=-1) - np.nanmin(s, axis=-1) > _APART).any())


def _weights(session: Session, judged: CaseResult) -> CaseResult | None:
    """Return the same case with the identity for values, where q, k, v are given and without a batch."""
    inputs = judged.case.inputs
    if "v" not in inputs or inputs["v"].ndim != 2 + (session.spec.heads > 1):
        return None
    v = inputs["v"]
    identity = np.broadcast_to(np.eye(v.shape[-2]), (*v.shape[:-2], v.shape[-2], v.shape[-2])).copy()
    given = {**inputs, "v": identity}
    return session.run_case(Case("structure", "", given)) if session.maker.admits(given) else None
