"""Two mistakes at once, likely ones first: neither need explain a case alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, TypeVar

from symattn.bounds.case_result import CaseResult
from symattn.verification.diagnosis.screening import LITTLE, best, firsts, is_finite, ranked

if TYPE_CHECKING:
    from symattn.verification.diagnosis.causes import Known, Search

M = TypeVar("M", bound="Known")
_PARTS = 30  # mistakes of which pairs are tried
_PAIRED, _LARGE = 2, 400  # wrong cases by which pairs are sought: of at most so many entries, with the most outputs
_FIRSTS, _NEAREST = 6, 2  # mistakes beside which others are tried, and those that are tried in their place


def likely_pairs(search: Search[M]) -> Iterator[list[M]]:
    """Yield groups of pairs: each mistake that alone accounts for most, with what leaves least beside it, and that with
    what leaves least in the place of the first; at last those that each explain something alone."""
    finite = [r for r in search.wrong if is_finite(r) and r.ratios is not None and r.case.size <= _LARGE]
    few = sorted(finite, key=_most_outputs_first)[:_PAIRED]
    every, before = [*search.possible, *search.further()], set[int]()
    for first in firsts(search, few, every, _FIRSTS):
        if search.over:
            return
        pairs, nearest = _beside(search, first, every, few)
        for other in nearest:
            if id(other) not in before and not search.over:
                before.add(id(other))
                pairs += _beside(search, other, every, few)[0]
        yield pairs
    yield [both for pair in combinations(_parts(search), 2) if (both := search.combined(*pair)) is not None]


def _beside(search: Search[M], first: M, every: Sequence[M], few: Sequence[CaseResult]) -> tuple[list[M], list[M]]:
    """The pairs of a mistake with others that leave little, and the others of the pairs that leave least."""
    pairs = [(both, m) for m in every if (both := search.combined(first, m)) is not None]
    search.effort.spend(0, search.session.subject.costs * len(pairs))
    beside = {id(both): m for both, m in pairs}
    in_order = ranked(search, few[:1], [both for both, _ in pairs])
    likely = [both for share, both in in_order if share <= LITTLE]
    return best(search, few, likely), [beside[id(both)] for _, both in in_order[:_NEAREST]]


def _parts(search: Search[M]) -> list[M]:
    """The mistakes of which pairs are tried: those that explain something, the most first."""
    few = search.wrong[:12]
    result = {id(m): sum(search.screened(r, m) is True for r in few) for m in search.possible if not search.over}
    return sorted((m for m in search.possible if result.get(id(m))), key=lambda m: -result[id(m)])[:_PARTS]


def _most_outputs_first(judged: CaseResult) -> tuple[int, int]:
    return -sum(part.expected.allowed.size for part in judged.parts), judged.case.size
