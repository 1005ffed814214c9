"""The bound of ``worst_case``, evaluated in balls: for every variant of attention, and to check the fast evaluation."""

from __future__ import annotations

from math import log
from typing import Any, assert_never

import flint
import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.precision import Precision
from symattn.bounds import rule
from symattn.bounds.arithmetic import Balls, g, largest, number, rate, size, upper, xp
from symattn.bounds.exponents import far_below, stored
from symattn.bounds.output_steps import bound_output
from symattn.bounds.reference import Run
from symattn.bounds.scores import LOG2_E, score_errors
from symattn.document.errors import Undecided


def allowed(run: Run, precision: Precision) -> np.ndarray:
    """Return the largest legal |y − o| for each output element, as float64 rounded up; +∞ where there is no bound."""
    try:
        return _Bound(run, precision).total()
    except Undecided:  # exponentials of errors beyond all range
        return np.full(run.output.plain_shape, np.inf)


_NEAR = 8.0  # step 7 applies to no key of scores that lie closer together


def _exponential_of_balls(x: Balls) -> Balls:
    """e^x."""
    return x.exp() if isinstance(x, flint.arb) else xp.exp(x)


_NUMBERS = rule.NumberKind(
    g,
    rate,
    xp.maximum,
    grown=lambda x: _exponential_of_balls(x) - 1,
    up=_exponential_of_balls,
    minimum=xp.minimum,
    where=xp.where,
    lifted=Ball.lift,
)


class _Bound:
    """The quantities of the statement, by their names there; arrays are (…, n_q, n_k) or (…, n_q, 1)."""

    def __init__(self, run: Run, precision: Precision) -> None:
        self.run = run
        self.precision = precision
        self.errors = score_errors(run, precision)
        self.made_values = self.errors.values
        # each query may have values of its own
        self.uneven = bool(run.spec.dropout) or len(run.value_step.of) > 2
        # In base 2 scores are multiplied by ln 2, so that every exponent below is one of e.
        if run.spec.base == 2:
            self.unit = flint.arb(2).log()
        else:
            self.unit = flint.arb(1)
        self.keys = run.allowed
        scores = xp.where(self.keys, number(run.final_scores), 0) * self.unit
        length = size(scores) + self.errors.shift * self.unit
        tau = stored(self.errors.tau * self.unit, length, precision, g)  # step 1: τ'_j of the keys
        # Step 7: keys far below count as forbidden in all steps, and add one term at the end.
        self.far = self._keys_far_below_maximum(scores, tau)
        self.keys = self.keys & ~self.far
        # A sink is a last column that every row may attend to.
        sink_is_open = np.ones((*self.keys.shape[:-1], 1), dtype=bool)
        self.open = self._with_sink(self.keys, sink_is_open)
        self.n = self.open.shape[-1]
        key_count = self.open.sum(axis=-1, keepdims=True)
        self.counts = rule.Counts(
            precision,
            self.n,
            key_count,
            run.value_terms + (run.spec.latent is not None),
            self.uneven,
        )
        self.t = xp.where(
            self.open, self._with_sink(scores, self._sink_logits_as_balls() * self.unit), 0
        )
        weights = number(run.values["weights"])
        # What the weights of the keys leave of 1 is the weight of the sink.
        rest = xp.maximum(1 - xp.sum(weights, axis=-1, keepdims=True), 0)
        self.p = xp.where(self.open, self._with_sink(weights, rest), 0)
        # ε' of step 2, from ε = 2 · exp_ulps · u of H1.
        self.eps = 2 * precision.exp_ulps * float(precision.score.u)
        self.eps = self.eps / (1 - self.eps)
        self.m = largest(self.t, self.open)
        self.top = size(self.m) + self.errors.shift * self.unit  # |m|, with the shifts of rows
        of_logits = size(self._sink_logits_as_balls())
        sink = of_logits * self.unit + self.errors.shift * self.unit
        # A sink's logit is read, scaled and stored: τ' = g(6)|z| (variants).
        self.tau = self._with_sink(xp.where(self.keys, tau, 0), g(6, precision.between) * sink)
        self.star = largest(self.tau, self.open)
        # rows whose sum could underflow to nothing
        self.vanishes = np.zeros(self.open.shape[:-1], dtype=bool)
        if run.spec.is_softmax:
            self._bound_softmax_exponents()

    def _bound_softmax_exponents(self) -> None:
        """Set a_j, s_j and b_j by steps 2 to 4."""
        self.rescalings = rule.limited_rescalings(self._count_rescalings_of_keys(), self.precision)
        self.log_n = flint.arb(self.n).log()
        # The errors of values, in exponents.
        p = self.precision
        # Values of each row's own pass three roundings more (variants).
        values = rate(p.roughest) * (self.counts.values + 3 * self.uneven)
        values = values + (rate(p.factors) if p.factors is not None else 0)
        length = size(self.t) + self.errors.shift * self.unit
        times = Ball.lift(self.rescalings)
        rule_givens = rule.RuleGivens(
            self.tau,
            length,
            self._distance_below_maximum(),
            times,
            self.top,
            self.star,
            self.log_n,
            Ball.lift(self.eps),
            values,
        )
        numbers = _NUMBERS._replace(
            largest=lambda x: xp.max(xp.where(self.open, x, 0), axis=-1, keepdims=True)
        )
        self.rule = rule.exponents(rule_givens, self.precision, self.counts, numbers)
        self.a = self.rule.a
        self.alone = self.rule.alone
        self.below = self.rule.below
        self.grown = upper(self.rule.grown)[..., 0]

    def total(self) -> np.ndarray:
        """Return the heads' bound through the output step, and the last rounding."""
        out, over = bound_output(self.run, self.precision, self.per_head())
        exact = size(number(self.run.output))
        f = self.precision.returned
        result = upper(out + (exact + out) * g(1, f) + f.eta)
        return np.where(over | self.may_overflow()[..., None], np.inf, result)

    def _with_sink(self, keys: object, sink: object) -> Any:
        """Append a column for the sink, if there is one."""
        if self.run.spec.sink is None:
            return keys
        return (np if isinstance(keys, np.ndarray) else xp).concat([keys, sink], axis=-1)

    def _sink_logits_as_balls(self) -> Balls:
        """Return the logits of the sinks, (…, n_q, 1)."""
        shape = (*self.run.final_scores.plain_shape[:-1], 1)
        if self.run.spec.sink != "given":
            return xp.zeros(shape)
        z = self.run.values["sink"]
        per_head = z[:, None, None] if self.run.spec.heads > 1 else z
        return xp.zeros(shape) + per_head

    def _keys_far_below_maximum(self, scores: Balls, tau: Balls) -> np.ndarray:
        """Return which keys step 7 counts as forbidden. Midpoints, and shifted rows, may be off by ``reach``."""
        spec, midpoints = self.run.spec, scores.midpoints()
        apart = np.ptp(midpoints, axis=-1).max(initial=0.0)
        if (
            # Step 7 is for rows of a softmax under an additive mask with distant scores.
            spec.mask != "additive"
            or not spec.is_softmax
            or self.uneven
            or not self.run.variant.rows
            or apart < _NEAR
        ):
            return np.zeros_like(self.keys)
        radius = np.vectorize(lambda x: float(x.rad().upper()), otypes=[float])
        off = radius(scores.entries)
        # A score may be off by the radius of its ball, the row maximum by the largest radius.
        shifted = upper(self.errors.shift * self.unit)
        reach = off + off.max(axis=-1, keepdims=True) + shifted
        return far_below(midpoints, upper(tau), self.keys, reach, self.precision)

    def _count_rescalings_of_keys(self) -> np.ndarray:
        """Return B_j. The comparison is in float64; a third of τ' more covers its rounding, as τ' ≥ 6u|t|."""
        t = np.where(self.open, self.t.midpoints(), -np.inf)
        tau = upper(self.tau) * 4 / 3
        tau[tau <= np.nextafter(0, 1)] = 0  # upper() moved an exact zero
        with np.errstate(over="ignore"):  # a fill of −1.8·10³⁰⁸ becomes −∞, and is counted
            largest, smallest = t + tau, t - tau
        # Key i counts for key j if its upper end exceeds the lower end of j.
        above = largest[..., None, :] > smallest[..., :, None]
        above &= self.open[..., None, :]
        # A key whose τ' is not 0 exceeds its own lower end, and must not count for itself.
        values: np.ndarray = above.sum(axis=-1) - (tau > 0)
        return np.where(self.open, np.maximum(values, 0), 0)

    def _distance_below_maximum(self) -> Balls:
        """Return m − t_j; for a sink, its distance from the largest of the other scores, if that is more."""
        fall = xp.where(self.open, self.m - self.t, 0)
        if self.run.spec.sink is None:
            return fall
        last = largest(self.t[..., :-1], self.keys)
        # A row that sees nothing but the sink has no other score.
        any_key = self.keys.any(axis=-1, keepdims=True)
        above = xp.where(any_key, size(self.m - last), 0)
        of_sink = xp.maximum(fall[..., -1:], above)
        return self._with_sink(fall[..., :-1], of_sink)

    def _length(self) -> Balls:
        """Return |t_j| + |m|, with the shifts of rows."""
        return size(self.t) + self.top + self.errors.shift * self.unit

    def per_head(self) -> Balls:
        """Return M of steps 5 and 6 for the weighted values of each head, (…, n_q, d_v)."""
        if not self.run.spec.is_softmax:
            return self._without_softmax()
        if not self.run.variant.rows:
            return self._without_rows(self._value_sizes())
        # A of step 5, a lower bound of the moved weights' sum.
        low = xp.sum(self.p * xp.exp(-self.a), axis=-1, keepdims=True)
        low = xp.where(low == 0, 1, low)  # a row without any weight
        # w_j of step 5; a weight is at most 1.
        grown = self.p * xp.exp(self.a)
        w = xp.minimum(grown / low, Ball.lift(1))
        sizes = self._value_sizes()
        # G − 1 of step 5.
        lost = xp.sum(w * (xp.exp(self.below) - 1), axis=-1, keepdims=True)
        apart, whole = (
            self._weigh_value_sizes(w * (xp.exp(self.alone) - 1), sizes),
            self._weigh_value_sizes(w, sizes),
        )  # S, X
        moved, away = self._mean_moved(low, w)
        output = size(self._exact_output_of_heads())
        storage_error, middle, factor, sums = rule.weighed(
            (whole, apart, output), moved, away, lost, self.precision, self.counts, _NUMBERS
        )
        sums = apart + sums
        # Values from a latent, or normalised, are off by e_j before they are weighed (variants).
        if self.made_values is not None:
            sums = sums + self._weigh_value_sizes(
                w * xp.exp(self.alone + self._exponent_of_summation_path()), self.made_values[1]
            )
        total = moved + storage_error + middle + factor * sums
        if self.far.any():
            total = total + self._left_out()
        # Step 6: weights that are not normalised before they are stored lose η_P max w.
        most = xp.max(w, axis=-1, keepdims=True) if not self.precision.normalised else Ball.lift(1)
        scaled = lost * _NUMBERS.up(rate(self.precision.stored) * 2)
        # By what a term of the numerator may have grown.
        factor = xp.exp(
            self.alone + self._exponent_of_summation_path() + 2 * rate(self.precision.stored)
        ) * (scaled + 1)
        return total + self._bound_output_underflow(xp.max(factor, axis=-1, keepdims=True), most)

    def _left_out(self) -> Balls:
        """Return |o − o'| of step 7."""
        v, p = self._values_with_sink(self._value_balls()), self.precision
        reach = xp.max(v, axis=-2, keepdims=True) + xp.max(-v, axis=-2, keepdims=True)
        eta = float(min(p.score.eta, p.accumulate.eta)) * self.n
        return reach * Ball.lift(np.where(self.far.any(axis=-1, keepdims=True), eta, 0.0))

    def _exponent_of_summation_path(self) -> Balls:
        return Ball.lift(self.counts.path) * rate(self.precision.accumulate)

    def _weigh_value_sizes(self, w: Balls, sizes: Balls) -> Balls:
        """Return Σ w_j |v|_j. A sink's values are 0; those of a row may be dropped, or have terms of their own."""
        w = w[..., : self.keys.shape[-1]]
        values = dict(self.run.values)
        # All rows have the same values: one product with the weights.
        if not self.uneven:
            return w @ sizes
        # Dropout and terms by distance change values row by row, as the definition does.
        for step in self.run.steps:
            if step.name == "dropped":
                w = step.run(w, *(values[n] for n in step.of[1:]))
        rest = [size(values[n]) for n in self.run.value_step.of[2:]]
        return self.run.value_step.run(w, sizes, *rest)

    def _exact_output_of_heads(self) -> Balls:
        """Return o for each head; o' if some keys count as forbidden."""
        # The run's output has the keys that step 7 forbids, so the output is computed without them.
        if self.far.any():
            p = self.p[..., : self.keys.shape[-1]]
            total = xp.sum(self.p, axis=-1, keepdims=True)
            return p @ self._value_balls() / xp.where(total == 0, 1, total)
        return number(self.run.values["attended" if "attended" in self.run.values else "output"])

    def _mean_moved(self, low: Ball, w: Balls) -> tuple[Balls, Balls]:
        """Return W of step 5, and Y, at least Σ p̃_j |v_j − õ| − W."""
        o = self._exact_output_of_heads()
        share = self.p * (xp.exp(self.a) - 1) / low
        # Each row has values of its own, so |v| + |o| replaces |v − o| (variants).
        if self.uneven:
            sizes = size(self._value_balls())
            moved = self._weigh_value_sizes(share, sizes) + xp.sum(
                share, axis=-1, keepdims=True
            ) * size(o)
            total = xp.sum(w, axis=-1, keepdims=True)
            return moved, self._weigh_value_sizes(w, sizes) + size(o) * total
        v = self._values_with_sink(self._value_balls())
        away = size(v[..., None, :, :] - o[..., :, None, :])
        # W of step 5 is the smaller of two forms; the second holds as õ is a mean of the values.
        moved = xp.minimum(
            xp.sum(share[..., None] * away, axis=-2), self._distance_to_farthest_value(v, o)
        )
        spread = self._weigh_value_sizes(w, size(self._value_balls())) + size(o)
        mean_away = xp.sum(w[..., None] * away, axis=-2)
        return moved, xp.minimum(spread, mean_away)

    def _values_with_sink(self, v: Balls) -> Balls:
        """Append a row of zeros for the sink, if there is one."""
        if self.run.spec.sink is None:
            return v
        return xp.concat([v, v[..., :1, :] * 0], axis=-2)

    def _distance_to_farthest_value(self, v: Balls, o: Balls) -> Balls:
        """Return max |v_j − o| over the keys j that the row may see, from ends rounded up."""
        visible = self.open[..., None]
        ends = [np.where(visible, upper(x)[..., None, :, :], -np.inf).max(axis=-2) for x in (v, -v)]
        # A row without any key has no ends.
        high, low = (Ball.lift(np.where(np.isfinite(x), x, 0)) for x in ends)
        return xp.maximum(high - o, low + o)

    def _without_rows(self, sizes: Ball) -> Balls:
        """Bound weights that are not normalised along the row: each is off by its own factor, that of its sum, and its
        underflow relative to a sum of at least 1."""
        anywhere = self.open | True
        worst = largest(self.a, anywhere) + largest(self.below, anywhere)
        # Weights are not divided by the row's own sum, so that errors of other rows count.
        worst = xp.max(worst, axis=-2, keepdims=True)
        weights = size(self._with_sink(number(self.run.values["weights"]), worst * 0))
        p, kappa = self.precision, self.counts.underflowing
        # Underflow is absolute; beside a sum of at least 1 it is a relative loss.
        smallest = max(p.score.eta, p.accumulate.eta)
        lost = smallest * kappa + p.stored.eta
        of_path = self._exponent_of_summation_path()
        exponent = self.a + self.alone + of_path + rate(p.stored) + worst
        growth = xp.exp(exponent) - 1
        return self._weigh_value_sizes(weights * growth + float(lost), sizes)

    def _without_softmax(self) -> Balls:
        """Bound weights that are no softmax: see ``weight_errors``."""
        f = self.precision.roughest
        e = weight_errors(self.run, self.precision, self.tau)
        # of the roughest format, so of TF32's too
        roundings = self.n + 4 + self.run.value_terms + 3 * self.uneven
        w = size(number(self.run.values["weights"])) + e
        moved = e + w * g(roundings, f)
        result = self._weigh_value_sizes(moved, self._value_sizes())
        if self.made_values is not None:
            result = result + self._weigh_value_sizes(w, self.made_values[1])
        terms = 1 + self.run.value_terms
        return result + float(f.eta) * (4 + self.n) * terms

    def _bound_output_underflow(self, factor: Balls, most: Balls) -> Balls:
        """Return the bound of step 6; a weight as stored is at most ``most`` times the final one."""
        n, (every, weight) = (
            self.n,
            rule.losses(self.precision, self.counts, self._without_subtraction()),
        )
        weight = weight * most
        # D of step 6; in rows where D may be 0 there is no bound.
        least = xp.exp(-xp.max(self.below, axis=-1, keepdims=True))
        divisor = least - (every + weight) * n
        not_positive = [x.lower() <= 0 for x in divisor.entries.flat]
        self.vanishes = np.asarray(not_positive).reshape(divisor.plain_shape)[..., 0]
        # Any divisor does for rows that vanish: ``may_overflow`` turns their bound into +∞.
        divisor = xp.where(self.vanishes[..., None], 1, divisor)
        sizes = self._value_sizes()
        if self.uneven:
            total = self._weigh_value_sizes(xp.zeros(self.open.shape) + 1, sizes)
            largest = total * factor
        else:
            total = xp.sum(sizes, axis=-2, keepdims=True)
            largest = xp.max(sizes, axis=-2, keepdims=True) * factor
        scaled_by_terms = factor * (n * self.run.value_terms)
        return rule.underflow((every, weight), total, largest * n, n, scaled_by_terms, divisor)

    def _without_subtraction(self) -> Balls:
        """Return e^{−m} where the maximum need not be subtracted and the largest exponential is below 1, else 1."""
        # Below this logarithm e^m would be subnormal, which step 6 excludes.
        lowest = np.log(
            float(
                min(self.precision.score.smallest_normal, self.precision.accumulate.smallest_normal)
            )
        )
        m = self.m.midpoints()
        exponent = np.where(m >= lowest, np.maximum(-m, 0), 0)
        return xp.exp(Ball.lift(exponent))

    def may_overflow(self) -> np.ndarray:
        """Return the rows (…, n_q) of the output in which an intermediate result could leave the range (H7)."""
        most = rule.limit(self.precision)
        # H7 lets the scores of keys far below overflow, so only their products count.
        of_far = upper(self.errors.products)
        sizes = np.where(self.far, of_far, upper(self.errors.largest))
        # The factor log₂ e is for exponentials as powers of 2; 1.01 covers float64's roundings.
        scores = sizes.max(axis=-1) * LOG2_E * 1.01
        weights = self._largest_weights_before_division()
        values = upper(self._weigh_value_sizes(weights, self._value_sizes())).max(axis=-1)
        over = (
            (scores > most)
            | (values * 1.01 > most)
            | self.vanishes
            | leaves_range(self.run, self.precision)
        )
        # Step 7 says nothing if β* > 1.
        if self.far.any():
            over |= self.far.any(axis=-1) & (self.grown > 1)
        # An output projection sums over heads: a row without a bound spoils that row of all heads.
        return np.asarray(over.any(axis=-2) if self.run.merges_heads else over)

    def _largest_weights_before_division(self) -> Balls:
        """Return what each weight is at most where it meets its value: 1, or a positive score that is not divided."""
        ones = xp.zeros((*self.open.shape[:-1], self.n)) + 1
        normaliser = self.run.spec.normaliser
        if normaliser not in ("relu", "relu_sum"):
            return ones
        # A right function may divide the sum by n, and not each weight.
        divisor = self.n if normaliser == "relu" else 1
        return ones + size(number(self.run.values["weights"])) * divisor + self.tau

    def _value_balls(self) -> Balls:
        return self.run.values[self.run.values_name]

    def _value_sizes(self) -> Balls:
        """|v|_j."""
        return (
            self.made_values[0]
            if self.made_values is not None
            else self.run.absolute[self.run.values_name]
        )


def weight_errors(run: Run, precision: Precision, tau: Balls) -> Balls:
    """Return e_j for each weight without a softmax, given errors τ_j of the scores; 0 where a key is forbidden.

    Each of these maps moves no farther than the scores do; the errors of its own operations are bounded separately.

    sigmoid    |σ(x̂) − σ(x)| ≤ σ(x)(e^τ − 1), τ with the roundings of log n; and ε + 6u, as (1 + tanh(x/2))/2 may be
               taken.
    relu       |max(ŝ, 0) − max(s, 0)| ≤ τ; the division by n, if there is one, and storing it cost g(4).
    sparsemax  The threshold t of p = max(s − t, 0), Σ p = 1, grows with each score, and by c if all grow by c: so it
               moves by at most τ* = max τ. It is a mean of scores less a quotient, in any order, from scores as they
               are or less their maximum: g(n + 8)(2 max|s| + 2) holds its roundings, and the places at which a key
               more or less is counted, since there it makes no difference to t.
    entmax     The same with s/2 and p = (s/2 − t)². Under the root of t stands what is off by at most δ = 4 g(n + 8),
               so that the root is off by √δ at most; a square moves by r (2 √p + r) if its root moves by r.

    Then |Σ ŵ_j v̂_j − Σ w_j v_j| ≤ Σ e_j |v|_j + g(n + 4 + roundings of values) Σ (w_j + e_j)|v|_j, and underflows.
    Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms (2002), §3.1; of the maps: Martins, Astudillo,
    From Softmax to Sparsemax (2016), proposition 1; Peters, Niculae, Martins, Sparse Sequence-to-Sequence Models
    (2019), §3.
    """
    open_, f = run.allowed, precision.roughest
    w = size(number(run.values["weights"]))
    n = int(run.allowed.shape[-1])
    in_exponential = 2 * precision.exp_ulps * float(precision.score.u)
    small = in_exponential + 6 * float(f.u)
    match run.spec.normaliser:
        case "sigmoid":
            # Without a bias log n may be subtracted from each score, with roundings of its own.
            shifted = 0 if run.spec.bias else g(6, f) * (log(n) + 1)
            moved = tau + shifted
            result = w * (xp.exp(moved) - 1) + small
        case "relu" | "relu_sum":
            moved = tau / n if run.spec.normaliser == "relu" else tau
            result = moved + g(4, f) * (w + moved)
        case "sparsemax" | "entmax":
            result = _bound_sparse_weight_errors(run, precision, tau, w, n)
        case "softmax":
            raise ValueError("the errors of a softmax are bounded by its exponents")
        case other:
            assert_never(other)
    return xp.where(open_, result + float(f.eta) * 8, 0)


def _bound_sparse_weight_errors(
    run: Run, precision: Precision, tau: Balls, w: Balls, n: int
) -> Balls:
    f, open_ = precision.roughest, run.allowed
    scores = number(run.final_scores)
    # The threshold moves by at most τ*, for the reasons in ``weight_errors``.
    star = largest(tau, open_)
    most = largest(size(scores), open_)
    rounded = g(n + 8, f) * (2 * most + 2)
    if run.spec.normaliser == "sparsemax":
        return tau + star + rounded
    middle = (tau + star) / 2
    root = middle + rounded + xp.sqrt(4 * g(n + 8, f))
    doubled = 2 * xp.sqrt(xp.maximum(w, 0))
    return root * (doubled + root) + g(4, f) * w


# -- projections -------------------------------------------------------------------------------------------------------
# Arrays that every row may use: an overflow there spoils all rows.
_MADE = ("k", "c_q", "c_kv", "k_r", "q_n", "q_r", "k_n", "r_k", "p_k", "p_q")


def leaves_range(run: Run, precision: Precision) -> np.ndarray:
    """Return the rows (…, n_q) of heads in which sums of queries may exceed the range; all rows if those of keys,
    latents or distance terms may, as every row may use them. Values count when they are weighted."""
    most, result = rule.limit(precision), {s.name for s in run.steps}
    over = {
        # The sums of absolute values bound every partial sum, in any order.
        n: upper(size(run.absolute.get(n, run.values[n]))) > most
        for n in ("q", *_MADE)
        if n in result
    }
    # Keys and latents are used by all rows, so that one overflow may reach each.
    everywhere = any(bool(over[n].any()) for n in _MADE if n in over)
    return np.asarray(over["q"].any(axis=-1) | everywhere if "q" in over else everywhere)
