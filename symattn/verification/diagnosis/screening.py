"""Mistakes tried in float64, before balls decide: what cannot be, by far, is put aside at little cost.

A variant of the definition runs on NumPy arrays, and its output is compared with what the function gave. The slack is
generous: several times what is legal for the right definition, and no less than a rough bound for the variant's own
scores and weights. So a mistake that is put aside here is none that balls would accept; what is left is judged there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from symattn.bounds.case_result import CaseResult, Part, largest

if TYPE_CHECKING:
    from symattn.verification.diagnosis.causes import Known, Outputs, Search

Array = np.ndarray
T = TypeVar("T")
M = TypeVar("M", bound="Known")


@dataclass
class ComputedValues(Generic[T]):
    """Values computed from objects, by their ``id``; each object is stored too, so that no other takes its ``id``."""

    results: dict[tuple[int, ...], tuple[tuple[object, ...], T]] = field(default_factory=dict)

    def once(self, of: tuple[object, ...], compute: Callable[[], T], keep: bool = True) -> T:
        """Return what is computed of these objects, which is computed again only if it was not kept."""
        key = tuple(map(id, of))
        if key in self.results:
            return self.results[key][1]
        result = compute()
        if keep:
            self.results[key] = of, result
        return result


def compared(got: Array, wrong: Array, right: Array, ratios: Array | None, slack: Array) -> bool | None:
    """Return False where ``got`` is no output of a mistake up to the slack, True where it is and the right one is none.

    None where nothing can be told. ``ratios`` are errors as parts of what is legal; without them the shape is wrong.
    """
    result = np.isfinite(wrong) & np.isfinite(slack)
    with np.errstate(all="ignore"):
        if (~(np.abs(got - wrong) <= slack) & result).any():
            return False
        if ratios is None:
            return True if result.any() else None
        apart = ~(np.abs(right - wrong) <= slack)
    return True if ((ratios > 1) & result & apart).any() else None


# -- how much of what is wrong a mistake accounts for ------------------------------------------------------------------
# Its direction D = o_m − o beside the residual y − o. The bound for each element says what cannot be. In half precision
# it is wide, and many mistakes are within it; roundings are far smaller than their bound, though, so that the right
# mistake leaves next to nothing of the residual, and another one leaves most of it.
LITTLE = 0.1  # of the squared residual that a mistake which is named may leave
_ALIKE = 4  # times what the best one leaves: as good
_CASES, _FIRST = 24, 3
_PARALLEL = 0.98  # of the square of the cosine of two directions: they are one


def left(search: Search[M], cases: Sequence[CaseResult], mistake: M) -> float:
    """The mean over the cases of ‖y − o_m‖² / ‖y − o‖², entries in units of what is legal; ∞ where nothing is told.

    Entries that are not finite say nothing here.
    """
    pairs = (pair for judged in spread(cases) if (pair := _errors(search, judged, mistake)) is not None)
    with np.errstate(over="ignore"):  # what is too large to be squared leaves everything
        parts = [(e / size, d / size) for e, d in pairs if (size := np.abs(e).max(initial=0.0))]
        shares = [float(((e - d) ** 2).sum() / (e**2).sum()) for e, d in parts]
    return float(np.mean(shares)) if shares else float("inf")


def spread(cases: Sequence[CaseResult]) -> Sequence[CaseResult]:
    """No more than so many of them, from the smallest to the largest."""
    return cases[:: -(-len(cases) // _CASES)] if cases else cases


def _errors(search: Search[M], judged: CaseResult, mistake: M) -> tuple[Array, Array] | None:
    """y − o and o_m − o of all outputs, over what is legal; 0 where one is no number, None where shapes differ."""
    outputs = search.outputs(judged, mistake)
    pairs = search.meant(judged, outputs) if outputs is not None else []
    if not pairs or any(p.got is None or not p.got.shape == a.shape == p.expected.allowed.shape for p, a in pairs):
        return None
    errors = []
    with np.errstate(all="ignore"):
        for part, wrong in pairs:
            near, allowed = part.expected.near, part.expected.allowed
            unit = np.where(allowed > 0, allowed, np.inf if (allowed > 0).any() else 1.0)
            errors.append(np.stack([((a - near) / unit).ravel() for a in (part.got, wrong)]))
    both = np.concatenate(errors, axis=1)
    error, direction = np.where(np.isfinite(both).all(axis=0), both, 0.0)
    return error, direction


def best(search: Search[M], cases: Sequence[CaseResult], mistakes: Iterable[M]) -> list[M]:
    """The mistakes that leave little, and no more than a few times what the best one leaves; the best first. A few
    cases are a first look."""
    for some, slack in ((cases[:: -(-len(cases) // _FIRST) or 1], 5), (cases, 1)):
        result = ranked(search, some, mistakes)
        mistakes = [m for share, m in result if share <= slack * min(LITTLE, _ALIKE * result[0][0] + 1e-9)]
    return [*mistakes]


def ranked(search: Search[M], cases: Sequence[CaseResult], mistakes: Iterable[M]) -> list[tuple[float, M]]:
    """The mistakes with the share that each leaves, the smallest first; those that leave as much keep their order."""
    result = [(float(f"{left(search, cases, m):.2g}"), m) for m in mistakes]
    return sorted(result, key=lambda x: x[0])


def firsts(
    search: Search[M], cases: Sequence[CaseResult], mistakes: Sequence[M], count: int
) -> tuple[list[M], list[M]]:
    """So many mistakes that take much of r = y − o away, the most first, each in another direction; and all others.

    With the number θ = ⟨D, r⟩/‖D‖² that fits best, D = o_m − o takes away ⟨D, r⟩²/(‖D‖² ‖r‖²): 1 where y lies on the
    line through o and o_m. Of two mistakes at once the larger one takes most.
    """
    shares, chosen = [], list[tuple[M, Array]]()
    for mistake in mistakes:
        errors = [_errors(search, judged, mistake) for judged in cases]
        if errors and not any(pair is None for pair in errors):
            r, d = (_of_length_one(np.concatenate(e)) for e in zip(*filter(None, errors), strict=True))
            shares.append((float(f"{(d @ r) ** 2:.3g}"), mistake, d))
    in_order = sorted(shares, key=lambda x: -x[0])
    for _, mistake, d in in_order:
        if len(chosen) < count and d.any() and all((d @ other) ** 2 < _PARALLEL for _, other in chosen):
            chosen.append((mistake, d))
    first = [mistake for mistake, _ in chosen]
    return first, [mistake for _, mistake, _ in in_order if all(mistake is not m for m in first)]


def _of_length_one(x: Array) -> Array:
    largest = np.abs(x).max(initial=0.0)
    x = x / largest if largest > 0 else x
    return x / np.sqrt(x @ x) if largest > 0 else x


# -- which mistakes say the same ---------------------------------------------------------------------------------------
#: Words of a mistake that has a size of its own.
SIZED = re.compile(r"(blocks?|tiles?|first|parts?|merged) (of )?\d+|\d+ (slots|in all|parts|keys)|(//|%) \d+")


def are_alike(one: Outputs, other: Outputs) -> bool:
    """Return whether outputs are the same up to roundings of float64."""
    if one is None or other is None:
        return one is other
    near = (np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True) for a, b in zip(one, other, strict=True))
    return [a.shape for a in one] == [b.shape for b in other] and all(near)


def miss(part: Part, wrong: np.ndarray) -> float:
    got = part.got
    if got is None or got.shape != wrong.shape or not np.isfinite(wrong).all():
        return float("inf")
    return float(np.abs(got - wrong).max(initial=0.0)) / max(largest(part.expected.near), 1e-300)


def is_finite(judged: CaseResult) -> bool:
    """Return whether every output has come, and is finite."""
    return all(part.got is not None and bool(np.isfinite(part.got).all()) for part in judged.parts)


def plainest(mistakes: tuple[M, ...]) -> tuple[M, ...]:
    """One for each cause; of those that differ in brackets, or in the sizes at which they are made, the first. What
    holds everywhere comes before what has a size of its own, and stands alone."""
    everywhere = tuple(m for m in mistakes if not SIZED.search(m.cause))
    mistakes = everywhere or mistakes
    return tuple({m.cause.partition(" (")[0].partition(", where ")[0]: m for m in reversed(mistakes)}.values())[::-1]


# -- two mistakes at once, likely ones first: neither need explain a case alone ----------------------------------------
_PARTS, _ALONE = 30, 3  # mistakes of which pairs are tried, and those beside which all others are tried at first
_SMALLEST, _APART = 12, 3  # of the smallest wrong cases every third one tells what explains some alone
_PAIRED, _LARGE = 2, 400  # wrong cases by which pairs are sought: of at most so many entries, with the most outputs
_FIRSTS, _NEAREST = 6, 2  # mistakes beside which others are tried, and those that are tried in their place


def likely_pairs(search: Search[M]) -> Iterator[list[M]]:
    """Yield groups of pairs: each mistake that explains some cases alone, with what leaves least beside it; each that
    accounts for most, so as well, and that with what leaves least in the place of the first; at last all others with
    any, as far as the effort goes: where one changes what the other takes, neither need account for much."""
    finite = [r for r in search.wrong if is_finite(r) and r.ratios is not None and r.case.size <= _LARGE]
    few = sorted(finite, key=_most_outputs_first)[:_PAIRED]
    every = {id(m): m for m in (*search.possible, *search.further())}
    larger, smaller = firsts(search, few, list(every.values()), _FIRSTS)
    parts = list(search.distinct(_parts(search, every.values()), few, every=True))
    for first in parts[:_ALONE]:
        yield _beside(search, first, every, few)[0]
    search.begin()  # what explains some alone, of many mistakes, is not taken from those that account for most
    for first in larger:
        pairs, nearest = _beside(search, first, every, few)
        for other in nearest:
            pairs += _beside(search, other, every, few)[0]
        yield pairs
    yield [both for pair in combinations(parts[:_PARTS], 2) for both in search.combined(*pair)]
    for first in (*parts, *smaller):
        yield _beside(search, first, every, few)[0]


def _beside(search: Search[M], first: M, every: dict[int, M], few: Sequence[CaseResult]) -> tuple[list[M], list[M]]:
    """The pairs of a mistake with others that leave little, and the others of the pairs that leave least.

    It is taken from ``every``, once its pairs are tried.
    """
    if search.over or every.pop(id(first), None) is None:
        return [], []
    pairs = [(both, m) for m in (first, *every.values()) for both in search.combined(first, m)]
    search.effort.spend(0, search.session.subject.costs * len(pairs))
    beside = {id(both): m for both, m in pairs}
    in_order = ranked(search, few[:1], [both for both, _ in pairs])
    likely = [both for share, both in in_order if share <= LITTLE]
    return best(search, few, likely), [beside[id(both)] for _, both in in_order[:_NEAREST]]


def _parts(search: Search[M], mistakes: Iterable[M]) -> list[M]:
    """The mistakes that explain some of a few small cases alone, the most first."""
    few = search.wrong[:_SMALLEST:_APART]
    counts = [(sum(search.screened(r, m) is True for r in few), m) for m in mistakes]
    return [m for count, m in sorted(counts, key=lambda x: -x[0]) if count]


def _most_outputs_first(judged: CaseResult) -> tuple[int, int]:
    return -sum(part.expected.allowed.size for part in judged.parts), judged.case.size
