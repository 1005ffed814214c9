"""Which known mistakes explain everything that was seen, what is wrong and what is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from symattn.arrays.precision import Precision
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
    right = sorted(
        (r for r in records if r.finding is None or (r not in wrong and r.ratios)), key=lambda r: r.case.size
    )

    def answers(mistake: Mistake, cases: Sequence[Judged]) -> list[bool | None]:
        found: list[bool | None] = []
        for judged in cases:
            found.append(explains(subject, precision, judged, mistake, among))
            if found[-1] is False:
                break
        return found

    first = [m for m in subject.mistakes if False not in answers(m, wrong[:_FIRST])]
    told = [(m, answers(m, [*wrong, *right[:_RIGHT]])) for m in first]
    return tuple({m.cause: m for m, found in told if False not in found and True in found}.values())


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
    bounds = expected(subject, judged.case.inputs, narrow, subject.ways)
    sharp = all(b.decisive for b in bounds)
    return sharp and all(a is not None and (b.ratios(a) <= 1).all() for a, b in zip(judged.got, bounds, strict=False))
