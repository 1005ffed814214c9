"""Compare an output, element by element, with the sharp tolerance: which are beyond it, and whether that counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention.enclosing.pattern import Head
from symattn.attention.spec import Attention
from symattn.bounds.case_result import shares
from symattn.bounds.sharp import rows_in_float64
from symattn.bounds.sharp.limits import Floats, Stores, factor
from symattn.bounds.sharp.ways import replays, ways

GUARD = 0.5  # right replays on the accused rows must need less than this part of the tolerance
_GUARDED = 8  # rows of a head that are replayed
_PROBED = 32  # accused rows of a head on which another way is tried first: if far off there, it is left out
Rows = dict[tuple[int, ...], np.ndarray]


@dataclass(frozen=True)
class Accused:
    """The elements beyond the sharp tolerance: their ``rows``, and the worst element.

    ``replayed`` computes ``guard``. ``certain`` is the error in the worst row over what all roundings together can do,
    the least of all ``ways``. ``share`` is the worst element's error as a part of its tolerance; if it is at most 1,
    nothing is accused.
    """

    count: int
    rows: tuple[int, ...]
    worst: tuple[int, ...]
    tolerance: float
    replayed: Callable[[], float] = field(repr=False, compare=False)
    certain: float
    share: float

    @cached_property
    def guard(self) -> float:
        """The largest share of the tolerance that right replays need on the worst rows.

        Computed on demand: replays cost more than the filter, and a certain error needs none.
        """
        return self.replayed()

    @property
    def counts(self) -> bool:
        """Return whether no law of rounding is needed, or the filter's is supported on these rows."""
        return self.certain > 1 or self.guard < GUARD


def tolerances(
    spec: Attention, inputs: Mapping[str, object], how: Stores, alpha: float
) -> tuple[Floats, Floats]:
    """Return the output and the sharp tolerances, jointly valid but for ``alpha``: both (…, n_q, d_v)."""
    spec, every, shape = rows_in_float64.every_head(spec, inputs)
    xp: Any = namespace_of(inputs["q"])
    out = (xp.empty(shape), xp.empty(shape))
    # The risk is shared by all elements of the output.
    lam = factor(prod(shape), alpha)
    for head in every:
        # All rows, in blocks that fit the cache.
        for block in rows_in_float64.blocks(spec, head, np.arange(shape[-2])):
            out[0][head.index][block.rows], out[1][head.index][block.rows] = (
                block.o,
                block.tolerance(how, lam),
            )
    return out


def judged(
    spec: Attention,
    inputs: Mapping[str, object],
    how: Stores,
    got: Floats,
    alpha: float,
    made: rows_in_float64.Made | None = None,
) -> Accused:
    """Return the elements of ``got`` beyond the sharp tolerance in all ``ways``; none if one of these has none.

    The last block of each head in the first way is stored in ``made``, for ``means.judged``.
    """
    spec, every, _ = rows_in_float64.every_head(spec, inputs)
    lam = factor(prod(got.shape), alpha)
    rows: Rows = {head.index: np.arange(got.shape[-2]) for head in every}
    best: _Tried | None = None
    for taken in zip(*(ways(spec, head, how) for head in every), strict=True):
        # A way far off on a sample of the accused rows cannot acquit them.
        if best is not None and _Tried(how, got, lam, taken, _sampled_rows(rows, _PROBED)).hopeless:
            continue
        tried = _Tried(how, got, lam, taken, rows, made if best is None else None)
        # One legal way without an element beyond acquits all.
        if not tried.count:
            return tried.accused(0.0)
        # Later ways need to look at rows that the first one accuses, no others.
        if best is None:
            rows = tried.rows
        if best is None or tried.count < best.count:
            best = tried
    assert best is not None
    # in its row the largest error, in parts of what all roundings can do; the least of all ways
    worst = best.top[1]
    head = next(h for h in every if h.index == worst[:-2])
    row = np.array([worst[-2]])
    # Each way again on the worst row alone, without any law of rounding.
    alone = (next(rows_in_float64.blocks(*way, row)) for way in ways(spec, head, how))
    return best.accused(
        min(float(share(got[head.index][row], b, b.lawless(how)).max()) for b in alone)
    )


def share(got: Floats, block: rows_in_float64.QueryBlock, tolerance: Floats) -> Floats:
    """Return |got − o| as a part of the tolerance, which includes float64's own errors."""
    return shares(got, block.o, block.xp.zeros_like(block.o), tolerance)[0]


def _sampled_rows(rows: Rows, count: int) -> Rows:
    """Return about ``count`` rows of each head."""
    return {at: of[:: max(1, len(of) // count)] for at, of in rows.items()}


class _Tried:
    """One way to scale scores and store queries, on some rows of each head: the elements beyond it, and the worst."""

    def __init__(
        self,
        how: Stores,
        got: Floats,
        lam: float,
        taken: tuple[tuple[Attention, Head], ...],
        rows: Rows,
        made: rows_in_float64.Made | None = None,
    ) -> None:
        self.how, self.got, self.lam, self.taken, self.made = (
            how,
            got,
            lam,
            taken,
            {} if made is None else made,
        )
        self.count, self.rows = 0, Rows()
        self.top: tuple[float, tuple[int, ...], float] = 0.0, (*taken[0][1].index, 0, 0), 0.0
        for spec, head in taken:
            if len(rows[head.index]):
                self._compare_elements_of_head(spec, head, rows[head.index])
        # So many elements beyond are no matter of rounding: another constant scales the scores.
        self.hopeless = self.count > sum(map(len, rows.values()))

    def _compare_elements_of_head(self, spec: Attention, head: Head, rows: np.ndarray) -> None:
        # An empty start, so that the result has a type without any accused row.
        bad = [rows[:0]]
        for block in rows_in_float64.blocks(spec, head, rows):
            self.made[head.index] = block
            tolerance = block.tolerance(self.how, self.lam)
            shares = share(self.got[head.index][block.rows], block, tolerance)
            at = np.unravel_index(int(shares.argmax()), shares.shape)
            top = float(shares[at])
            if top > 1:
                self.count += int((shares > 1).sum())
                bad.append(block.rows[(shares > 1).any(axis=1).tolist()])
            if top > self.top[0]:
                row = int(block.rows[at[0]])
                place = (*head.index, row, int(at[1]))
                self.top = top, place, float(tolerance[at])
        self.rows[head.index] = np.concatenate(bad)

    def accused(self, certain: float) -> Accused:
        top, worst, tolerance = self.top
        # The worst row comes first, then the others in order.
        others = {int(i) for bad in self.rows.values() for i in bad}
        rows = (worst[-2], *sorted(others - {worst[-2]})) if self.count else ()
        return Accused(
            self.count, rows, worst, tolerance, self._largest_share_of_replays, certain, top
        )

    def _largest_share_of_replays(self) -> float:
        """Return the largest share of right replays on some of the accused rows; 0 if none is accused."""
        # A few rows of each head: replays take as long as the definition.
        some = _sampled_rows(self.rows, _GUARDED)
        looked = ((spec, head, some.get(head.index, ())) for spec, head in self.taken)
        replayed = (
            x
            for spec, head, of in looked
            for b in rows_in_float64.blocks(spec, head, np.asarray(of))
            for x in self._yield_shares_of_replays(b)
        )
        return max(replayed, default=0.0)

    def _yield_shares_of_replays(self, block: rows_in_float64.QueryBlock) -> Iterator[float]:
        tolerance = block.tolerance(self.how, self.lam)
        for out in replays(block, self.how):
            finite = block.xp.isfinite(block.o)
            yield float(
                # A row whose output is no number has no share.
                block.xp.where(finite, share(out, block, tolerance), 0.0).max()
            )
