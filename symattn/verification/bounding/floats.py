"""The bound of ``bounds`` in float64, for rows of plain attention: vectorised, and rounded up.

Names are those of the statement there. Given are, for some rows of queries, scores t̂ and sums |t|^ of absolute
values as float64 made them, with |t̂ − t| ≤ ω |t|^ for the ω given (``off``), and the values. What is computed is not
below the bound that exact arithmetic gives, for these reasons.

1. Everything but the scores' differences, weights and outputs is made of nonnegative numbers by + × ÷, maxima and
   sums of at most n + d numbers, so that each number is off by a part below (n + d + 500) u of it, and e to an
   exponent of at most 600 by a part below 601 of these. ``enlarged`` makes up for both with one factor at the end,
   and with 10⁻²⁹⁰ for what underflows. Subtracted is only in 1 − share and in the divisor of step 6, of which 2⁻³⁰ is
   taken off before.
2. Let r = ω max |t|^ be the largest error of a score of the row. The weights p̂ are those of t̂ by the proved
   exponential: p̂ = p e^δ, |δ| ≤ ϖ = 2 (2r + u max|x|) + (n + 20) u, where x = t̂ − m̂. Arguments below −700 are
   raised to it: then p̂ is too large, and each increases what follows, which is the bound. So p ≤ p̂ (1 + 1.1ϖ)
   wherever p stands, |t| ≤ |t̂| + r, m − t ≤ −x + 2r, and |o − ô| ≤ (1.1ϖ + (n + 20) u) X̂ + n 10⁻³⁰⁰ max|v|.
3. In rows with ϖ > 2⁻²⁰, or a_j beyond 600, weights are not known: there p̂ = w = 1 for each key, o is somewhere
   between the least and the largest value, and W is their distance.
4. A = Σ p e^{−a} ≥ 1 − Σ p (e^a − 1), and where that is below 1/2, A = Σ p/e^a is summed.
5. Σ_j s_j |v_j − o| for s_j = p_j (e^{a_j} − 1) is computed for few keys. For many, it is at most Σ s|v| + |o| Σ s,
   and at most √(Σ s · Q), Q = Σ s (v − o)², by Cauchy and Schwarz; with v' = v − c and o' = o − c for a number c of
   the column, Q = Σ s v'² − 2 o' Σ s v' + o'² Σ s, to which 8 (n + 20) u (Σ s v'² + o'² Σ s) is added for roundings.
6. B_j is counted by ``ranks``, from larger errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symattn.arrays.enclosing.exponential import EPSILON, exp, exp_moderate
from symattn.arrays.precision import Precision
from symattn.verification.bounding.counts import Counts
from symattn.verification.bounding.growth import FARTHEST, g, growth, growth_of, rate
from symattn.verification.bounding.ranks import larger_scores

Floats = NDArray[np.float64]

U = 2.0**-53
_KNOWN = 2.0**-20  # weights are known to this part, or not at all
_DEEP = 700.0
_EACH = 1 << 16  # products of a weight and a value that are made one by one


@dataclass(frozen=True)
class Values:
    """The values of all keys, a sink's row of zeros among them, and what is made of them once."""

    v: Floats
    sizes: Floats
    centre: Floats
    beside: Floats  # |v|, v', v'² side by side, for one product
    least: Floats
    most: Floats

    @classmethod
    def of(cls, v: Floats) -> Values:
        """All of them for v (n, d_v)."""
        centre = v.mean(axis=0, keepdims=True)
        apart = v - centre
        sizes = np.abs(v)
        beside = np.concatenate([sizes, apart, apart * apart], axis=1)
        return cls(v, sizes, centre, beside, v.min(axis=0, keepdims=True), v.max(axis=0, keepdims=True))


@dataclass(frozen=True)
class Scores:
    """Scores (rows, n) of the keys in ``open_``, 0 elsewhere; sums of absolute values; the error of t̂; τ_j."""

    t: Floats
    sizes: Floats
    open_: NDArray[np.bool_]
    off: float
    tau: Floats
    sink: bool


@dataclass(frozen=True)
class Found:
    """M for some rows, (rows, d_v); |o|, rounded up; what is inf; and shares by step, before they are summed."""

    moved: Floats
    size: Floats
    vanishes: NDArray[np.bool_]
    shares: dict[str, Floats]


class Rows:
    """The bound before the output's rounding, for some rows of one head."""

    def __init__(self, precision: Precision, scores: Scores, values: Values, shares: bool = False) -> None:
        self.precision, self.scores, self.values, self.wanted = precision, scores, values, shares
        self.n = scores.t.shape[1]
        self.all = bool(scores.open_.all())
        self.counts = Counts(precision, self.n, scores.open_.sum(axis=1, keepdims=True))
        self.eps = 2 * precision.exp_ulps * float(precision.score.u)
        self.eps = self.eps / (1 - self.eps) * (1 + 4 * U)
        self.log_n = log(self.n) * (1 + 4 * U)
        self.lam = rate(precision.accumulate)
        self._weights()
        self._exponents()
        self._factors()

    # -- exact weights -------------------------------------------------------------------------------------------
    def _weights(self) -> None:
        s = self.scores
        self.m = (
            np.where(s.open_, s.t, -np.inf).max(axis=1, keepdims=True) if not self.all else s.t.max(1, keepdims=True)
        )
        self.m[np.isneginf(self.m)] = 0.0
        self.x = s.t - self.m
        np.minimum(self.x, 0.0, out=self.x)
        if not self.all:
            self.x[~s.open_] = 0.0
        deepest = self.x.min(axis=1, keepdims=True)
        self.r = s.off * s.sizes.max(axis=1, keepdims=True)
        self.weight_error = 2 * (2 * self.r - U * deepest) + (self.n + 20) * U + 4 * EPSILON
        p = np.maximum(self.x, -_DEEP)
        exp_moderate(p)
        if not self.all:
            p *= s.open_
        total = p.sum(axis=1, keepdims=True)
        total[total == 0] = 1.0
        p /= total
        self.p = p

    # -- steps 1 to 3 --------------------------------------------------------------------------------------------
    def _exponents(self) -> None:
        """τ'_j, a_j, s_j and b'_j."""
        s, p, c, f = self.scores, self.precision, self.counts, self.precision.score
        t = np.abs(s.t)
        t += self.r
        tau, fine = s.tau, g(2, p.between)
        tau = tau + fine * (t + tau)
        if p.kept is not None:
            tau = tau + (g(1, p.kept) * (t + tau) + float(p.kept.eta))
        if s.sink:
            tau[:, -1:] = g(6, p.between) * t[:, -1:]
        if not self.all:
            tau *= s.open_
        star = tau.max(axis=1, keepdims=True)
        m, log_n = np.abs(self.m) + self.r, self.log_n
        rescaled = self._rescalings(tau)
        fall = self._fall()
        two, three, four, six = (g(k, f) for k in (2, 3, 4, 6))
        first = two * t
        first += two * (m + 2 * star) + three * 2 * star + self.eps
        falling = three * fall
        first += falling
        first += self.eps * rescaled
        sums = c.below * self.lam
        least = first + self.lam * rescaled
        spread = 2 * star + log_n
        grown = least.max(axis=1, keepdims=True) + sums + four * (m + spread) + 2 * self.eps * log_n
        spread = spread + grown
        a = first
        falling += three * (spread) + self.eps  # r'_j
        if p.lse:
            a = np.maximum(first, falling)
        a = a + tau
        merging = six * t
        merging += six * (m + spread) + 2 * self.eps * (log_n + grown) + self.eps
        merging *= c.merges / c.room(six + 2 * self.eps) * (1 + 4 * U)
        alone = self.lam * rescaled
        below = alone + sums
        alone = alone + (c.alone * self.lam + (rate(p.factors) if p.factors is not None else 0.0))
        alone += merging
        if p.lse:
            falling += first
            falling += four * (m + spread) + 2 * self.eps * (log_n + grown)
            merging = np.maximum(merging, falling)
        below = below + merging
        if not self.all:
            a *= s.open_
        self.tau, self.a, self.alone, self.below, self.rescaled, self.t = tau, a, alone, below, rescaled, t

    def _fall(self) -> Floats:
        """m − t_j, or for a sink how far it is from the largest of the other scores, if that is more."""
        fall: Floats = 2 * self.r - self.x
        if self.scores.sink:
            s = self.scores
            last = np.where(s.open_[:, :-1], s.t[:, :-1], -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
            above = np.where(np.isneginf(last), 0.0, np.abs(self.m - last) + 2 * self.r)
            fall[:, -1:] = np.maximum(fall[:, -1:], above)
        return fall

    def _rescalings(self, tau: Floats) -> Any:
        most = self.precision.rescalings
        if most is not None and most <= 64 and self.n > 64:
            return np.full_like(tau, min(most, self.n - 1))
        found = larger_scores(self.x, tau * (4 / 3) + (self.r + 4 * U * np.abs(self.m)), self.scores.open_)
        return self.counts.rescalings(found)

    def _factors(self) -> None:
        """e^a − 1, A, w and the rows of which nothing is known."""
        unknown = (self.weight_error > _KNOWN) | (self.a.max(axis=1, keepdims=True) > FARTHEST)
        self.unknown = unknown
        grown = growth(self.a)
        s = self.p * grown
        low = 1 - s.sum(axis=1, keepdims=True)
        if low.min(initial=1.0) < 0.5:
            low = (self.p / (1 + grown)).sum(axis=1, keepdims=True)
            low[low == 0] = 1.0
        up = (1 + 1.1 * np.minimum(self.weight_error, 1.0)) / (low * (1 - 2.2 * np.minimum(self.weight_error, 0.25)))
        s *= up
        self.moving = s  # p_j (e^{a_j} − 1) / A
        self.w = np.minimum(self.p * up + s, 1.0)
        if unknown.any():
            rows = unknown[:, 0]
            self.w[rows] = self.scores.open_[rows]
            self.moving[rows] = self.w[rows]

    # -- steps 4 to 6 --------------------------------------------------------------------------------------------
    def found(self) -> Found:
        """M."""
        v, p = self.values, self.precision
        lam_p = rate(p.stored)
        whole = self.w @ v.sizes
        leaving = growth(self.alone)
        leaving *= self.w
        apart = leaving @ v.sizes
        lost = np.einsum("ij,ij->i", self.w, growth(self.below))[:, None] * growth_up(2 * lam_p)
        o, off = self._outputs(whole)
        size = np.abs(o) + off
        moved, spread = self._moved(o, off, whole, size)
        kept = np.maximum((spread + moved) * growth_up(lam_p), whole + apart) * growth_of(lam_p)
        centre = size + moved + kept
        sums = self._sums(whole + apart, centre + apart)
        factor = (lost + 1) * growth_up(2 * lam_p)
        total = moved + kept + lost * centre + factor * (apart + sums)
        underflow, vanishes = self._underflow(lost)
        total = total + underflow
        far = (self.alone.max(axis=1, keepdims=True) > FARTHEST) | (self.below.max(axis=1, keepdims=True) > FARTHEST)
        total = np.where(far | np.isnan(total), np.inf, total)
        shares = (
            self._shares(moved, kept, lost * centre, factor * apart, factor * sums, underflow) if self.wanted else {}
        )
        return Found(total, size, vanishes[:, 0], shares)

    def _outputs(self, whole: Floats) -> tuple[Floats, Floats]:
        v, n = self.values, self.n
        o = self.p @ v.v
        largest = np.maximum(np.abs(v.least), np.abs(v.most))
        off = (1.1 * np.minimum(self.weight_error, 1.0) + (n + 20) * U) * whole + n * 1e-300 * largest
        if self.unknown.any():
            middle, half = (v.most + v.least) / 2, (v.most - v.least) / 2 * (1 + 4 * U) + 4 * U * largest
            o, off = np.where(self.unknown, middle, o), np.where(self.unknown, half, off)
        return o, off

    def _moved(self, o: Floats, off: Floats, whole: Floats, size: Floats) -> tuple[Floats, Floats]:
        """W, and Y."""
        v, s, n = self.values, self.moving, self.n
        d = v.v.shape[1]
        if s.size * d <= _EACH:
            away = np.abs(v.v[None] - o[:, None, :]) + off[:, None, :]
            moved = np.einsum("ij,ijc->ic", s, away)
            far = np.where(self.scores.open_[:, :, None], away, 0).max(axis=1)
            spread = np.minimum(np.einsum("ij,ijc->ic", self.w, away), whole + size)
            return np.minimum(moved, far), spread
        total = s.sum(axis=1, keepdims=True)
        products = s @ v.beside
        straight, first, second = products[:, :d], products[:, d : 2 * d], products[:, 2 * d :]
        near = o - v.centre
        positive = second + near * near * total
        q = np.maximum(positive - 2 * near * first, 0) + 8 * (n + 20) * U * positive
        moved = np.minimum(straight + size * total, np.sqrt(q * total) + off * total)
        far = np.maximum(v.most - o, o - v.least) + off
        return np.minimum(moved, far), whole + size

    def _sums(self, sizes: Floats, total: Floats) -> Floats:
        """E."""
        by_path = growth(self.counts.path * self.lam) * sizes
        events = self.counts.partial_sums
        if events is None:
            return by_path
        share = events * float(self.precision.accumulate.u)
        small = share < 0.5
        share = np.where(small, share, 0.0)
        return np.where(small, np.minimum(by_path, share / (1 - share) * (sizes + total) / 2), by_path)

    def _underflow(self, lost: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        p, v, n = self.precision, self.values, self.n
        kappa = self.counts.underflowing
        factor = (
            growth(self.alone.max(axis=1, keepdims=True) + self.counts.path * self.lam + 2 * rate(p.stored)) + 1
        ) * (lost + 1)
        rise = self._without_subtraction()
        every, weight = rise * (float(max(p.score.eta, p.accumulate.eta)) * kappa), rise * float(p.stored.eta)
        below = (1 - 2.0**-30) / (1 + growth(self.below.max(axis=1, keepdims=True))) - (every + weight) * n
        vanishes = below <= 0
        below = np.where(vanishes, 1.0, below)
        total, most = v.sizes.sum(axis=0, keepdims=True), v.sizes.max(axis=0, keepdims=True) * factor
        return ((every + weight) * (total + most * n) + every * n) / below, vanishes

    def _without_subtraction(self) -> Floats:
        """e^{−m} where no maximum need be subtracted and the largest exponential is below 1, else 1."""
        p = self.precision
        lowest = log(float(min(p.score.smallest_normal, p.accumulate.smallest_normal)))
        return exp(np.where(self.m >= lowest - self.r, np.maximum(self.r - self.m, 0.0), 0.0)) * (1 + 4 * EPSILON)

    # -- by step -------------------------------------------------------------------------------------------------
    def _mean(self, x: Any) -> Floats:
        """Σ w_j x_j."""
        return np.asarray(np.einsum("ij,ij->i", self.w, np.broadcast_to(x, self.w.shape))[:, None])

    def _shares(
        self, moved: Floats, kept: Floats, lost: Floats, apart: Floats, sums: Floats, underflow: Floats
    ) -> dict[str, Floats]:
        """Parts of M by step, to first order, for ``per_element`` to scale: each exponent's mean over the weights."""
        every, scores, times = self._mean(self.a) + 1e-300, self._mean(self.tau), self._mean(self.rescaled)
        rescaling = np.minimum(times * self.eps, every - scores)
        alone, below = self._mean(self.alone) + 1e-300, self._mean(self.below) + 1e-300
        again, added = times * self.lam / alone, self.counts.below * self.lam / below
        single = self.counts.alone * self.lam / alone
        return {
            "scores": moved * scores / every,
            "exponent": moved * (every - scores - rescaling) / every,
            "rescaling": moved * rescaling / every + apart * again + lost * times * self.lam / below,
            "sums": sums + apart * single + lost * added,
            "merging": np.maximum(apart * (1 - again - single), 0) + np.maximum(lost * (1 - added), 0),
            "stored weights": kept,
            "underflow": underflow,
        }


def growth_up(x: float) -> float:
    """e^x, rounded up."""
    return 1 + growth_of(x) + 2 * U
