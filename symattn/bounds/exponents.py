"""Steps 1 to 3 of ``worst_case`` in floats, for some rows: weights, and the exponents a_j, s_j and b_j.

What is signed or must be sharp is float64: scores, and the weights p̂ made of them. All else is made of nonnegative
numbers by + × ÷ and maxima, in float32 where that is fine enough for the ranges at hand (``kind``), with the roundoff
w of that format. Each number passes fewer than 100 roundings, so that an exponent x is too small by at most 100 w x,
and e^x − 1 by a part of at most 100 w (1 + x); ``float_worst_case`` makes up for it.

Weights: with r the largest error |t̂ − t| of a score in a row, p̂ = p e^δ with |δ| ≤ ϖ = 2 (2r + u max|x|) + (n + 20) u
+ 3 ε for x = t̂ − m̂, u = 2⁻⁵³, ε that of the exponential in w's format, but for the roundings of p̂ in that format.
Arguments below its range are raised to it, and weights below the normal numbers to the least of these: then p̂ is too
large, by at most ``raised``, and the bound grows with every p, but for A. So p ≤ p̂ (1 + 1.1ϖ) wherever p stands, |t| ≤
|t̂| + r, and m − t ≤ −x + 2r. In rows with ϖ > 2⁻¹⁹, or a_j beyond 600, nothing is known of the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp as e_to
from math import log, prod
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from symattn.arrays.enclosing.bounds import U
from symattn.arrays.enclosing.exponential import EPSILON, exp_moderate
from symattn.arrays.formats import Format
from symattn.arrays.precision import Precision
from symattn.bounds import rule
from symattn.bounds.growth import DEEPEST, FARTHEST, SINGLE, g, rate, single

Floats = NDArray[Any]

_KNOWN = 2.0**-19  # weights with a larger relative error count as unknown
# Arguments below are raised to it: e^−708 is the least normal number of float64.
_DEEP = 700.0
_FEW = 64  # limits on rescalings up to this are taken without counting
_NUMBERS = rule.NumberKind(g, rate, np.maximum, lambda x: x.max(axis=-1, keepdims=True))


class ScoreExponents(NamedTuple):
    """Scores t̂ (…, rows, n) of the keys in ``open_``, 0 elsewhere; r; τ_j; the largest sum of absolute values.

    ``tau`` is of the type that the bound is computed in. r, the largest sums and ``shift``, by how much a row may be
    shifted, are (…, rows, 1).
    """

    t: NDArray[np.float64]
    r: NDArray[np.float64]
    open_: NDArray[np.bool_]
    tau: Floats
    largest: NDArray[np.float64]
    sink: bool = False  # the last key is a sink
    every: bool = False  # all keys are in ``open_``
    shift: Any = 0.0
    far: Any = False  # the row has allowed keys that count as forbidden, (…, rows, 1)


def least_far_distance(precision: Precision) -> float:
    """Return L + 1 of step 7 of ``worst_case``: no key is far below another one if scores are less apart."""
    # The 1 covers roundings.
    return 4 - log(float(min(precision.score.eta, precision.accumulate.eta)))


def far_below(
    t: Floats, tau: Floats, open_: NDArray[np.bool_], reach: np.ndarray, precision: Precision
) -> NDArray[np.bool_]:
    """Return which open keys (…, n) step 7 of ``worst_case`` forbids; t may be off by ``reach``, ``tau`` is τ'_j.

    L is larger by 1, and each part by 2⁻⁴⁰ of itself, than in the statement, which covers the roundings here.
    """
    p = precision
    least = least_far_distance(p)
    with np.errstate(all="ignore"):
        t = np.where(open_, t, -np.inf)
        top = t.argmax(axis=-1)[..., None]
        m, own = (np.take_along_axis(x, top, axis=-1) for x in (t, tau))
        rounded = g(2, p.score) * (np.abs(m) + own)
        lost = tau + own + rounded + 2 * reach
        difference = (m - t) * (1 - 2.0**-40)
        rounding_of_row = 1 - g(3, p.score)
        rounded_difference = difference - lost * (1 + 2.0**-40)
        result = rounded_difference * rounding_of_row >= least
    return np.asarray(result & open_ & np.isfinite(m))


def stored(tau: Any, t: Any, precision: Precision, g: Callable[[int, Format], Any] = g) -> Any:
    """Return τ'_j from τ_j and |t_j|, in floats or in the numbers of g(n)."""
    p = precision
    tau = tau + g(2, p.between) * (t + tau)
    if p.kept is None:
        return tau
    stored_size = t + tau
    eta = float(p.kept.eta)
    return tau + g(1, p.kept) * stored_size + eta


class Exponents:
    """The exponents for rows of heads; all but numbers of a row (float64) have the type ``kind``.

    ``values`` counts the roundings of a value before it is multiplied by its weight.
    """

    def __init__(self, precision: Precision, scores: ScoreExponents, values: int = 0) -> None:
        self.precision = precision
        self.scores = scores
        self.kind = scores.tau.dtype
        self.roundoff = float(np.finfo(self.kind).eps) / 2
        self.n = scores.t.shape[-1]
        key_counts = (
            np.full((*scores.t.shape[:-1], 1), self.n)
            if scores.every
            else scores.open_.sum(axis=-1, keepdims=True)
        )
        self.all = scores.every or bool((key_counts == self.n).all())
        self.counts = rule.Counts(precision, self.n, key_counts, values)
        eps = 2 * precision.exp_ulps * float(precision.score.u)
        # ε' of step 2, enlarged for the roundings of this line.
        self.eps = eps / (1 - eps) * (1 + 4 * U)
        self.lam = rate(precision.accumulate)
        self._set_weights_and_falls()
        # |t_j|, τ'_j and τ*.
        self.t = scores.t.astype(self.kind)
        np.abs(self.t, out=self.t)
        self.t += self._broadcast_number_per_row(self.r + scores.shift)
        self.tau = stored(scores.tau, self.t, precision)
        # A sink's logit is read, scaled and stored: τ' = g(6)|z| (variants).
        if scores.sink:
            self.tau[..., -1:] = g(6, precision.between) * self.t[..., -1:]
        if not self.all:
            self.tau *= scores.open_
        self.star = self.tau.max(axis=-1, keepdims=True).astype(np.float64)
        self._set_exponents_by_rule()
        largest = [
            x.max(axis=-1, keepdims=True).astype(np.float64)
            for x in (self.a, self.alone, self.below)
        ]
        self.farthest, self.most_alone, self.most_below = largest
        # Rows without a usable weight, which get no bound.
        self.unknown = (self.weight_error > _KNOWN) | (self.farthest > FARTHEST)

    def _broadcast_number_per_row(self, x: object) -> Floats:
        """Return a number for each row, in the type of the rest."""
        return np.asarray(x, dtype=np.float64).astype(self.kind)

    def _set_weights_and_falls(self) -> None:
        s = self.scores
        t = s.t if self.all else np.where(s.open_, s.t, -np.inf)
        self.m = t.max(axis=-1, keepdims=True)
        # A row without any key gets the maximum 0, so that differences stay finite.
        self.m[np.isneginf(self.m)] = 0.0
        p = s.t - self.m
        # The exponential cannot take forbidden scores; their weights are set to 0 below.
        if not self.all:
            np.copyto(p, 0.0, where=~s.open_)
        self.fall = p.astype(self.kind)
        np.negative(self.fall, out=self.fall)
        self.deepest = deepest = self.fall.max(axis=-1, keepdims=True).astype(np.float64)
        self.r = s.r
        exp, error, deep = (
            (exp_moderate, EPSILON, _DEEP) if self.kind == p.dtype else (single, SINGLE, DEEPEST)
        )
        of_exponents = 2 * (2 * self.r + 2 * U * deepest)
        self.weight_error = of_exponents + (self.n + 20) * U + 3 * error
        # Weights at the end of the range become too large, never too small: see ``raised``.
        if deepest.max(initial=0.0) > deep:
            np.maximum(p, -deep, out=p)
        self.p = exp(p)
        if not self.all:
            np.copyto(self.p, 0.0, where=~s.open_)
        # A product with ones sums in float64 at the speed of BLAS.
        total = self.p.astype(np.float64, copy=False) @ np.ones((self.n, 1))
        # A row without any key.
        total[total == 0] = 1.0
        self.p *= self._broadcast_number_per_row(1 / total)
        tiny = float(np.finfo(self.kind).tiny)
        self.raised = 2 * max(tiny, e_to(-deep))  # by which a weight may be too large
        if deepest.max(initial=0.0) > -log(tiny) - log(self.n) - 1:  # else all weights are larger
            np.maximum(self.p, tiny, out=self.p, where=True if self.all else s.open_)

    def _set_exponents_by_rule(self) -> None:
        """Set a_j, s_j and b_j by the rule, in the type of the rest."""
        p, c, s = self.precision, self.counts, self.scores
        self.times = self._count_rescalings_in_floats()
        # m − t_j, of which both scores may be off by r.
        self.fall += self._broadcast_number_per_row(2 * self.r)
        if s.sink:
            self._enlarge_fall_of_sink()
        m, star = (
            self._broadcast_number_per_row(np.abs(self.m) + self.r + s.shift),
            self._broadcast_number_per_row(self.star),
        )
        of_factors = rate(p.factors) if p.factors is not None else 0.0
        values = c.values * rate(p.roughest) + of_factors
        # Enlarged, as log() may round down.
        log_n = log(self.n) * (1 + 4 * U)
        rule_givens = rule.RuleGivens(
            self.tau,
            self.t,
            self.fall,
            self.times,
            m,
            star,
            log_n,
            self.eps,
            values,
        )
        counted: Any = SimpleNamespace(
            below=self._broadcast_number_per_row(c.below),
            alone=c.alone,
            merges=c.merges,
            room=c.room,
        )
        result = rule.exponents(rule_givens, p, counted, _NUMBERS)
        grown = np.asarray(result.grown, dtype=np.float64)
        self.grown = np.broadcast_to(grown, self.m.shape)
        self.a = result.a
        self.below = result.below
        self.alone = np.atleast_2d(np.asarray(result.alone, dtype=self.kind))
        if not self.all:
            self.a *= s.open_

    def _enlarge_fall_of_sink(self) -> None:
        """Set m − t_j of a sink to its distance from the largest of the other scores, if that is more."""
        s = self.scores
        open_keys = s.open_[..., :-1]
        # The sink itself is left out of the maximum that it is compared with.
        keys = np.where(open_keys, s.t[..., :-1], -np.inf)
        last = keys.max(axis=-1, keepdims=True, initial=-np.inf)
        raised = np.abs(self.m - last) + 2 * self.r
        # Without any visible key the sink is alone, and nothing falls.
        above = np.where(np.isneginf(last), 0.0, raised)
        self.fall[..., -1:] = np.maximum(self.fall[..., -1:], above)

    def _count_rescalings_in_floats(self) -> Any:
        """Return B_j, or one number for all keys."""
        # A small limit holds for every key: counting would cost more than it gains.
        most = self.precision.rescalings
        if most is not None and most <= _FEW < self.n:
            return float(min(most, self.n - 1))
        # Float scores are off by r and by roundings, which widen each key's interval.
        s = self.scores
        of_maximum = 4 * U * np.abs(self.m)
        more = self.r + of_maximum + 2 * self.roundoff * self.deepest
        # Few pairs are compared exactly; buckets are linear in n and count a little more.
        if prod(self.t.shape[-2:]) * self.n <= PAIRWISE:
            values = compared(
                self.fall,
                self.tau * (4 / 3)
                + np.where(self.tau > 0, self._broadcast_number_per_row(more), 0),
                s.open_,
            )
        else:
            reach = 2.1 * (4 / 3 * self.star + more)
            values = in_buckets(self.fall, self.deepest, reach, None if self.all else s.open_)
        return values if most is None else np.minimum(values, most)


# -- how many keys have larger scores ----------------------------------------------------------------------------------
PAIRWISE = 1 << 20  # pairs of keys of a head that are compared one by one, at most
# Buckets of a row, and the fall beyond which every other key counts (e^−40 < 10⁻¹⁷).
_BUCKETS, _DEEPEST = 256, 40.0


def compared(fall: Floats, off: Floats, open_: NDArray[np.bool_]) -> Floats:
    """Return #{i ≠ j: off_i − fall_i > −off_j − fall_j} for keys in ``open_``, else 0. All shapes (…, rows, n)."""
    high = np.where(open_, off - fall, -np.inf)
    low = -off - fall
    # Key i is above key j if its upper end exceeds the lower end of j.
    above = high[..., None, :] > low[..., :, None]
    # The diagonal, a key against itself, does not count.
    result = above.sum(axis=-1) - np.einsum("...jj->...j", above)
    return np.where(open_, result, 0).astype(fall.dtype)


def in_buckets(
    fall: Floats, deepest: Floats, reach: Floats, open_: NDArray[np.bool_] | None = None
) -> Floats:
    """Return at least #{i ≠ j: fall_i < fall_j + reach}; ``deepest`` (max fall) and ``reach`` are (…, rows, 1), and
    ``open_`` None: all keys.

    A key is counted if its bucket is at most ⌈reach⌉ + 1 after that of fall_j: the map from numbers to buckets is
    nondecreasing, and off by less than half a bucket. For a key whose fall is more than 40, e^−40 < 10⁻¹⁷, every other
    key is counted.
    """
    rows, kind = prod(fall.shape[:-1]), fall.dtype
    if not np.isfinite(deepest + reach).all():  # nothing is known of the scores
        return np.full(fall.shape, fall.shape[-1] - 1, kind)
    # 1e-30 avoids a quotient beyond the range for scores that nearly coincide.
    per_step = _BUCKETS / (np.minimum(_DEEPEST, deepest) + 1e-30)
    factor = np.where(deepest > 0, per_step, 0).astype(kind)
    place = fall * factor
    if deepest.max(initial=0) > _DEEPEST:
        np.minimum(place, kind.type(_BUCKETS), out=place)
    # Rounded up by a whole bucket, for the rounding of ``place`` and of this product.
    reached = np.ceil(reach * factor) + 1
    further = np.minimum(reached, _BUCKETS).astype(np.int64)
    most = int(further.max(initial=0))
    width = _BUCKETS + 1 + most
    small = place.astype(np.int32)
    # Each row has a range of buckets, so that one bincount serves all rows.
    small += (np.arange(rows, dtype=np.int32) * width).reshape(deepest.shape)
    index = small.astype(np.int64)
    counts = np.bincount(
        index.ravel() if open_ is None else index[open_], minlength=rows * width
    ).reshape(-1, width)
    # One less in every cumulated count, since each key would count itself.
    counts[:, 0] = np.maximum(counts[:, 0] - 1, 0)  # a row without any key has none to leave out
    above = np.cumsum(counts, axis=-1).astype(kind).ravel()
    # One offset for all rows needs no second array of indices.
    one_offset = (further == most).all()
    return np.asarray(above[most:].take(index) if one_offset else above.take(index + further))
