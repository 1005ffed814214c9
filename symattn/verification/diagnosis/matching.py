"""How much of what is wrong a mistake accounts for: its direction D = o_m − o beside the residual y − o, in float64.

The bound for each element says what cannot be. In half precision it is wide, and many mistakes are within it; roundings
are far smaller than their bound, though, so that the right mistake leaves next to nothing of the residual, and another
one leaves most of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from symattn.errors import SymattnError
from symattn.verification.diagnosis.screening import Screen
from symattn.verification.judge import traced
from symattn.verification.judged import Judged
from symattn.verification.reference import RIGHT, Variant
from symattn.verification.rules.mistake import Mistake

LITTLE = 0.1  # of the squared residual that a mistake which is named may leave
_ALIKE = 4  # times what the best one leaves: as good
_CASES = 24


def left(screen: Screen, cases: Sequence[Judged], variant: Variant) -> float:
    """The mean over the cases of ‖y − o_m‖² / ‖y − o‖², entries in units of what is legal; ∞ where nothing is told.

    Entries that are not finite say nothing here.
    """
    shares = [share for judged in spread(cases) for share in _left(screen, judged, variant)]
    return float(np.mean(shares)) if shares else float("inf")


def spread(cases: Sequence[Judged]) -> Sequence[Judged]:
    """No more than so many of them, from the smallest to the largest."""
    return cases[:: -(-len(cases) // _CASES)] if cases else cases


def _left(screen: Screen, judged: Judged, variant: Variant) -> Iterable[float]:
    got = judged.outcome.output
    try:
        wrong, right = (screen.run(judged, v)[0] for v in (variant, RIGHT))
    except (SymattnError, ValueError, IndexError, TypeError, KeyError):
        return
    if got is None or not got.shape == wrong.shape == right.shape:
        return
    with np.errstate(all="ignore"):
        unit = np.where(traced(judged).allowed > 0, traced(judged).allowed, np.inf)
        before, after = ((got - right) / unit) ** 2, ((got - wrong) / unit) ** 2
    told = np.isfinite(before) & np.isfinite(after)
    if told.any() and before[told].sum() > 0:
        yield float(after[told].sum() / before[told].sum())


def best(screen: Screen, cases: Sequence[Judged], mistakes: Iterable[Mistake], slack: float = 1) -> list[Mistake]:
    """The mistakes that leave little, and no more than a few times what the best one leaves; the best first.

    ``slack`` multiplies both, where few cases are a first look.
    """
    found = ranked(screen, cases, mistakes)
    return [m for share, m in found if share <= slack * min(LITTLE, _ALIKE * found[0][0] + 1e-9)]


def ranked(screen: Screen, cases: Sequence[Judged], mistakes: Iterable[Mistake]) -> list[tuple[float, Mistake]]:
    """The mistakes with the share that each leaves, the smallest first; those that leave as much keep their order."""
    found = [(float(f"{left(screen, cases, m.variant):.2g}"), m) for m in mistakes]
    return sorted(found, key=lambda x: x[0])
