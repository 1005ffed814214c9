"""Weighted means of an output's elements: a mistake too small to show in single elements shows in all together.

A direction x of a mistake is what it does to the exact output, to first order; D = x / (the square of the noise),
element by element, and T = ⟨D, y − o⟩. ``limits`` says how large T can be: per row of one head, and from there per
head, per row of all heads, and for everything, since rows are rounded independently (those of equal queries are not:
their limits add up). θ = T/⟨D, x⟩ says how much of the mistake is in y, within its limit over ⟨D, x⟩. What
errs anew in each row is seen in their squares (``squares``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod, sqrt
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention.enclosing.pattern import Head
from symattn.attention.spec import Attention
from symattn.bounds.sharp import rows_in_float64
from symattn.bounds.sharp.directions import MOST, Squares, directions
from symattn.bounds.sharp.limits import ALPHA, Floats, Stores, W, factor, half_ulp
from symattn.bounds.sharp.ways import replays, ways

GUARD = 1 / 3  # right replays must need less than this part of the limit
EACH = "each"  # the part in which squares are summed, row by row
EXPLAINED = 0.7  # part of the error that a mistake must explain to be reported with single elements
# part of the largest share with which an earlier mistake in the list is reported instead
ALIKE = 0.9
_MOVED = 20.0  # rows in which roundings move a weight's logarithm by more are ignored
_KEPT = 1 << 21  # largest number of scores of all heads that are cached for a second pass


@dataclass(frozen=True)
class MeanBeyondLimit:
    """A mean beyond its limit: the part of the output, what it looks like, and the share that right replays need.

    ``share`` is the mean over its limit, ``certain`` over what all roundings together can do, the least of all
    ``ways``; ``guard``, which ``replayed`` computes, must be less than ``most``.
    """

    place: str
    words: str
    share: float
    replayed: Callable[[], float] = field(repr=False, compare=False)
    certain: float
    most: float = GUARD

    @cached_property
    def guard(self) -> float:
        """The largest share of the limit that right replays need.

        Computed on demand: replays cost more than the filter, and a certain error needs none.
        """
        return self.replayed()

    @property
    def counts(self) -> bool:
        """Return whether no law of rounding is needed, or the filter's is supported in these means."""
        return self.certain > 1 or self.guard < self.most


def judged(
    spec: Attention,
    inputs: Mapping[str, object],
    how: Stores,
    got: Floats,
    alpha: float,
    rows: Sequence[int],
    made: rows_in_float64.Made | None = None,
) -> MeanBeyondLimit | None:
    """Return the mean that is farthest beyond its limit in all ``ways``; None if one of them has none beyond.

    Its place and description are those of the first way, the scale and arrays as given; its share is the least of all
    ways. ``got`` (…, r, d_v) are the outputs of the queries in ``inputs``, which are reported as ``rows``; ``made`` are
    blocks of the same inputs, so that they are not computed again.
    """
    spec, every, _ = rows_in_float64.every_head(spec, inputs)
    first: tuple[str, str] | None = None
    best: tuple[Worst, _Scan] | None = None
    ready_blocks = made or {}
    certain = np.inf
    for taken in zip(*(ways(spec, head, how) for head in every), strict=True):
        # blocks are of the first way alone
        scan, ready_blocks = (_Scan(taken, how, alpha, ready_blocks), {})
        if scan.within(got):  # within limits that are too small, as right outputs mostly are
            return None
        worst = scan.sharpened().worst(got)
        # One legal way within its limits acquits the output.
        if worst is None or worst[0] <= 1:
            return None
        certain = min(certain, scan.certainty(worst, got))
        first = first or scan.described(worst, rows)
        if best is None or worst[0] < best[0][0]:
            best = worst, scan
    if first is None or best is None:
        return None
    (share, name, *_), scan = best
    most = MOST if name == EACH else GUARD
    return MeanBeyondLimit(*first, share, partial(scan.guard, name), certain, most)


def looks_like(
    spec: Attention, inputs: Mapping[str, object], how: Stores, got: Floats, rows: Sequence[int]
) -> tuple[str, str] | None:
    """Return in which part wrong outputs resemble a known mistake, and the one that explains most of the error.

    None if none explains ``EXPLAINED`` of it: x explains ⟨x, y − o⟩²/⟨x, x⟩ of ⟨y − o, y − o⟩, all divided by the
    squares of the noise. This is a description, not an accusation: if the rows were chosen by their errors, the half
    interval no longer has the probability ``alpha``. ``got``, ``inputs`` and ``rows`` are those of ``judged``.
    """
    spec, every, _ = rows_in_float64.every_head(spec, inputs)
    scan = _Scan([(spec, head) for head in every], how, ALPHA, {}).sharpened()
    result = scan.explaining(got)
    return None if result is None else scan.described(result, rows)


class MeanLimits:
    """σ² and r of directions in the outputs of a block; ``noise`` is σ² of each element."""

    def __init__(self, b: rows_in_float64.QueryBlock, how: Stores, lam: float) -> None:
        sigma, spread = b.noise(how)
        self.xp = xp = b.xp
        # Half an ulp of the largest that an element may be (step 4).
        half = half_ulp(how.last, xp.abs(b.o) + lam * sigma)
        self.noise, self.half = sigma**2 + half**2, half**2
        self.o, self.spread = xp.nan_to_num(b.o), lam * spread
        self.eta, self.sums = b.least(how)
        self.block, self.how = b, how
        # Errors that no law of rounding covers: float64's own, and u² |o| of step 4.
        of_last_store = float(how.last.u) ** 2 * xp.abs(self.o)
        self.last = b.error + of_last_store

    @cached_property
    def w(self) -> Floats:
        """The square of what roundings do to each key, (r, n)."""
        return self.block.squares(self.how)

    @cached_property
    def second(self) -> Floats:
        """The terms of step 3 for each key, (r, n)."""
        return rows_in_float64.narrow(self.block.curvature(self.how, self.spread))

    @cached_property
    def values(self) -> Floats:
        """The values, transposed, (d_v, n)."""
        return rows_in_float64.narrow(self.block.values).T

    def least(self, direction: Floats) -> Floats:
        """Return a lower limit of the σ² of ``of``, (r,): that of the last rounding alone."""
        return self._per_row(self.xp.vecdot(direction * direction, self.half))

    def _per_row(self, floats: Floats) -> Floats:
        """Return the numbers of rows, (r,), with 0 for rows that have no part in means: see ``rows``."""
        return self.xp.where(self.rows, floats, 0.0)

    @cached_property
    def rows(self) -> Any:
        """Which rows have an output that is a number, and errors of exponents small enough for a limit, (r,)."""
        b, how = self.block, self.how
        relative = b.relative(how)[0]
        moved = (relative + b.slope(how) * b.top)[:, 0]
        return self.xp.all(self.xp.isfinite(b.o), axis=1) & (moved < _MOVED)

    def of(self, direction: Floats) -> tuple[Floats, Floats]:
        """Return σ² and r of each row, (r,), for D (r, d_v)."""
        xp = self.xp
        largest = xp.max(xp.abs(direction), axis=1)
        # squares of small numbers would underflow in float32
        unit = xp.where(largest > 0, largest, 1.0)
        d = direction / unit[:, None]
        a = rows_in_float64.narrow(d) @ self.values
        g = xp.vecdot(d, self.o)
        power, size = a * a, xp.abs(a)
        # The sum of weights may have their roundings or not (step 1): the larger of both counts.
        around = xp.vecdot(self.w, power)
        squared_direction = g * g * xp.sum(self.w, axis=1)
        apart = around - 2 * g * xp.vecdot(self.w, a) + squared_direction
        of_rest = self.block.rest(self.how)[:, 0]
        squares = xp.maximum(around, apart) * rows_in_float64.SLACK + of_rest * g * g
        of_sums = self.sums * xp.max(size, axis=1) ** 2
        squares += self.eta[:, 0] * xp.sum(power, axis=1) + of_sums
        squares = squares * self.how.linear**2 + self.least(d)
        rest = xp.vecdot(self.second, size) * rows_in_float64.SLACK + (
            xp.sum(self.second, axis=1) + self.how.mean
        ) * xp.abs(g)
        return self._per_row(squares * unit**2), self._per_row(
            (rest + xp.vecdot(xp.abs(d), self.last)) * unit
        )

    def lawless(self, d: Floats) -> Floats:
        """Bound ⟨D, y − o⟩ in each row, whatever roundings do, (r,)."""
        b, how, xp = self.block, self.how, self.xp
        # What a unit of each weight, and of the mean that is subtracted, can change in ⟨D, o⟩.
        a = xp.abs(d @ rows_in_float64.wide(b.values).T)
        g = xp.abs(xp.vecdot(d, self.o))[:, None]
        relative = b.relative(how)[0]
        # The relative error of a weight, and that of its exponent by the score.
        share = b.p * (relative + b.slope(how) * b.sizes)
        # Second-order terms, at the worst error of each exponent.
        second = b.curvature(how, b.worst(how)[1])
        of_rest = xp.sqrt(b.rest(how)[:, 0])
        of_entries = xp.sum((share + second) * (a + g), axis=1)
        first = of_entries + of_rest * g[:, 0]
        of_eta = xp.sqrt(self.eta[:, 0]) * xp.sum(a, axis=1)
        # The evaluation of this bound in float64 is rounded, too.
        of_float64 = 3 * (len(b.values) + 16) * W
        lost = of_eta + of_float64 * xp.max(a, axis=1)
        largest = xp.abs(self.o) + b.lawless(how)
        half = half_ulp(how.last, largest)
        # The output is stored once, by at most half a unit in the last place.
        of_stores = xp.vecdot(xp.abs(d), half + self.last)
        return self._per_row((first + lost) * how.linear + of_stores)


def of_mean(
    spec: Attention, inputs: Mapping[str, object], how: Stores, weights: Floats, alpha: float
) -> float:
    """Return λ σ + r for one direction, ``weights`` (…, n_q, d_v); ∞ if scores of different queries coincide."""
    spec, every, _ = rows_in_float64.every_head(spec, inputs)
    lam = factor(1, alpha)
    squares, rest = [], 0.0
    xp: Any = namespace_of(weights)
    for head in every:
        for b in rows_in_float64.blocks(spec, head, np.arange(len(head.q))):
            # Equal queries have equal scores by right, so only the first of each group is compared.
            alone = _are_first_among_equals(_number_equal_queries(b.given["q"]))
            if _are_scores_coinciding(
                [_distinct_scores_below_top(b, alone)]
            ) or _are_scores_coinciding([_distinct_scores_before_terms(b, alone)]):
                return float("inf")
            direction = weights[head.index][b.rows]
            square, more = MeanLimits(b, how, lam).of(direction)
            squares.append(xp.sqrt(square))
            rest += float(more.sum())
    # Equal queries are rounded alike: their σ add up before they are squared.
    together = xp.bincount(
        _number_equal_queries(xp.concat([head.q for head in every])), xp.concat(squares)
    )
    return lam * sqrt(float((together**2).sum())) + rest


#: The largest share of a limit: its value, the kind of part, the direction and part, θ and its half interval.
Worst = tuple[float, str, tuple[int, ...], float, float]


class _Scan:
    """All directions, in all parts of the output."""

    def __init__(
        self,
        taken: Sequence[tuple[Attention, Head]],
        how: Stores,
        alpha: float,
        ready_blocks: rows_in_float64.Made,
    ) -> None:
        self.how, self.indices = how, [head.index for _, head in taken]
        self.taken, self.ready_blocks = taken, ready_blocks
        head = taken[0][1]
        xp: Any = namespace_of(head.q)
        self.xp = xp
        self.same = _number_equal_queries(xp.concat([head.q for _, head in taken]))
        n_rows, n_heads = len(head.q), len(taken)
        # Limits of all heads are cached for a second pass if they take little memory.
        self.few = n_heads * n_rows * len(head.k) <= _KEPT
        first = next(self._yield_head_query_blocks(0))
        # A block of all rows of the first head serves the scan as well.
        self.ready_blocks = (
            {**ready_blocks, head.index: first} if len(first.rows) == n_rows else ready_blocks
        )
        self.names = [d.words for d in directions(first)]
        # All means: every direction in each row of each head, their sums, and the squares.
        tests_per_mean = (1 + n_rows) * (1 + n_heads) + 1
        self.lam = factor(len(self.names) * tests_per_mean, alpha)
        shape = (len(self.names), n_heads, n_rows)
        self.squares = xp.zeros(shape)
        self.rest = xp.zeros(shape)
        self.length = xp.zeros(shape)
        self.limits_of_heads = dict[int, list[MeanLimits]]()
        self.weights = dict[int, Floats]()
        self.outputs = dict[int, Floats]()
        for i in range(n_heads):
            self._scan_directions_of_head(i)
        self.ready_blocks = {}  # what is needed again is in ``limits_of_heads``

    def _scan_directions_of_head(self, i: int) -> None:
        """Store the figures of a head, unless its scores coincide."""
        queries, below, before, result = (
            self.taken[i][1].q,
            list[Floats](),
            list[Floats](),
            list[MeanLimits](),
        )
        alone = _are_first_among_equals(_number_equal_queries(queries))
        weights, outputs = list[Floats](), list[Floats]()
        for b in self._yield_head_query_blocks(i):
            below.append(_distinct_scores_below_top(b, alone[b.rows]))
            before.append(_distinct_scores_before_terms(b, alone[b.rows]))
            # N2 fails if different queries have equal scores: then the head says nothing.
            if b.rows[-1] == len(queries) - 1 and (
                _are_scores_coinciding(below) or _are_scores_coinciding(before)
            ):
                self.squares[:, i] = self.length[:, i] = 0.0
                return
            limits = MeanLimits(b, self.how, self.lam)
            weights.append(self._weights_of_every_direction(i, b, limits))
            outputs.append(b.o)
            result += [limits] if self.few else []
        self.weights[i], self.outputs[i] = self.xp.concat(weights, axis=1), self.xp.concat(outputs)
        if self.few:
            self.limits_of_heads[i] = result

    def _yield_head_query_blocks(self, i: int) -> Iterator[rows_in_float64.QueryBlock]:
        """Yield the rows of a head, with all keys, in blocks."""
        spec, head = self.taken[i]
        ready_block = self.ready_blocks.get(head.index)
        # A block from an earlier pass is reused only if it holds all rows and keys.
        if ready_block is not None and (len(ready_block.rows), len(ready_block.values)) == (
            len(head.q),
            len(head.k),
        ):
            yield ready_block
            return
        for rows in rows_in_float64.together(len(head.q), len(head.k)):
            yield rows_in_float64.block(spec, head, rows, slice(0, len(head.k)))

    def _yield_head_mean_limits(self, i: int) -> Iterator[MeanLimits]:
        """Yield the limits of each block, computed again if those of all heads would take too much memory."""
        if i in self.limits_of_heads:
            return iter(self.limits_of_heads[i])
        return (MeanLimits(b, self.how, self.lam) for b in self._yield_head_query_blocks(i))

    def _weights_of_every_direction(
        self, head: int, b: rows_in_float64.QueryBlock, limits: MeanLimits
    ) -> Floats:
        """Return D for every direction, (m, r, d_v); set ⟨D, x⟩, and lower limits of σ²."""
        result, xp = [], self.xp
        for m, direction in enumerate(directions(b)):
            x = xp.where(xp.isfinite(direction.x), direction.x, 0.0)
            # D is x over the square of the noise; rows that are no part of means get 0.
            d = xp.where(limits.rows[:, None], x / limits.noise, 0.0)
            self.squares[m, head, b.rows], self.length[m, head, b.rows] = (
                limits.least(d),
                xp.vecdot(d, x),
            )
            result.append(d)
        return xp.stack(result)

    def within(self, got: Floats) -> bool:
        """Return whether an output is within limits that are smaller than the true ones."""
        worst = self.worst(got)
        return worst is None or worst[0] <= 1

    def sharpened(self) -> _Scan:
        """Return the scan itself, with σ² and r computed in full."""
        for head, result in self.weights.items():
            for limits in self._yield_head_mean_limits(head):
                rows = limits.block.rows
                for m, d in enumerate(result[:, rows]):
                    self.squares[m, head, rows], self.rest[m, head, rows] = limits.of(d)
        return self

    def shares(self, outs: Sequence[Floats]) -> Iterator[tuple[str, Floats, Floats, Floats]]:
        """Yield for each kind of part, for outputs by head: T over its limit, θ and its half interval, (m, parts)."""
        xp, t = self.xp, self._weighted_means_of_rows(outs)
        for name, axes in (("all", (1, 2)), ("head", (2,)), ("row", (1,)), ("one", ())):
            sums = [xp.sum(a, axis=axes) for a in (t, self.rest, self.length)]
            # Rows are independent, so variances add up; r is a worst case and adds up itself.
            limit = self.lam * xp.sqrt(self._variance_of_summed_means(axes)) + sums[1]
            with np.errstate(all="ignore"):
                share = xp.where(limit > 0, xp.abs(sums[0]) / limit, 0.0)
                yield name, share, sums[0] / sums[2], limit / sums[2]

    def _weighted_means_of_rows(self, outs: Sequence[Floats]) -> Floats:
        """Return T of each row, (m, heads, rows), for outputs by head."""
        t = self.xp.zeros(self.squares.shape)
        for (i, d), out in zip(self.weights.items(), outs, strict=True):
            differences = self.xp.nan_to_num(out - self.outputs[i])
            t[:, i] = self.xp.vecdot(d, differences)
        return t

    @property
    def _squares_of_single_rows(self) -> Squares:
        """Return the limits of the squares of means of single rows."""
        return Squares(self.squares, self.rest, _are_first_among_equals(self.same))

    def _variance_of_summed_means(self, axes: tuple[int, ...]) -> Floats:
        """Return σ² of sums; within groups of equal queries σ adds up."""
        groups = int(self.same.max()) + 1
        if not axes or groups == len(self.same):
            return self.xp.sum(self.squares, axis=axes)
        shape = tuple(self.squares.shape[i] for i in (1, 2) if i not in axes)
        part = np.broadcast_to(
            np.arange(prod(shape)).reshape(
                [1 if i in axes else self.squares.shape[i] for i in (1, 2)]
            ),
            self.squares.shape[1:],
        )
        # One index for each group and part, so that bincount sums σ within groups.
        places = self.xp.asarray(part.ravel())
        index = self.same * prod(shape) + places
        result = [
            self.xp.bincount(index, self.xp.sqrt(s).ravel(), groups * prod(shape))
            for s in self.squares
        ]
        by_groups = self.xp.stack(result).reshape(-1, groups, *shape)
        return self.xp.sum(by_groups**2, axis=1)

    def worst(self, got: Floats) -> Worst | None:
        """Return the largest share of a mean in an output, or of squares; None if scores coincide in every head."""
        outs = [got[self.indices[i]] for i in self.weights]
        result = self.largest(outs) if outs else None
        if result is None:
            return None
        # Means of single rows are squared and summed, since they may differ in sign.
        share, m, theta, off = self._squares_of_single_rows.worst(
            self._weighted_means_of_rows(outs), self.length, self.lam
        )
        return (share, EACH, (m,), theta, off) if share > result[0] else result

    def largest(self, outs: Sequence[Floats]) -> Worst | None:
        """Return the largest share for outputs of the heads in use."""
        best = None
        for name, share, theta, off in self.shares(outs):
            top, at = self._farthest_share_and_place(share)
            if best is None or top > best[0]:
                deviation = abs(float(off[at]))
                best = top, name, at, float(theta[at]), deviation
        return best

    def _farthest_share_and_place(self, shares: Floats) -> tuple[float, tuple[int, ...]]:
        """Return the largest share of (m, parts), and its place: the first direction with a similar share there."""
        flat = shares.reshape(len(shares), -1)
        part = int(self.xp.max(flat, axis=0).argmax())
        result = flat[:, part].tolist()
        # Of mistakes with similar shares the first in the list is reported.
        m = next(i for i, x in enumerate(result) if x >= ALIKE * max(result))
        place = np.unravel_index(part, shares.shape[1:])
        return max(result), (m, *(int(i) for i in place))

    def explaining(self, got: Floats) -> Worst | None:
        """Return the direction that explains most of the error, in all heads or in one; None if it is too little."""
        outs = [got[self.indices[i]] for i in self.weights]
        best = None
        whole = self._excess_over_mean_noise(outs)
        for name, _, theta, off in self.shares(outs):
            if name not in ("all", "head") or whole <= 0:
                # Single rows would be explained by chance.
                continue
            length = self.xp.sum(self.length, axis=(1, 2) if name == "all" else (2,))
            taken = self.xp.nan_to_num(theta) ** 2 * length / whole
            top, at = self._farthest_share_and_place(taken)
            if top > (EXPLAINED if best is None else best[0]):
                deviation = abs(float(off[at]))
                best = top, name, at, float(theta[at]), deviation
        return best

    def _excess_over_mean_noise(self, outs: Sequence[Floats]) -> float:
        """Return ⟨y − o, y − o⟩ over the squares of the noise, less the third that roundings have in the mean."""
        total = 0.0
        for i, out in zip(self.weights, outs, strict=True):
            for limits in self._yield_head_mean_limits(i):
                off = (out - self.outputs[i])[limits.block.rows]
                # A uniform rounding has the variance 1/3 of its largest square.
                squares = self.xp.nan_to_num(off) ** 2 / limits.noise - 1 / 3
                of_rows = self.xp.where(limits.rows[:, None], squares, 0.0)
                total += float(self.xp.sum(of_rows))
        return total

    def certainty(self, worst: Worst, got: Floats) -> float:
        """Return the worst mean as a part of what all roundings together can do."""
        _, name, (m, *at), _, _ = worst
        # Squares have no limit without a law of rounding.
        if name == EACH:
            return 0.0
        total = limit = 0.0
        for i, d in self.weights.items():
            if name in ("head", "one") and i != at[0]:
                continue
            every_row = name in ("all", "head")
            rows = slice(None) if every_row else slice(at[-1], at[-1] + 1)
            off_entries = got[self.indices[i]] - self.outputs[i]
            off = self.xp.nan_to_num(off_entries)
            along = self.xp.vecdot(d[m], off)
            total += float(along[rows].sum())
            lawless = [
                limits.lawless(d[m, limits.block.rows])
                for limits in self._yield_head_mean_limits(i)
            ]
            limit += float(self.xp.concat(lawless)[rows].sum())
        return abs(total) / limit if limit > 0 else 0.0

    def described(self, worst: Worst, rows: Sequence[int]) -> tuple[str, str]:
        """Return the part of the output that a mean is in, and the words for what it looks like."""
        _, name, (m, *at), theta, off = worst
        # The sum over rows has no place of its own.
        if name == EACH:
            return (
                "row by row, their squares summed",
                f"{self.names[m](theta, off)}, more or less in each row",
            )
        head = (
            f"head {list(self.indices[at[0]])}"
            if name in ("head", "one") and self.indices[0]
            else ""
        )
        row = f"row {rows[at[-1]]}" if name in ("row", "one") else ""
        place = ", ".join(filter(None, (head, row)))
        return place or "of all rows", self.names[m](theta, off)

    def guard(self, name: str) -> float:
        """Return the largest share of right replays; for squares, their mean sum."""
        result = zip(*(self._replayed_outputs_of_head(i) for i in self.weights), strict=True)
        if name == EACH:
            return max(
                # Squares sum over all rows, so there is one number for each replay.
                (
                    self._squares_of_single_rows.summed(self._weighted_means_of_rows(outs))
                    for outs in result
                ),
                default=0.0,
            )
        tops = [self.xp.max(share) for outs in result for _, share, _, _ in self.shares(outs)]
        # only one number leaves the device
        return float(self.xp.max(self.xp.stack(tops))) if tops else 0.0

    def _replayed_outputs_of_head(self, i: int) -> list[Floats]:
        """Return the output of each right contract for a head."""
        parts = [
            list(replays(limits.block, self.how)) for limits in self._yield_head_mean_limits(i)
        ]
        return [self.xp.concat(outs) for outs in zip(*parts, strict=True)]


def _number_equal_queries(queries: Floats) -> Any:
    """Number the queries of all heads, head by head; equal queries get equal numbers."""
    xp: Any = namespace_of(queries)
    _, number = xp.unique(queries, axis=0, return_inverse=True)
    return number.reshape(-1)


def _are_first_among_equals(number: Any) -> Any:
    """Return which numbers are the first among equal ones."""
    xp: Any = namespace_of(number)
    # Only a stable order has the first of equal numbers first.
    order = xp.argsort(number, stable=True)
    first = number[:1] == number[:1]
    changes = number[order[1:]] != number[order[:-1]]
    new = xp.concat([first, changes])
    return new[xp.argsort(order)]


def _distinct_scores_below_top(b: rows_in_float64.QueryBlock, alone: object) -> Floats:
    """Return the different scores of the queries ``alone``, (r,), relative to their largest."""
    t = b.ordered[alone]
    own = b.xp.isfinite(t)
    changes = t[:, 1:] != t[:, :-1]
    own[:, 1:] &= changes
    with np.errstate(all="ignore"):
        below = (t - t[:, -1:])[own]
    return below[below < 0]


def _distinct_scores_before_terms(b: rows_in_float64.QueryBlock, alone: object) -> Floats:
    """Return the different scores of the queries ``alone``, (r,), before terms are added; none if none are."""
    if not b.added:
        return b.t[:0, 0]
    with_weight = b.xp.where(b.p > 0, b.raw, 0.0)
    raw = b.xp.sort(with_weight[alone], axis=1)
    own = raw != 0  # zeros are not rounded
    changes = raw[:, 1:] != raw[:, :-1]
    own[:, 1:] &= changes
    return raw[own]


def _are_scores_coinciding(scores: Sequence[Floats]) -> bool:
    """Return whether different queries have equal scores in ``_distinct_scores_below_top``, and so equal roundings."""
    xp: Any = namespace_of(scores[0])
    below = xp.sort(xp.concat(list(scores)))
    # Equal products in another order may differ by float64's roundings, so these count as equal.
    steps = below[1:] - below[:-1]
    equal = int((steps <= 2.0**-40).sum())
    # A few scores may coincide by chance; more have a cause, and are rounded together.
    return equal > max(2, len(below) // 200)
