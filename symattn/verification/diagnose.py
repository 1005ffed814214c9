"""Which known mistakes explain everything that was seen: what is wrong, and also what is right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from symattn.arrays.ball import Ball
from symattn.attention.spec import Attention
from symattn.verification.judge import Judged, explains
from symattn.verification.mistakes import MISTAKES, Mistake
from symattn.verification.precision import Format, Precision
from symattn.verification.reference import Variant

_FIRST, _RIGHT = 4, 40  # wrong cases that a mistake must explain to be looked at further; right ones looked at


@dataclass(frozen=True)
class Cause:
    """Wrong cases, and the mistakes of which each alone explains them all; none, where nothing known does."""

    records: tuple[Judged, ...]
    mistakes: tuple[Mistake, ...]
    raises: bool = False  # whether they explain all calls that raised too

    @property
    def variant(self) -> Variant | None:
        """The one changed definition that gives what the function gave, where there is one."""
        only = self.mistakes[0].variant if len(self.mistakes) == 1 else None
        return only if only is not None and (only.steps or only.values != "v") else None


def causes(spec: Attention, precision: Precision, records: Sequence[Judged]) -> tuple[Cause, ...]:
    """What explains the wrong values and shapes among ``records``, one cause for each group of them."""
    wrong = sorted((r for r in records if r.finding in ("values", "not finite", "shape")), key=lambda r: r.case.size)
    right = sorted((r for r in records if r.finding is None), key=lambda r: r.case.size)
    if not wrong:
        return ()
    together = named(spec, precision, wrong, right, records)
    if together:
        return (Cause(tuple(wrong), together, _explain_errors(spec, precision, together, records)),)
    lost = [r for r in wrong if r.finding == "not finite"]
    overflow = _overflow(precision, lost, [r for r in records if r.ratios is not None]) if lost else None
    if overflow is None:
        return (Cause(tuple(wrong), ()),)
    rest = [r for r in wrong if r.finding != "not finite"]
    found = (Cause(tuple(lost), (overflow,)),)
    return found if not rest else (*found, Cause(tuple(rest), named(spec, precision, rest, right, records)))


def named(
    spec: Attention, precision: Precision, wrong: list[Judged], right: list[Judged], records: Sequence[Judged]
) -> tuple[Mistake, ...]:
    """The mistakes that explain every wrong case, contradict no right one, and raise where the function does."""
    raised = [r for r in records if r.finding == "raises"]
    others = [*wrong, *right[:_RIGHT], *raised[:_FIRST]]
    possible = [m for m in MISTAKES if _possible(spec, m, wrong[0])]
    survivors = [m for m in possible if False not in _answers(spec, precision, m, wrong[:_FIRST])]
    explaining = [m for m in survivors if _explains_all(_answers(spec, precision, m, others))]
    return tuple({m.cause: m for m in explaining}.values())


def _explain_errors(
    spec: Attention, precision: Precision, mistakes: tuple[Mistake, ...], records: Sequence[Judged]
) -> bool:
    """Whether every call that raised had shapes for which the mistake has no result."""
    raised = [r for r in records if r.finding == "raises"]
    return all(explains(spec, precision, r, m.variant) is True for m in mistakes for r in raised)


def _possible(spec: Attention, mistake: Mistake, judged: Judged) -> bool:
    """Whether the mistake changes a step that there is."""
    steps = {step.name for step in spec.pipeline(frozenset(judged.case.inputs))}
    return mistake.applies(spec) and (mistake.variant.values != "v" or bool(steps & mistake.variant.steps.keys()))


def _answers(spec: Attention, precision: Precision, mistake: Mistake, cases: Sequence[Judged]) -> Iterator[bool | None]:
    return (explains(spec, precision, judged, mistake.variant) for judged in cases)


def _explains_all(answers: Iterator[bool | None]) -> bool:
    """Whether none contradicts, and some show the mistake clearly. Stops at the first contradiction."""
    seen = False
    for answer in answers:
        if answer is False:
            return False
        seen = seen or answer is True
    return seen


def _overflow(precision: Precision, lost: list[Judged], seen: list[Judged]) -> Mistake | None:
    """The missing maximum: rows lose their numbers exactly where e^s leaves the range of some format."""
    for name in dict.fromkeys((precision.score.name, precision.input.name, "float16", "float32", "float64")):
        f = Format(name)
        if any(_must_be_lost(r, f).any() for r in lost) and all(_agrees(r, f) for r in seen):
            cause = (
                f"the largest score is not subtracted: e^s overflows in {name} for s above {log(f.max):.4g}, "
                f"and every e^s vanishes below {log(f.tiny):.4g}"
            )
            return Mistake("max", cause, Variant())
    return None


def _agrees(judged: Judged, f: Format) -> bool:
    """Rows that must be lost are wrong, rows that must be kept are right; of the others nothing is asked."""
    ratios = judged.ratios
    assert ratios is not None
    if judged.expected.run.output_step is not None:  # heads are mixed: the whole case is looked at
        lost, kept = _must_be_lost(judged, f).any(), _must_be_kept(judged, f).all()
        return bool(((ratios > 1).any() or not lost) and ((ratios <= 1).all() or not kept))
    wrong = np.asarray((ratios > 1).any(axis=-1))
    return bool(wrong[_must_be_lost(judged, f)].all() and not wrong[_must_be_kept(judged, f)].any())


def _row_maxima(judged: Judged) -> np.ndarray:
    run = judged.expected.run
    t = Ball.xp.where(run.allowed, run.final_scores, 0).midpoints()
    return np.asarray(np.where(run.allowed, t, -np.inf).max(axis=-1))


def _must_be_lost(judged: Judged, f: Format) -> np.ndarray:
    m = _row_maxima(judged)
    lost: np.ndarray = (m > log(f.max) + 1) | (np.isfinite(m) & (m < log(f.tiny) + log(2 * f.u) - 2))
    return lost


def _must_be_kept(judged: Judged, f: Format) -> np.ndarray:
    m = _row_maxima(judged)
    size = float(np.abs(judged.expected.run.values["v"].midpoints()).max(initial=1.0))
    n = judged.expected.run.allowed.shape[-1]
    kept: np.ndarray = (m < log(f.max) - log(n * max(size, 1.0)) - 1) & (m > log(f.tiny) + 1)
    return kept
