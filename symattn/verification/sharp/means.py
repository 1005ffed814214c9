"""Weighted means of an output's elements: a mistake that each element hides shows in all of them together.

A direction x of a mistake is what it does to the exact output, to first order; D = x / (the square of the noise),
element by element, and T = ⟨D, y − o⟩. ``limits`` says how large T can be: per row of one head, and from there per
head, per row of all heads, and for everything, since rows are rounded independently (those of equal queries are not:
their limits add up). θ = T/⟨D, x⟩ says how much of the mistake is in y, within its limit over ⟨D, x⟩.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from symattn.attention.enclosing.pattern import Head
from symattn.attention.spec import Attention
from symattn.verification.sharp.blocks import SLACK, Block, Made, block, blocks, every_head, together
from symattn.verification.sharp.directions import directions
from symattn.verification.sharp.limits import Floats, Stores, W, factor, half_ulp
from symattn.verification.sharp.ways import replays, ways

GUARD = 1 / 3  # of the limit: what right replays must need less than
ALIKE = 0.9  # of the largest share: what a mistake has that is told in its place, if it comes before it in the list
_KEPT = 1 << 21  # scores of all heads together, up to which they are kept for a second look


@dataclass(frozen=True)
class Mean:
    """A mean beyond its limit: in which part of the output, what it looks like, and what right replays need of it.

    ``share`` and ``certain`` are how many times it is its limit, and what all roundings can do together, for each of
    ``ways`` at least.
    """

    place: str
    words: str
    share: float
    guard: float
    certain: float

    @property
    def counts(self) -> bool:
        """Whether no law of rounding is needed, or the filter's is supported in these means."""
        return self.certain > 1 or self.guard < GUARD


def judged(
    spec: Attention,
    inputs: Mapping[str, Any],
    how: Stores,
    got: Floats,
    alpha: float,
    rows: Sequence[int],
    made: Made | None = None,
) -> Mean | None:
    """The mean that is farthest beyond its limit, whichever of ``ways`` is taken; None where none is in one of them.

    Where it is and what it looks like is said for the first way, the scale and arrays as given; its share is that of
    the way that has the least. ``got`` (…, r, d_v) are the outputs of the queries in ``inputs``, which are those called
    ``rows``; ``made`` are blocks of the same inputs, which need not be computed again.
    """
    spec, every, _ = every_head(spec, inputs)
    first = best = None
    kept = made or {}
    certain = np.inf
    for taken in zip(*(ways(spec, head, how) for head in every), strict=True):
        scan, kept = _Scan(taken, how, alpha, kept), {}  # they are of the first way alone
        if scan.within(got):  # even limits that are too small are kept, as right outputs mostly do
            return None
        worst = scan.sharpened().worst(got)
        if worst is None or worst[0] <= 1:
            return None
        certain = min(certain, scan.certainty(worst, got))
        first = first or scan.told(worst, rows)
        if best is None or worst[0] < best[0]:
            best = worst[0], scan
    if first is None or best is None:
        return None
    return Mean(*first, best[0], best[1].guard(), certain)


class Limits:
    """σ² and r of directions in the outputs of a block; ``noise`` is the square of that of each element."""

    def __init__(self, b: Block, how: Stores, lam: float) -> None:
        sigma, spread = b.noise(how)
        half = half_ulp(how.last, np.abs(b.o) + lam * sigma)
        self.noise, self.half = sigma**2 + half**2, half**2
        self.o, self.spread = np.nan_to_num(b.o), lam * spread
        self.eta, self.sums = b.least(how)
        self.block, self.how = b, how
        self.last = b.error + float(how.last.u) ** 2 * np.abs(self.o)

    @cached_property
    def w(self) -> Floats:
        """The square of what roundings do to each key, (r, n)."""
        return self.block.squares(self.how)

    @cached_property
    def second(self) -> Floats:
        """Step 3 of each key, (r, n)."""
        return self.block.curvature(self.how, self.spread).astype(np.float32)

    @cached_property
    def values(self) -> Floats:
        """(d_v, n)."""
        return self.block.values.astype(np.float32, copy=False).T

    def least(self, direction: Floats) -> Floats:
        """A lower limit of the σ² of ``of``, (r,): that of the last rounding alone."""
        return self._told(np.vecdot(direction * direction, self.half))

    def _told(self, found: Floats) -> Floats:
        """Of each row, (r,), and 0 where the output is to be NaN, which has no part in a mean."""
        return np.where(self.rows, found, 0.0)

    @cached_property
    def rows(self) -> np.ndarray:
        """Which rows have an output that is a number, (r,)."""
        return np.asarray(np.isfinite(self.block.o).all(axis=1))

    def of(self, direction: Floats) -> tuple[Floats, Floats]:
        """σ² and r of each row, (r,), for D (r, d_v)."""
        largest = np.abs(direction).max(axis=1)
        unit = np.where(largest > 0, largest, 1.0)  # squares of what is small would vanish in float32
        d = direction / unit[:, None]
        a, g = d.astype(np.float32) @ self.values, np.vecdot(d, self.o)
        power, size = a * a, np.abs(a)
        around = np.vecdot(self.w, power)
        apart = around - 2 * g * np.vecdot(self.w, a) + g * g * self.w.sum(axis=1)
        squares = np.maximum(around, apart) * SLACK + self.block.rest(self.how)[:, 0] * g * g
        squares += self.eta[:, 0] * power.sum(axis=1) + self.sums * size.max(axis=1) ** 2
        squares = squares * self.how.linear**2 + self.least(d)
        rest = np.vecdot(self.second, size) * SLACK + (self.second.sum(axis=1) + self.how.mean) * np.abs(g)
        return self._told(squares * unit**2), self._told((rest + np.vecdot(np.abs(d), self.last)) * unit)

    def lawless(self, d: Floats) -> Floats:
        """What ⟨D, y − o⟩ is at most in each row, whatever roundings do, (r,)."""
        b, how = self.block, self.how
        a, g = np.abs(d @ b.values.T), np.abs(np.vecdot(d, self.o))[:, None]
        share = b.p * (b.relative(how)[0] + b.slope(how) * b.sizes)
        second = b.curvature(how, b.worst(how)[1])
        first = ((share + second) * (a + g)).sum(axis=1) + np.sqrt(self.block.rest(how)[:, 0]) * g[:, 0]
        lost = np.sqrt(self.eta[:, 0]) * a.sum(axis=1) + 3 * (len(b.values) + 16) * W * a.max(axis=1)
        half = half_ulp(how.last, np.abs(self.o) + b.lawless(how))
        return self._told((first + lost) * how.linear + np.vecdot(np.abs(d), half + self.last))


def of_mean(spec: Attention, inputs: Mapping[str, Any], how: Stores, weights: Floats, alpha: float) -> float:
    """λ σ + r for one direction, ``weights`` (…, n_q, d_v); ∞ where scores of different queries coincide."""
    spec, every, _ = every_head(spec, inputs)
    lam = factor(1, alpha)
    squares, rest = [], 0.0
    for head in every:
        for b in blocks(spec, head, np.arange(len(head.q))):
            alone = np.isin(np.arange(len(b.rows)), np.unique(b.given["q"], axis=0, return_index=True)[1])
            if _coincide([_below(b, alone)]):
                return float("inf")
            square, more = Limits(b, how, lam).of(weights[head.index][b.rows])
            squares.append(np.sqrt(square))
            rest += float(more.sum())
    together = np.bincount(_groups(np.concatenate([head.q for head in every])), np.concatenate(squares))
    return lam * float(np.sqrt((together**2).sum())) + rest


#: The largest share of a limit: in which kind of part, of which direction and part, θ and its half interval.
Worst = tuple[float, str, tuple[int, ...], float, float]


class _Scan:
    """All directions, in all parts of the output."""

    def __init__(self, taken: Sequence[tuple[Attention, Head]], how: Stores, alpha: float, kept: Made) -> None:
        self.how, self.indices = how, [head.index for _, head in taken]
        self.taken, self.kept = taken, kept
        self.same = _groups(np.concatenate([head.q for _, head in taken]))
        head = taken[0][1]
        n_rows, n_heads = len(head.q), len(taken)
        self.few = n_heads * n_rows * len(head.k) <= _KEPT
        first = next(self._blocks(0))
        self.kept = {**kept, head.index: first} if len(first.rows) == n_rows else kept
        self.names = [d.words for d in directions(first)]
        self.lam = factor(len(self.names) * (1 + n_rows) * (1 + n_heads), alpha)
        shape = (len(self.names), n_heads, n_rows)
        self.squares, self.rest, self.length = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.made = dict[int, list[Limits]]()
        self.weights, self.outputs = dict[int, Floats](), dict[int, Floats]()
        for i in range(n_heads):
            self._look(i)
        self.kept = {}  # what is wanted again is in ``made``

    def _look(self, i: int) -> None:
        """What is kept of a head; of one whose scores coincide nothing."""
        queries, below, made = self.taken[i][1].q, list[Floats](), list[Limits]()
        alone = np.isin(np.arange(len(queries)), np.unique(queries, axis=0, return_index=True)[1])
        weights, outputs = list[Floats](), list[Floats]()
        for b in self._blocks(i):
            below.append(_below(b, alone[b.rows]))
            if b.rows[-1] == len(queries) - 1 and _coincide(below):
                self.squares[:, i] = self.length[:, i] = 0.0
                return
            limits = Limits(b, self.how, self.lam)
            weights.append(self._weights(i, b, limits))
            outputs.append(b.o)
            made += [limits] if self.few else []
        self.weights[i], self.outputs[i] = np.concatenate(weights, axis=1), np.concatenate(outputs)
        if self.few:
            self.made[i] = made

    def _blocks(self, i: int) -> Iterator[Block]:
        """The rows of a head, with all keys, some at a time."""
        spec, head = self.taken[i]
        kept = self.kept.get(head.index)
        if kept is not None and (len(kept.rows), len(kept.values)) == (len(head.q), len(head.k)):
            yield kept
            return
        for rows in together(len(head.q), len(head.k)):
            yield block(spec, head, rows, slice(0, len(head.k)))

    def _limits(self, i: int) -> Iterator[Limits]:
        """The same with their limits, which are made again where those of all heads would take too much memory."""
        if i in self.made:
            return iter(self.made[i])
        return (Limits(b, self.how, self.lam) for b in self._blocks(i))

    def _weights(self, head: int, b: Block, limits: Limits) -> Floats:
        """D for every direction, (m, r, d_v); fills ⟨D, x⟩, and σ² with lower limits."""
        found = []
        for m, direction in enumerate(directions(b)):
            x = np.where(np.isfinite(direction.x), direction.x, 0.0)
            d = np.where(limits.rows[:, None], x / limits.noise, 0.0)
            self.squares[m, head, b.rows], self.length[m, head, b.rows] = limits.least(d), np.vecdot(d, x)
            found.append(d)
        return np.array(found)

    def within(self, got: Floats) -> bool:
        """Whether an output is within limits that are smaller than the right ones."""
        worst = self.worst(got)
        return worst is None or worst[0] <= 1

    def sharpened(self) -> _Scan:
        """The same, with σ² and r as they are."""
        for head, found in self.weights.items():
            for limits in self._limits(head):
                rows = limits.block.rows
                for m, d in enumerate(found[:, rows]):
                    self.squares[m, head, rows], self.rest[m, head, rows] = limits.of(d)
        return self

    def shares(self, outs: Sequence[Floats]) -> Iterator[tuple[str, Floats, Floats, Floats]]:
        """By kind of part, for outputs by head: T over its limit, θ and its half interval, (m, parts)."""
        t = np.zeros(self.squares.shape)
        for (i, d), out in zip(self.weights.items(), outs, strict=True):
            t[:, i] = np.einsum("mrd,rd->mr", d, np.nan_to_num(out - self.outputs[i]))
        for name, axes in (("all", (1, 2)), ("head", (2,)), ("row", (1,)), ("one", ())):
            sums = [a.sum(axis=axes) if axes else a for a in (t, self.rest, self.length)]
            limit = self.lam * np.sqrt(self._squares(axes)) + sums[1]
            with np.errstate(all="ignore"):
                share = np.where(limit > 0, np.abs(sums[0]) / limit, 0.0)
                yield name, share, sums[0] / sums[2], limit / sums[2]

    def _squares(self, axes: tuple[int, ...]) -> Floats:
        """σ² of sums: within groups of equal queries σ adds up."""
        if not axes:
            return self.squares
        flat = self.squares.reshape(len(self.squares), -1)
        inside = np.zeros((len(flat), int(self.same.max()) + 1, *self._parts(axes)))
        part = np.indices(self.squares.shape[1:])[[i for i in (0, 1) if i + 1 not in axes]].reshape(-1, flat.shape[1])
        np.add.at(inside.swapaxes(0, 1), (self.same, slice(None), *part), np.sqrt(flat).T)
        return np.asarray((inside**2).sum(axis=1))

    def _parts(self, axes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.squares.shape[i] for i in (1, 2) if i not in axes)

    def worst(self, got: Floats) -> Worst | None:
        """The largest share in an output; None where scores coincide in every head."""
        return self.largest([got[self.indices[i]] for i in self.weights]) if self.weights else None

    def largest(self, outs: Sequence[Floats]) -> Worst | None:
        """The same for outputs by head, of those heads that are looked at."""
        best = None
        for name, share, theta, off in self.shares(outs):
            flat = share.reshape(len(share), -1)
            part = int(flat.max(axis=0).argmax())
            top = float(flat[:, part].max())
            m = int((flat[:, part] >= ALIKE * top).argmax())
            at = m, *(int(i) for i in np.unravel_index(part, share.shape[1:]))
            if best is None or top > best[0]:
                best = top, name, at, float(theta[at]), abs(float(off[at]))
        return best

    def certainty(self, worst: Worst, got: Floats) -> float:
        """The mean that is farthest beyond its limit, in parts of what all roundings can do together."""
        _, name, (m, *at), _, _ = worst
        total = limit = 0.0
        for i, d in self.weights.items():
            if name in ("head", "one") and i != at[0]:
                continue
            rows = slice(None) if name in ("all", "head") else slice(at[-1], at[-1] + 1)
            total += float(np.vecdot(d[m], np.nan_to_num(got[self.indices[i]] - self.outputs[i]))[rows].sum())
            lawless = [limits.lawless(d[m, limits.block.rows]) for limits in self._limits(i)]
            limit += float(np.concatenate(lawless)[rows].sum())
        return abs(total) / limit if limit > 0 else 0.0

    def told(self, worst: Worst, rows: Sequence[int]) -> tuple[str, str]:
        """In which part of the output a mean is, and what it looks like."""
        _, name, (m, *at), theta, off = worst
        head = f"head {list(self.indices[at[0]])}" if name in ("head", "one") and self.indices[0] else ""
        row = f"row {rows[at[-1]]}" if name in ("row", "one") else ""
        return ", ".join(filter(None, (head, row))) or "of all rows", self.names[m](theta, off)

    def guard(self) -> float:
        """The largest share of right replays."""
        made = zip(*(self._replayed(i) for i in self.weights), strict=True)
        return max((found[0] for outs in made if (found := self.largest(outs))), default=0.0)

    def _replayed(self, i: int) -> list[Floats]:
        """What each right contract returns for a head."""
        parts = [list(replays(limits.block, self.how)) for limits in self._limits(i)]
        return [np.concatenate(outs) for outs in zip(*parts, strict=True)]


def _groups(queries: Floats) -> np.ndarray:
    """The same number for equal queries of all heads, head by head."""
    _, number = np.unique(queries, axis=0, return_inverse=True)
    return np.asarray(number).reshape(-1)


def _below(b: Block, alone: np.ndarray) -> Floats:
    """The different scores of the queries ``alone``, (r,), relative to their largest."""
    t = b.ordered[alone]
    own = np.isfinite(t)
    own[:, 1:] &= t[:, 1:] != t[:, :-1]
    with np.errstate(all="ignore"):
        below = (t - t.max(axis=1, keepdims=True))[own]
    return np.asarray(below[below < 0])


def _coincide(scores: Sequence[Floats]) -> bool:
    """Whether scores of different queries, as ``_below`` has them, are equal, so that their roundings are, too."""
    below = np.sort(np.concatenate(scores))
    equal = int((below[1:] - below[:-1] <= 2.0**-40).sum())
    return equal > max(2, len(below) // 200)
