"""Which known mistakes explain everything that was seen, what is wrong and what is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from symattn.arrays.precision import Precision
from symattn.errors import SymattnError, Undecided
from symattn.verification.definitions.judging import Judged, expected, explains
from symattn.verification.definitions.subject import Mistake, Subject

_FIRST, _RIGHT = 4, 30  # wrong cases that a mistake must explain to be looked at further; right ones looked at


@dataclass(frozen=True)
class Cause:
    """Wrong cases, the outputs that are meant (None: all), and the mistakes of which each alone explains them."""

    records: tuple[Judged, ...]
    mistakes: tuple[Mistake, ...]
    among: frozenset[int] | None = None


def causes(subject: Subject, precision: Precision, records: Sequence[Judged]) -> tuple[Cause, ...]:
    """One cause for all that is wrong; else one for each output, where that explains them all."""
    wrong = sorted((r for r in records if r.finding in ("values", "not finite", "shape")), key=lambda r: r.case.size)
    if not wrong:
        return ()
    whole = Cause(tuple(wrong), _named(subject, precision, wrong, records, None))
    outputs = sorted(frozenset().union(*(r.wrong for r in wrong)))
    if whole.mistakes or len(outputs) < 2 or any(not r.ratios for r in wrong):
        return (whole,)
    parts = [_of_output(subject, precision, wrong, records, k) for k in outputs]
    return tuple(parts) if all(p.mistakes for p in parts) else (whole,)


def _of_output(
    subject: Subject, precision: Precision, wrong: Sequence[Judged], records: Sequence[Judged], k: int
) -> Cause:
    mine, among = [r for r in wrong if k in r.wrong], frozenset([k])
    return Cause(tuple(mine), _named(subject, precision, mine, records, among), among)


def _named(
    subject: Subject,
    precision: Precision,
    wrong: Sequence[Judged],
    records: Sequence[Judged],
    among: frozenset[int] | None,
) -> tuple[Mistake, ...]:
    """Those that explain every wrong case, and contradict no right one."""
    others = [r for r in records if r.finding is None or (r not in wrong and r.ratios)]
    right = sorted(others, key=lambda r: r.case.size)
    cases = [*wrong, *right[:_RIGHT]]
    for mistakes in (subject.mistakes, subject.others):
        likely = [m for m in mistakes if all(_nearer(subject, r, m, among) for r in wrong[:_FIRST])]
        found = [m for m in likely if _explains_all(subject, precision, m, cases, among)]
        if found:
            return tuple({m.cause: m for m in found}.values())
    return ()


def _explains_all(
    subject: Subject, precision: Precision, mistake: Mistake, cases: Sequence[Judged], among: frozenset[int] | None
) -> bool:
    """Whether none contradicts, and some show the mistake clearly."""
    seen = False
    for judged in cases:
        answer = explains(subject, precision, judged, mistake, among)
        if answer is False:
            return False
        seen = seen or answer is True
    return seen


def _nearer(subject: Subject, judged: Judged, mistake: Mistake, among: frozenset[int] | None) -> bool:
    """Whether what was got is, where it is worst, no further from the mistake in float64 than from the right value.

    A mistake that explains it is nearer; this is fast, and spares the others a proof that they do not.
    """
    if not judged.ratios or not mistake.exact:
        return True
    of, at = judged.where
    got = judged.got[of]
    if got is None or (among is not None and of not in among):
        return True
    arrays = {n: a if a.dtype.kind in "biu" else a.astype(np.float64) for n, a in judged.case.inputs.items()}
    try:
        with np.errstate(all="ignore"):
            wrong = np.asarray(subject.run(mistake.run, arrays)[of])
    except (SymattnError, ValueError, IndexError, TypeError, ZeroDivisionError, KeyError):
        return True
    if wrong.shape != got.shape or not np.isfinite([wrong[at], got[at], judged.expected[of].near[at]]).all():
        return wrong.shape == got.shape
    return bool(abs(got[at] - wrong[at]) <= abs(got[at] - judged.expected[of].near[at]))


def coarser(subject: Subject, precision: Precision, wrong: Sequence[Judged]) -> str:
    """The widest format narrower than the inputs' whose arithmetic could make these errors; empty where none could."""
    for name in ("float32", "float16", "bfloat16"):
        narrow = Precision.of(name)
        if narrow.input.u > precision.input.u and all(_could(subject, narrow, judged) for judged in wrong):
            return name
    return ""


def _could(subject: Subject, narrow: Precision, judged: Judged) -> bool:
    if not judged.ratios:
        return False
    try:
        bounds = expected(subject, judged.case.inputs, narrow, subject.ways)
    except Undecided:  # rounding that rough could change which numbers are compared at all
        return False
    sharp = all(b.decisive for b in bounds)
    return sharp and all(a is not None and (b.ratios(a) <= 1).all() for a, b in zip(judged.got, bounds, strict=False))
