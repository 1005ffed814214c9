"""The bound of ``worst_case`` in floats, for rows of plain attention: vectorised, and rounded up.

Names are those of the statement there; weights and exponents are those of ``exponents``, sums those of ``distances``,
and u = 2⁻⁵³, w the roundoff of the type that most is computed in. What is computed is not below the bound that exact
arithmetic gives, for these reasons.

1. Exponents lack at most a part 100 w, so e^a − 1, e^s − 1, e^b − 1 at most 100 w (1 + x), x the largest of them,
   which is at most 600: beyond, nothing is said. Weights, products and sums of n numbers lack 2 (n + 4) w + 6 w more.
   All sums are enlarged by that where they are made (``up`` is the first of these), and are float64 from there on.
2. A = Σ p e^{−a} is at least 1 − Σ p (e^a − 1) and e^{−max a}, and where these are below 0.98, A = Σ p/e^a is summed,
   and reduced by as much, and by what raised weights add.
3. With p ≤ p̂ (1 + 1.1ϖ), w and p (e^a − 1)/A have the factor (1 + 1.1ϖ)/(A (1 − 1.2ϖ)), and |o − ô| ≤
   (1.1ϖ + 2 (n + 20) w) X and what underflows. In rows of whose weights nothing is known, w = 1 for each key, o is
   somewhere between the least and the largest value, and W is their distance.
4. What follows is made of fewer than 100 nonnegative numbers of float64; ``enlarged`` makes up for their roundings.
   Subtracted is only in 1 − share, in chords (see ``distances``) and in the divisor of step 6, of which 2⁻³⁰ is taken
   off before.
"""

from __future__ import annotations

from math import log, prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from symattn.arrays.enclosing.bounds import U
from symattn.arrays.enclosing.exponential import EPSILON, Floats, exp
from symattn.arrays.precision import Precision
from symattn.bounds import rule
from symattn.bounds.distances import ValueColumns
from symattn.bounds.exponents import Exponents, ScoreExponents
from symattn.bounds.growth import FARTHEST, g, growth, growth_of, power_up, rate

_ROUGH = 0.98  # A is summed if its lower bound is less
_EACH = 1 << 16  # most products of a head's weights and values that are computed one by one


class SlackTerms(NamedTuple):
    """The terms of M: W, P, (G' − 1)(|o| + W + P), S and E with their factor G' e^{2λ_P}, and underflow."""

    moved: Floats
    kept: Floats
    lost: Floats
    apart: Floats
    sums: Floats
    factor: Floats
    underflow: Floats


class RowBounds(NamedTuple):
    """M for some rows, (…, rows, d_v); |o|, rounded up; rows whose sum may underflow to nothing; the terms of M."""

    moved: Floats
    size: Floats
    vanishes: NDArray[np.bool_]
    parts: SlackTerms


class Rows:
    """The bound before the output's rounding, for some rows of each of some heads."""

    def __init__(self, precision: Precision, scores: ScoreExponents, values: ValueColumns) -> None:
        self.precision = precision
        self.scores = scores
        self.values = values
        self.exponents = Exponents(precision, scores, values.terms)
        e = self.exponents
        # One number for each head, by which its sums are enlarged.
        highest = [
            x.max(axis=-2, keepdims=True, initial=0.0)
            for x in (e.farthest, e.most_alone, e.most_below)
        ]
        self.highest = [float(x.max()) for x in highest]
        largest_exponent = np.maximum(highest[0], np.maximum(*highest[1:]))
        self.up = (
            # ``up`` of the docstring, 1: 100 w (1 + x) for the largest exponent x of a head.
            100 * e.roundoff * (1 + np.minimum(FARTHEST, largest_exponent))
        )
        self.beyond = np.maximum(*highest[1:]) > FARTHEST
        self.outputs = np.asarray(e.p @ values.exact, dtype=np.float64)
        # w_j and p_j (e^{a_j} − 1)/A but for ``scale``, a factor of each row.
        s = growth(e.a, self.highest[0])
        s *= e.p
        # e^{−max a}, rounded down: a lower bound of A in any row.
        least = (1 - 2.0**-20) / (1 + growth(e.farthest))
        low = np.maximum(1 - values.sums(s, self.up), least)
        # Beyond 0.25 the weights are unknown anyway, and the factor below must stay positive.
        known = np.minimum(e.weight_error, 0.25)
        self.rough = (low.min(axis=-2, keepdims=True, initial=1.0) < _ROUGH) | e.unknown.any(
            axis=-2, keepdims=True
        )
        # 1 − Σ p (e^a − 1) is too rough for large errors: A is summed there.
        if self.rough.any():
            least_weights = e.p / (1 + growth(e.a))
            summed = least_weights.sum(axis=-1, keepdims=True).astype(np.float64)
            # Reduced by what the sum may be too large.
            summed *= 1 - 2 * (values.n + 50) * e.roundoff - self.up
            summed -= values.n * e.raised  # by which weights may be too large
            low = np.where(self.rough, np.maximum(summed, least), low)
        # The factor of step 3, for weights that are known up to ϖ.
        scale = (1 + 1.1 * known) / (low * (1 - 1.2 * known)) * (1 + 8 * U)
        self.scale = scale
        self.moving = s
        self.w = e.p
        # In place, as blocks are large: w = p e^a is p + p (e^a − 1).
        self.w += s
        if self.rough.any():
            self._cap_unknown_weights()

    def _cap_unknown_weights(self) -> None:
        """Limit w to 1, and set it to 1 for unknown weights, in the heads where A is summed."""
        rows = self.exponents.unknown[..., 0]
        tiny = float(np.finfo(self.w.dtype).tiny)
        # Other heads stay as they are: their factor is applied later.
        scale = np.where(self.rough, self.scale, 1.0)
        # beyond, what is added for |o - o^| makes W the distance to the farthest value
        self.moving = np.minimum(self.moving * scale, 4 / (2.0**26 * tiny))
        limited_scale = np.minimum(scale, 2 / tiny)
        self.w = np.where(
            self.rough,
            np.minimum(self.w * limited_scale.astype(self.w.dtype), 1),
            self.w,
        )
        # Nothing is known of these rows: w = 1 for each visible key.
        self.w[rows] = self.scores.open_[rows]
        self.moving[rows] = self.w[rows]
        self.scale = np.where(self.rough, 1.0, self.scale)

    def bound(self) -> RowBounds:
        """Return M of steps 4 to 6."""
        v = self.values
        p = self.precision
        scaled = power_up(2 * rate(self.precision.stored))
        product = self.w @ v.sizes
        whole = own = v.enlarged(product, self.up, self.scale)
        # Monomials of projected values sum to more than the values themselves.
        if v.summed is not v.sizes:
            whole = v.enlarged(self.w @ v.summed, self.up, self.scale)
        # S and G − 1. One exponent for all keys needs no product with the values, or sums of weights alone.
        alone = growth(self.exponents.alone, self.highest[1])
        if alone.shape[-1] == 1:
            apart = np.asarray(whole * alone.astype(np.float64) * (1 + self.up))
        else:
            apart = v.enlarged((alone * self.w) @ v.summed, self.up, self.scale)
        below = growth(self.exponents.below, self.highest[2])
        if below.shape[-1] == 1:
            weights = v.sums(self.w, self.up)
            lost = np.asarray(weights * below * (1 + self.up) * self.scale)
        else:
            growths = np.vecdot(below, self.w)[..., None]
            lost = np.asarray(v.enlarged(growths, self.up, self.scale))
        o, off = self._estimate_float_outputs(own)
        size = np.abs(o) + off
        moved, spread = self._bound_output_movement(o, off, (product, own), size)
        results = rule.weighed(
            (whole, apart, size), moved, spread, lost, p, self.exponents.counts, _NUMBERS
        )
        storage_error, middle, factor, sums = results
        underflow, vanishes = self._bound_row_underflow(lost * scaled)
        if self.scores.far is not False:
            underflow = underflow + self._bound_far_key_loss()
        total = (apart + sums) * factor + moved + storage_error + middle + underflow
        # Step 7 says nothing where β* > 1, and exponents beyond the limit give no bound.
        without_weight = self.exponents.grown * (1 + self.up) > 1
        silent = self.beyond | (self.scores.far & without_weight)
        if silent.any() or not total.max() < np.inf:
            total = np.where(silent | np.isnan(total), np.inf, total)
        return RowBounds(
            total,
            size,
            vanishes[..., 0],
            SlackTerms(moved, storage_error, middle, apart, sums, factor, underflow),
        )

    def _estimate_float_outputs(self, whole: Floats) -> tuple[Floats, Floats]:
        """Return ô, and how far o may be from it."""
        v, e, n = self.values, self.exponents, self.values.n
        # Sums lose at most 2²⁶ least normal numbers per term to underflow (``distances``).
        o = self.outputs
        least_number = 2.0**26 * float(np.finfo(e.kind).tiny)
        off = (
            1.1 * np.minimum(e.weight_error, 1.0) + 2 * (n + 20) * e.roundoff
        ) * whole + n * least_number * v.largest
        if v.radii is not None:
            off += v.unknown(self.w, v.radii, self.up, self.scale)
        # Unknown weights: o is anywhere between the least and the largest value.
        if e.unknown.any():
            least, most = v.ends
            middle = (most + least) / 2
            of_entries = 4 * U * v.largest
            spread = (most - least) / 2
            half = spread * (1 + 4 * U) + of_entries
            o = np.where(e.unknown, middle, o)
            off = np.where(e.unknown, half, off)
        return o, off

    def _bound_output_movement(
        self, o: Floats, off: Floats, whole: tuple[np.ndarray, Floats], size: Floats
    ) -> tuple[Floats, Floats]:
        """Return W and Y, from Σ w|v| as computed and as a bound."""
        v, s, spread = self.values, self.moving, whole[1] + size
        least, most = v.ends
        # Few products: every |v_j − o| is computed; else chords or squares bound their sums.
        entries = prod(s.shape[-2:]) * v.v.shape[-1]
        if entries <= _EACH:
            entries_of_values = v.v[..., None, :, :]
            differences = np.abs(entries_of_values - o[..., None, :])
            away = differences + off[..., None, :]
            away = away if v.radii is None else away + v.radii[..., None, :, :]
            summing = 2 * (v.n + 8) * self.exponents.roundoff
            factor = self.scale * (1 + summing + self.up)
            moved, away_from_all = (
                np.einsum("...ij,...ijc->...ic", x, away) * factor for x in (s, self.w)
            )
            # W is at most the distance to the farthest visible value.
            far = np.where(self.scores.open_[..., None], away, 0).max(axis=-2)
            return np.minimum(moved, far), np.minimum(away_from_all, spread)
        # then Y counts for more than W
        coarse = float(self.precision.stored.u) > float(self.precision.accumulate.u)
        if coarse:
            around = (o, off)
            direct = v.distances(self.w, around, whole[0], self.up, self.scale)
            spread = np.minimum(spread, direct)
            # p_j/A ≤ w_j where A is not summed
            moved = growth(self.exponents.farthest) * (1 + self.up) * direct
        # Where A is summed, w is limited to 1 and may be below p_j/A.
        if not coarse or self.rough.any():
            summed = v.distances(s, (o, off), None, self.up, self.scale)
            moved = np.where(self.rough, summed, moved) if coarse else summed
        # Computed only where the distance to the farthest value can be smaller.
        if not (moved <= (most - least) / 2).all():
            farther_end = np.maximum(most - o, o - least)
            moved = np.minimum(moved, farther_end + off)
        return moved, spread

    def _bound_row_underflow(self, lost: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        p = self.precision
        v = self.values
        e = self.exponents
        n = self.values.n
        alone = e.most_alone * (1 + self.up)
        below = e.most_below * (1 + self.up)
        of_path = e.counts.path * e.lam
        exponent = alone + of_path + 2 * rate(p.stored)
        factor = (growth(exponent) + 1) * (lost + 1)
        # e^{−m} where the maximum need not be subtracted and the largest exponential is below 1, else 1.
        lowest = log(min(float(p.score.smallest_normal), float(p.accumulate.smallest_normal)))
        # Scores are known up to r: rounded toward a larger result.
        raised = np.maximum(e.r - e.m, 0.0)
        least = np.where(e.m >= lowest - e.r, raised, 0.0)
        grown = exp(least) if least.any() else np.ones_like(least)
        rise = grown * (1 + 4 * EPSILON)
        every, weight = rule.losses(p, e.counts, rise)
        # Step 6: weights that are not normalised before they are stored lose η_P max w.
        if not p.normalised:
            weight = (
                weight
                * self.w.max(axis=-1, keepdims=True).astype(np.float64)
                * self.scale
                * (1 + self.up)
            )
        # D of step 6; rows where it may be 0 have no bound, and any divisor will do.
        least_sum = (1 - 2.0**-30) / (1 + growth(below))
        divisor = least_sum - (every + weight) * n
        vanishes = divisor <= 0
        divisor = np.where(vanishes, 1.0, divisor)
        scaled_n = factor * n
        scaled_terms = factor * (n * v.terms)
        below = rule.underflow(
            (every, weight), v.total, v.largest * scaled_n, n, scaled_terms, divisor
        )
        return below, vanishes

    def _bound_far_key_loss(self) -> Floats:
        """Return |o − o'| of step 7."""
        p, v = self.precision, self.values
        least, most = v.ends
        smallest = min(float(p.score.eta), float(p.accumulate.eta))
        eta = smallest * v.n
        spread = most - least
        return np.where(self.scores.far, spread * eta * (1 + 8 * U), 0.0)


_NUMBERS = rule.NumberKind(
    g,
    rate,
    np.maximum,
    np.max,
    # The number kind serves scalars as well as arrays.
    lambda x: growth(x) if np.ndim(x) else growth_of(x),
    power_up,
    np.minimum,
)


# -- shares by step ----------------------------------------------------------------------------------------------------
def shares(rows: Rows, parts: SlackTerms) -> dict[str, Floats]:
    """Return the terms of M split among the steps, in proportion to the means of their exponents over the weights.

    This is exact to first order; terms of higher order are split in the same proportions.
    """
    e = rows.exponents
    per_key = (e.a, e.tau, e.times)
    every, scores, times = (_weighted_sum_over_keys(rows, x) for x in per_key)
    # 1e-300 avoids 0/0 for rows without any error.
    arrays = (e.alone, e.below)
    alone, below = (_weighted_sum_over_keys(rows, x) + 1e-300 for x in arrays)
    every = every + 1e-300
    # The share of rescaling cannot exceed what the scores leave.
    rescaling = np.minimum(times * e.eps, every - scores)
    exponent_parts = (
        scores,
        rescaling,
        times * e.lam,
        e.counts.alone * e.lam,
        e.counts.below * e.lam,
    )
    result = rule.shared_out(
        (parts.moved, parts.apart * parts.factor, parts.lost), (every, alone, below), exponent_parts
    )
    sums = result["sums"] + parts.sums * parts.factor
    return result | {"sums": sums, "stored weights": parts.kept, "underflow": parts.underflow}


def _weighted_sum_over_keys(rows: Rows, x: np.ndarray) -> Floats:
    """Return Σ w_j x_j."""
    result = np.einsum("...ij,...ij->...i", rows.w, np.broadcast_to(x, rows.w.shape))
    return np.asarray(result[..., None] * rows.scale)
