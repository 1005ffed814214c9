"""Which step is to blame, found by making steps idle: where a bias of zeros makes all right, the bias was wrong.

Nothing is supposed of the mistake. Each step that an input can make idle is made so in wrong cases; the first one
without which they are right is named. A step that no input reaches is told by sizes or numbers at which it has no
effect: scores that are all 0, far below a cap, or of a key that stands where the query does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from symattn.attention.positions.fields import Rotary
from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.target import Inputs

if TYPE_CHECKING:
    from symattn.verification.engine import Session

_CASES = 3  # wrong cases that must all become right
_FAR = 1e4  # below all scores
_SMALL = 2.0**-12
Change = Callable[[np.ndarray], np.ndarray]

_ZERO, _ONE = np.zeros_like, np.ones_like


def _each(change: Change, names: str) -> dict[str, Change]:
    return dict.fromkeys(names.split(), change)


#: By step: what is said, and the inputs that make it idle.
_IDLE: tuple[tuple[str, str, dict[str, Change]], ...] = (
    ("dropout", "nothing is dropped", _each(_ONE, "drop")),
    ("sink", "the sink takes nothing", _each(lambda a: np.full_like(a, -_FAR), "sink")),
    ("mask", "nothing is masked", _each(lambda a: _ONE(a) if a.dtype == bool else _ZERO(a), "mask")),
    ("mask", "nothing is padding", _each(_ONE, "keep")),
    ("mask", "there is one document", _each(_ZERO, "doc doc_q doc_k")),
    ("bias", "the bias is 0", _each(_ZERO, "bias")),
    ("bias", "all slopes are 0", _each(_ZERO, "slopes")),
    ("bias", "the biases of buckets are 0", _each(_ZERO, "b_rel")),
    ("position", "nothing is rotated", _each(_ONE, "cos cos_q") | _each(_ZERO, "sin sin_q")),
    ("position", "all positions are 0", _each(_ZERO, "positions positions_q")),
    ("norm", "gains are 1 and biases 0", _each(_ONE, "g_q g_k") | _each(_ZERO, "beta_q beta_k")),
    ("scale", "the given scale is 1", _each(_ONE, "scale")),
    ("output", "the bias of the output is 0", _each(_ZERO, "b_o")),
    ("project", "biases are 0", _each(_ZERO, "b_q b_k b_v b_in")),
)


def idle_step(session: Session, wrong: list[CaseResult]) -> tuple[str, str]:
    """The step, and in words without what all is right; ("", "") where no idle step makes it so."""
    cases = [r for r in wrong if r.ratios is not None][:_CASES]
    if not cases:
        return "", ""
    for step, words, changes in _IDLE:
        if session.effort.over:
            return "", ""
        if _right(session, cases, lambda given, c=changes: _changed(given, c)):  # type: ignore[misc]
            return step, f"all is right where {words}"
    if session.spec.softcap is not None and _right(session, cases, _lowered):
        return "softcap", "all is right where scores are far below the cap"
    if isinstance(session.spec.position, Rotary) and _right_in_place(session):
        return "position", "all is right where the key stands where the query does"
    return "", ""


def needs_scores(session: Session, wrong: list[CaseResult]) -> bool:
    """Return whether all is right where queries are 0: then scores, or what they are made of, are to blame."""
    cases = [r for r in wrong if r.ratios is not None][:_CASES]
    return bool(cases) and _right(session, cases, lambda inputs: _changed(inputs, _each(_ZERO, "q w_q")))


def _changed(given: Inputs, changes: dict[str, Change]) -> dict[str, np.ndarray] | None:
    result = {n: changes[n](a) if n in changes else a for n, a in given.items()}
    same = all(np.array_equal(result[n], given[n]) for n in given)
    return None if same else result


def _lowered(given: Inputs) -> dict[str, np.ndarray] | None:
    return _changed(given, _each(lambda a: a * _SMALL, "q w_q"))


def _right(session: Session, cases: list[CaseResult], change: Callable[[Inputs], dict[str, np.ndarray] | None]) -> bool:
    """Return whether the change makes something idle and all the cases right, though they could still show a fault."""
    result = False
    for judged in cases:
        inputs = change(judged.case.inputs)
        if inputs is None or not session.maker.admits(inputs):
            return False
        rounded = session.precision.input.rounded
        inputs = {n: a if a.dtype.kind in "biu" else rounded(a) for n, a in inputs.items()}
        case_result = session.run_case(Case(judged.case.group, judged.case.name, inputs, judged.case.memory))
        if case_result.finding is not None or case_result.outcome.late:
            return False
        result = result or case_result.decisive
    return result


def _right_in_place(session: Session) -> bool:
    """One query, and beside its own key one of zeros, whose score is 0 wherever it stands."""
    seen = False
    for judged in _in_place(session):
        if judged.finding is not None:
            return False
        seen = seen or judged.decisive
    return seen


def _in_place(session: Session) -> Iterator[CaseResult]:
    rng = np.random.default_rng((session.seed, 3))
    if session.maker.square:
        return
    for d_k in (2, 4, 8):
        q, k = rng.integers(-2, 3, (1, d_k)).astype(float), rng.integers(-2, 3, (2, d_k)).astype(float)
        k[0] = 0
        inputs = session.maker.from_heads(q, k, np.array([[0.0], [1.0]]))
        if inputs is not None:
            yield session.run_case(Case("in place", f"d_k = {d_k}", inputs))
