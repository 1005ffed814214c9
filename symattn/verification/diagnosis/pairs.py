"""Two mistakes at once, likely ones first: neither need explain a case alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, TypeVar

from symattn.bounds.case_result import CaseResult
from symattn.verification.diagnosis.screening import LITTLE, best, firsts, is_finite, ranked

if TYPE_CHECKING:
    from symattn.verification.diagnosis.causes import Known, Search

M = TypeVar("M", bound="Known")
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
