"""Which pairs of a query and a key: the simplest condition on their positions that holds for given pairs only.

A condition is a conjunction of at most three ranges, each of one whole number of a pair, such as i − j, j % 4 or
i // 8 − j // 8, or the negation of such a conjunction. The ranges are read off: from the least to the largest value of
a number in the given pairs. A range is useful if it excludes other pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np

from symattn.verification.rules.tiling import WIDTHS

_LIKELY = 24  # ranges that exclude most, and most of what one of them leaves, which are tried with any third one
# Widths of blocks of queries, and of keys, where kernels compare both.
_BLOCKS = tuple(1 << n for n in range(1, 8))
_PERIODS = (*range(2, 17), *(n for n in WIDTHS if n > 16), 256, 512)


@dataclass(frozen=True)
class Pairs:
    """The pairs of queries and keys in one call: numbers, the first query's position, labels of documents, heads."""

    n_q: int
    n_k: int
    offset: int
    labels: Mapping[str, Any] = field(default_factory=dict)
    heads: int = 1

    @cached_property
    def r(self) -> np.ndarray:
        """The rows, as a column."""
        return np.arange(self.n_q)[:, None]

    @property
    def i(self) -> np.ndarray:
        """The positions of the queries among the keys, as a column."""
        return self.r + self.offset

    @cached_property
    def j(self) -> np.ndarray:
        """The positions of the keys, as a row."""
        return np.arange(self.n_k)[None, :]

    @property
    def apart(self) -> np.ndarray:
        """The distances of the documents' labels of query and key; 0 without labels."""
        of = [
            np.asarray(self.labels.get(n, self.labels.get("doc", np.zeros(1, int))))
            for n in ("doc_q", "doc_k")
        ]
        # Labels may be unsigned, where a difference would wrap around.
        result: np.ndarray = np.abs(
            of[0][..., :, None].astype(int) - of[1][..., None, :].astype(int)
        )
        return result


@dataclass(frozen=True)
class Quantity:
    """A whole number of each pair, in words."""

    words: str
    of: Callable[[Pairs], Any]
    period: int = 1


#: Numbers of positions in tiles of t.
_IN_TILES: dict[str, Callable[[int, Pairs], Any]] = {
    "(i − j) % {0}": lambda t, p: (p.i - p.j) % t,
    "j % {0}": lambda t, p: p.j % t,
    "i % {0}": lambda t, p: p.i % t,
    "i // {0} − j // {0}": lambda t, p: p.i // t - p.j // t,
    "(n_k − 1) // {0} − j // {0}": lambda t, p: (p.n_k - 1) // t - p.j // t,
    "n_k // {0} − j // {0}": lambda t, p: p.n_k // t - p.j // t,
    "(n_k − 1) // {0} − i // {0}": lambda t, p: (p.n_k - 1) // t - p.i // t,
    "j // {0}": lambda t, p: p.j // t,
    "i // {0}": lambda t, p: p.i // t,
    "n_k % {0}": lambda t, p: p.n_k % t,
}


def _between_blocks(queries: int, keys: int, p: Pairs) -> Any:
    """Return how far the first key of a key's block is before the first query of a query's block."""
    first_query = p.r // queries * queries + p.offset
    return first_query - p.j // keys * keys


#: The numbers that conditions use, the simplest first.
QUANTITIES = (
    Quantity("i − j", lambda p: p.i - p.j),
    Quantity("|i − j|", lambda p: abs(p.i - p.j)),
    Quantity("j", lambda p: p.j),
    Quantity("i", lambda p: p.i),
    Quantity("n_k − j", lambda p: p.n_k - p.j),
    Quantity("the query's row", lambda p: p.r),
    Quantity("n_q less the query's row", lambda p: p.n_q - p.r),
    Quantity("the query's row less j", lambda p: p.r - p.j),
    Quantity("⌊n_k/n_q · the query's row⌋ less j", lambda p: p.r * p.n_k // p.n_q - p.j),
    Quantity("⌊n_k/n_q · the next query's row⌋ less j", lambda p: (p.r + 1) * p.n_k // p.n_q - p.j),
    Quantity("n_k", lambda p: p.n_k),
    Quantity(
        "the head, counted from 0,",
        lambda p: np.arange(p.heads)[:, None, None] if p.heads > 1 else 0,
    ),
    Quantity("the distance of the documents' labels", lambda p: p.apart),
    *(
        Quantity(words.format(t), partial(of, t), t)
        for t, (words, of) in product(_PERIODS, _IN_TILES.items())
    ),
    *(
        Quantity(
            f"the first query of its block of {t} less the first key of its block of {u}",
            partial(_between_blocks, t, u),
            max(t, u),
        )
        for t, u in product(_BLOCKS, _BLOCKS)
    ),
)


@dataclass(frozen=True)
class Range:
    """A quantity between two numbers, either of which may be None: no limit."""

    of: Quantity
    low: int | None
    high: int | None

    def holds(self, x: Any) -> Any:
        """Return which numbers lie in the range."""
        return (self.low is None or x >= self.low) & (self.high is None or x <= self.high)

    @property
    def words(self) -> str:
        """The range as a formula."""
        if self.low == self.high:
            return f"{self.of.words} = {_format_range_end(self.low)}"
        if self.low is not None and self.high is not None:
            return (
                f"{_format_range_end(self.low)} ≤ {self.of.words} ≤ {_format_range_end(self.high)}"
            )
        sign, end = ("≤", self.high) if self.low is None else ("≥", self.low)
        return f"{self.of.words} {sign} {_format_range_end(end)}"


def _format_range_end(n: int | None) -> str:
    return str(n).replace("-", "−")


@dataclass(frozen=True)
class Condition:
    """The conjunction of some ranges, or its negation."""

    ranges: tuple[Range, ...]
    negated: bool = False

    def __call__(self, pairs: Pairs) -> np.ndarray:
        """Return where the condition holds, as booleans (…, n_q, n_k)."""
        result = np.ones((pairs.n_q, pairs.n_k), dtype=bool)
        for one in self.ranges:
            result = result & one.holds(one.of.of(pairs))
        return np.asarray(result != self.negated)

    @property
    def words(self) -> str:
        """The condition as formulas."""
        return ("unless " if self.negated else "where ") + " and ".join(
            one.words for one in self.ranges
        )

    @property
    def size(self) -> int:
        """The complexity: ranges with two ends, tiles and a negation count more."""
        two = sum(one.low != one.high and None not in (one.low, one.high) for one in self.ranges)
        return len(self.ranges) + two + sum(one.of.period > 1 for one in self.ranges) + self.negated


def plainest(calls: Sequence[tuple[Pairs, np.ndarray, np.ndarray]]) -> Condition | None:
    """Return the simplest condition that holds, among the pairs in each call's second array, for exactly those in the
    third one; None if there is none."""
    if not calls or not any((among & meant).any() for _, among, meant in calls):
        return None
    meant = np.concatenate([of[among] for _, among, of in calls])
    columns = []
    most = max(pairs.n_k for pairs, _, _ in calls) // 2  # no call has two longer tiles
    known = [quantity for quantity in QUANTITIES if quantity.period <= most]
    for quantity in known:
        arrays = (
            np.broadcast_to(quantity.of(pairs), among.shape)[among] for pairs, among, _ in calls
        )
        columns.append(np.concatenate(list(arrays)))
    results = [
        Condition(ranges, negated)
        for of, negated in ((meant, False), (~meant, True))
        if (ranges := _find_fewest_ranges(known, columns, of)) is not None
    ]
    return min(results, key=lambda c: c.size, default=None)


def _find_fewest_ranges(
    known: Sequence[Quantity], columns: Sequence[np.ndarray], meant: np.ndarray
) -> tuple[Range, ...] | None:
    """Return the fewest ranges that hold for all ``meant`` pairs, and together for no others."""
    if not meant.any():
        return None
    ranges, wrong_pairs = [], []
    # The smallest interval around the meant pairs, open at an end that no pair is beyond.
    for quantity, x in zip(known, columns, strict=True):
        low, high, least, most = (
            int(n) for n in (x[meant].min(), x[meant].max(), x.min(), x.max())
        )
        below = low if low > least else None
        above = high if high < most else None
        # Wider intervals with one end are plainer, and may do as well.
        ends = {
            (below, above),
            (below, None),
            (None, above),
            (low, low) if low == high else (below, None),
        }
        for one in sorted(ends - {(None, None)}, key=str):
            ranges.append(Range(quantity, *one))
            # One bit for each pair: sets of ranges are then compared by words of eight pairs.
            wrong_pairs.append(np.packbits(ranges[-1].holds(x) & ~meant))
    if not ranges:
        return None
    others = np.stack(wrong_pairs)
    # More than three ranges are no condition that a kernel would have.
    for count in (1, 2, 3):
        choice = min(
            _yield_excluding_range_sets(others, count),
            key=lambda at: _rank_range_plainness(ranges, at),
            default=None,
        )
        if choice is not None:
            return tuple(ranges[n] for n in sorted(choice))
    return None


def _rank_range_plainness(ranges: Sequence[Range], at: tuple[int, ...]) -> tuple[int, int]:
    return Condition(tuple(ranges[n] for n in at)).size, sum(at)


def _yield_excluding_range_sets(others: np.ndarray, count: int) -> Iterator[tuple[int, ...]]:
    """Yield the indices of ``count`` ranges that together exclude all other pairs."""
    if count == 1:
        # A range alone has to exclude every other pair.
        yield from ((int(n),) for n in np.flatnonzero(~others.any(axis=1)))
        return
    if count == 2:
        for first in range(len(others)):
            yield from (
                (first, *rest) for rest in _yield_excluding_range_sets(_left_by(others, first), 1)
            )
        return
    # Of three ranges only the likeliest first and second ones are tried: all are too many.
    for first in _by_what_is_left(others)[:_LIKELY]:
        left = _left_by(others, first)
        for second in _by_what_is_left(left)[:_LIKELY]:
            yield from (
                (first, second, *rest)
                for rest in _yield_excluding_range_sets(_left_by(left, second), 1)
            )


def _by_what_is_left(others: np.ndarray) -> list[int]:
    """Return the ranges in order, those that exclude most first."""
    counts = np.bitwise_count(others).sum(axis=1)
    return [int(n) for n in np.argsort(counts, kind="stable")]


def _left_by(others: np.ndarray, first: int) -> np.ndarray:
    """Return what each range leaves of the pairs that a first one leaves."""
    some = np.flatnonzero(others[first])
    return np.asarray(others[:, some] & others[first, some])
