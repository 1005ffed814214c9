"""How much of what is wrong a mistake accounts for: its direction D = o_m − o beside the residual y − o, in float64.

The bound for each element says what cannot be. In half precision it is wide, and many mistakes are within it; roundings
are far smaller than their bound, though, so that the right mistake leaves next to nothing of the residual, and another
one leaves most of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from symattn.bounds.case_result import UNFIT, CaseResult
from symattn.bounds.judge import traced
from symattn.bounds.mistake import Mistake
from symattn.bounds.reference import RIGHT, Change, Variant
from symattn.verification.diagnosis.screening import Array, Screen
from symattn.verification.rules.forbidding import SOME_KEYS

C = TypeVar("C")

LITTLE = 0.1  # of the squared residual that a mistake which is named may leave
_ALIKE = 4  # times what the best one leaves: as good
_CASES, _FIRST = 24, 3


def left(screen: Screen, cases: Sequence[CaseResult], variant: Variant) -> float:
    """The mean over the cases of ‖y − o_m‖² / ‖y − o‖², entries in units of what is legal; ∞ where nothing is told.

    Entries that are not finite say nothing here.
    """
    shares = [share for judged in spread(cases) for share in _left(screen, judged, variant)]
    return float(np.mean(shares)) if shares else float("inf")


def spread(cases: Sequence[CaseResult]) -> Sequence[CaseResult]:
    """No more than so many of them, from the smallest to the largest."""
    return cases[:: -(-len(cases) // _CASES)] if cases else cases


def _left(screen: Screen, judged: CaseResult, variant: Variant) -> Iterable[float]:
    got = judged.outcome.output
    try:
        wrong, right = (screen.run(judged, v)[0] for v in (variant, RIGHT))
    except UNFIT:
        return
    if got is None or not got.shape == wrong.shape == right.shape:
        return
    share = share_left(got, wrong, right, traced(judged).allowed)
    if share is not None:
        yield share


def share_left(got: Array, wrong: Array, right: Array, allowed: Array) -> float | None:
    """Return ‖y − o_m‖² / ‖y − o‖² of the finite entries, in units of what is legal; None where nothing is told."""
    with np.errstate(all="ignore"):
        unit = np.where(allowed > 0, allowed, np.inf)
        before, after = ((got - right) / unit) ** 2, ((got - wrong) / unit) ** 2
    result = np.isfinite(before) & np.isfinite(after)
    return float(after[result].sum() / before[result].sum()) if before[result].sum() > 0 else None


def best(screen: Screen, cases: Sequence[CaseResult], mistakes: Iterable[Mistake]) -> list[Mistake]:
    """The mistakes that leave little, and no more than a few times what the best one leaves; the best first. A few
    cases are a first look."""
    for some, slack in ((cases[:: -(-len(cases) // _FIRST) or 1], 5), (cases, 1)):
        result = ranked(screen, some, mistakes)
        mistakes = [m for share, m in result if share <= slack * min(LITTLE, _ALIKE * result[0][0] + 1e-9)]
    return [*mistakes]


def ranked(screen: Screen, cases: Sequence[CaseResult], mistakes: Iterable[Mistake]) -> list[tuple[float, Mistake]]:
    """The mistakes with the share that each leaves, the smallest first; those that leave as much keep their order."""
    result = [(float(f"{left(screen, cases, m.variant):.2g}"), m) for m in mistakes]
    return sorted(result, key=lambda x: x[0])


def shares(screen: Screen, cases: Sequence[CaseResult], mistakes: Sequence[Mistake]) -> list[tuple[float, Mistake]]:
    """How much of r = y − o each direction D = o_m − o takes away with the number θ that fits it best, the most first.

    By least squares θ = ⟨D, r⟩/‖D‖², and what is taken is ⟨D, r⟩²/(‖D‖² ‖r‖²): 1 where y lies on the line through o
    and o_m. Of two mistakes at once the larger one takes most.
    """
    r = _stacked([_weighed(screen, judged, None) for judged in cases])
    result = []
    for mistake in mistakes if r.any() else ():
        d = _stacked([_weighed(screen, judged, mistake.variant) for judged in cases])
        if share := taken(d, r):
            result.append((share, mistake))
    return sorted(result, key=lambda x: -x[0])


def taken(d: np.ndarray, r: np.ndarray) -> float:
    """Return the share of r that the direction takes away; 0 where there is nothing to compare."""
    some = d.shape == r.shape and d.any() and r.any()
    return float(f"{(d @ r) ** 2 / ((d @ d) * (r @ r)):.3g}") if some else 0.0


def _stacked(parts: Sequence[np.ndarray | None]) -> np.ndarray:
    """One vector of all cases, of which the largest entry is 1; none where a case has nothing."""
    result = [p for p in parts if p is not None]
    whole = np.concatenate(result) if result and len(result) == len(parts) else np.zeros(0)
    largest = np.abs(whole).max(initial=0.0)
    return whole / largest if largest > 0 else whole


def _weighed(screen: Screen, judged: CaseResult, variant: Variant | None) -> np.ndarray | None:
    """Return the output, or a variant's, less the right one, in units of the legal error."""
    try:
        right = screen.run(judged, RIGHT)[0]
        y = judged.outcome.output if variant is None else screen.run(judged, variant)[0]
    except UNFIT:
        return None
    got, allowed = judged.outcome.output, traced(judged).allowed
    if y is None or got is None or not y.shape == got.shape == right.shape == allowed.shape:
        return None
    with np.errstate(all="ignore"):
        d = (y - right) / allowed
        result = np.isfinite(right) & np.isfinite(got) & (allowed > 0)
    return None if not np.isfinite(d[result]).all() else np.where(result, d, 0.0).ravel()


# -- two mistakes together ---------------------------------------------------------------------------------------------
def combined(first: Mistake, second: Mistake) -> Mistake | None:
    """Both at once; None where they change the same step."""
    a, b = first.variant, second.variant
    steps = _steps(a, b)
    if steps is None or (a.values != "v" and b.values != "v") or first.cause == second.cause:
        return None
    variant = Variant(
        steps, a.rows and b.rows, a.values if a.values != "v" else b.values,
        _both(a.spec, b.spec, lambda f, g: lambda spec: g(f(spec))),
        _both(a.inputs, b.inputs, lambda f, g: lambda spec, inputs: g(spec, f(spec, inputs))),
    )  # fmt: skip
    return Mistake(first.step, f"{first.cause}; and {second.cause}", variant)


def _steps(a: Variant, b: Variant) -> dict[str, Change] | None:
    """The steps of both. Weights of the keys that a wrong mask has left give way to other weights."""
    merged = dict(a.steps)
    for name, change in b.steps.items():
        if name in merged and change is not SOME_KEYS:
            if merged[name] is not SOME_KEYS:
                return None
        elif name in merged:
            continue
        merged[name] = change
    return merged


def _both(a: C | None, b: C | None, joined: Callable[[C, C], C]) -> C | None:
    return joined(a, b) if a and b else a or b
