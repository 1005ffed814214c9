"""Which known mistakes explain everything that was seen, what is wrong and what is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from symattn.arrays.precision import Precision
from symattn.errors import SymattnError, Undecided
from symattn.verification.definitions.judging import Judged, expected, explains
from symattn.verification.definitions.subject import Mistake, Subject
from symattn.verification.effort import Effort

_FIRST, _RIGHT = 4, 30  # wrong cases that a mistake must explain to be looked at further; right ones looked at
_RUNS = 20_000  # runs in float64 for each group of cases, see ``effort``
_BALLS = 50  # such runs, that one in balls takes as long as


@dataclass(frozen=True)
class Cause:
    """Wrong cases, the outputs that are meant (None: all), and the mistakes of which each alone explains them.

    ``cut`` says that not all known mistakes were tried.
    """

    records: tuple[Judged, ...]
    mistakes: tuple[Mistake, ...]
    among: frozenset[int] | None = None
    cut: bool = False


def causes(
    subject: Subject, precision: Precision, records: Sequence[Judged], seconds: float = inf
) -> tuple[Cause, ...]:
    """One cause for all that is wrong; else one for each output, where that explains them all.

    The work is counted, as ``effort`` does; ``seconds`` are an upper limit.
    """
    wrong = sorted((r for r in records if r.finding in ("values", "not finite", "shape")), key=lambda r: r.case.size)
    if not wrong:
        return ()
    limit = Effort(inf, seconds)

    def named(mine: list[Judged], among: frozenset[int] | None) -> Cause:
        search = _Search(subject, precision, among, Effort(_RUNS, limit.left))
        return Cause(tuple(mine), search.named(mine, records), among, search.cut)

    whole = named(wrong, None)
    outputs = sorted(frozenset().union(*(r.wrong for r in wrong)))
    if whole.mistakes or len(outputs) < 2 or any(not r.ratios for r in wrong):
        return (whole,)
    parts = [named([r for r in wrong if k in r.wrong], frozenset([k])) for k in outputs]
    return tuple(parts) if all(p.mistakes for p in parts) else (whole,)


@dataclass
class _Search:
    """What is tried for one group of cases; ``cut`` once the effort was spent before all had been tried."""

    subject: Subject
    precision: Precision
    among: frozenset[int] | None
    effort: Effort
    cut: bool = False

    def named(self, wrong: Sequence[Judged], records: Sequence[Judged]) -> tuple[Mistake, ...]:
        """Those that explain every wrong case, and contradict no right one."""
        others = [r for r in records if r.finding is None or (r not in wrong and r.ratios)]
        right = sorted(others, key=lambda r: r.case.size)
        cases = [*wrong, *right[:_RIGHT]]
        for mistakes in (self.subject.mistakes, self.subject.others):
            likely = [m for m in mistakes if all(self._nearer(r, m) for r in wrong[:_FIRST])]
            found = [m for m in likely if self._explains_all(m, cases)]
            if found:
                return tuple({m.cause: m for m in found}.values())
        return ()

    def _explains_all(self, mistake: Mistake, cases: Sequence[Judged]) -> bool:
        """Whether none contradicts, and some show the mistake clearly; not where the effort is spent before that."""
        seen = False
        for judged in cases:
            if self.effort.over:
                self.cut = True
                return False
            self.effort.spend(_BALLS * judged.case.size, _BALLS)
            answer = explains(self.subject, self.precision, judged, mistake, self.among)
            if answer is False:
                return False
            seen = seen or answer is True
        return seen

    def _nearer(self, judged: Judged, mistake: Mistake) -> bool:
        """Whether what was got is, where it is worst, no further from the mistake in float64 than from the right value.

        A mistake that explains it is nearer, and has its shapes; this is fast, and spares the others a proof that they
        do not.
        """
        if not mistake.exact or judged.outcome.output is None:
            return True
        self.effort.spend(judged.case.size)
        arrays = {n: a if a.dtype.kind in "biu" else a.astype(np.float64) for n, a in judged.case.inputs.items()}
        try:
            with np.errstate(all="ignore"):
                wrong = [np.asarray(a) for a in self.subject.run(mistake.run, arrays)]
        except (SymattnError, ValueError, IndexError, TypeError, ZeroDivisionError, KeyError):
            return True
        return self._shaped(judged, wrong) and (not judged.ratios or self._near(judged, wrong))

    def _shaped(self, judged: Judged, wrong: Sequence[np.ndarray]) -> bool:
        """Whether the outputs that are meant have the shapes of the mistake's."""
        shapes = [a.shape if a is not None else None for a in judged.got]
        return all(shapes[k : k + 1] == [a.shape] for k, a in enumerate(wrong) if self.among is None or k in self.among)

    def _near(self, judged: Judged, wrong: Sequence[np.ndarray]) -> bool:
        of, at = judged.where
        got = judged.got[of]
        if got is None or (self.among is not None and of not in self.among):
            return True
        mine, right = wrong[of][at], judged.expected[of].near[at]
        if not np.isfinite([mine, got[at], right]).all():
            return True
        return bool(abs(got[at] - mine) <= abs(got[at] - right))


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
