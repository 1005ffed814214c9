"""How far a legal implementation can be from the exact output: the bound that replaces tolerances.

Statement. Let t_j be the exact masked scores of a row, p_j its weights, v_j one column of the values, o = Σ p_j v_j.
Let y be what an implementation in the arithmetic of a ``Precision`` gives, under

  H1  every operation is (exact)(1 + δ) + η', |δ| ≤ u, |η'| ≤ η (η' = 0 unless the result underflows), u and η those of
      the format; the exponential, of base e or 2, has relative error at most ε = 2·exp_ulps·u, and exp(0) = 1;
  H2  sums are taken in any order, products may be fused into them (no Strassen); zero times a number is zero;
  H3  the factor s of the scores, and log₂ e if the base is 2, reach a product q_l k_l by at most K = 6 roundings, in
      constants or in products, before or after the sum, with factors between 1 and s;
  H4  to a score, two more roundings (a mask added, a score stored); from it a reference is subtracted: the largest
      score met so far, or nothing where exponentials stay in range, with at most three roundings in subtracting,
      storing and rescaling, and two of the reference itself;
  H5  when the maximum grows, what was summed is rescaled by one exponential and one product; the running result may
      also be normalised after each of ``tiles`` tiles, with four more roundings; at most ``merges`` times, one after
      another, parts normalised by themselves are merged by their log-sum-exp, or weights are exp(score − log-sum-exp);
  H6  weights may be rounded to ``stored``; division by the sum is before or after the values, as one division or as
      reciprocal and product; a forbidden key has weight zero, or at most η (a mask of −1e9);
  H7  nothing overflows: no sum of absolute values of its terms exceeds the range.

Then |y − o| ≤ ``allowed``. Proof. Put λ = u/(1 − u), so that |ln(1 + δ)| ≤ λ, and g(n) = e^{nλ} − 1: a product of n
factors (1 + δ)^{±1} is within g(n) of 1.

1. Scores (H2, H3). Each monomial passes N_j + K roundings, so its sum is off by at most τ_j = g(N_j + K) |t|_j + (what
   underflows), |t|_j the sum of the monomials' absolute values, scaled; for scores that are made otherwise, capped or
   biased, ``scores`` has τ_j. By H4 the score is off by at most τ'_j = τ_j + g(2)(|t_j| + τ_j).
2. Exponents. Put τ* = max τ', m = max t. A reference is m̂ at the end and lies between t_j and m before, up to τ*. A
   shift common to the row cancels in the quotient; what does not is the rounding of references that differ, at most
   g(2)(|t_j| + |m| + 2τ*), and that of the differences: their absolute values telescope to m̂ − t̂_j as the maximum
   grows, so g(3)(m − t_j + 2τ*). A rescaling of key j needs a computed score above its own, each time a larger one, so
   there are at most B_j = #{i ≠ j: t_i + τ'_i > t_j − τ'_j} of them. With ε' = ε/(1 − ε), key j's exponential is
   e^{t_j − m} e^{θ_j}, up to a factor common to the row, with
     |θ_j| ≤ a_j = τ'_j + g(2)(|t_j| + |m| + 2τ*) + g(3)(m − t_j + 2τ*) + (1 + B_j) ε'.
3. Between numerator and denominator. All that they do not share is put into the numerator. With L_j = |t_j| + |m| +
   ln n + 2τ*, a log-sum-exp is at most L_j; computing one (ε' ln n and two roundings), storing it, and exponentiating
   a difference of two (ε' and up to three roundings of at most 2 L_j together) costs at most
   g(6) L_j + 2ε' ln n + ε', and there are at most 1 + merges of these.
4. Sums (H5, H6). A term of the numerator passes at most c = n + B_j + 4·tiles + 2·merges + 2 roundings in
   ``accumulate`` (n for its product and the sums), one in ``stored``, and those of its value; a term of the
   denominator c' = n + B_j + 4·tiles + 2·merges. So, but for underflow,
     y = Σ p_j e^{θ_j + σ_j} v_j / Σ p_j e^{θ_j + ρ_j},
     |σ_j| ≤ b_j = (step 3) + cλ_a + λ_P + (the value's),   |ρ_j| ≤ b'_j = c'λ_a
   (through projections v_j is a sum of monomials, each with a σ of its own; |v|_j is the sum of absolute values).
5. Put A = Σ p_j e^{−a_j}, p̃_j = p_j e^{θ_j}/Σ p e^θ ≤ w_j = min(1, p_j e^{a_j}/A), õ = Σ p̃_j v_j. Then
     |õ − o| = |Σ p_j (e^{θ_j} − 1)(v_j − o)| / Σ p e^θ ≤ min{Σ p_j (e^{a_j} − 1)|v_j − o| / A, max_j |v_j − o|},
   the latter since õ is a mean of the v_j. And y = Σ p̃_j e^{σ_j} v_j / R with
     R = Σ p̃_j e^{ρ_j} ≤ G = 1 + Σ w_j (e^{b'_j} − 1),
   and 1/R ≤ 1/Σ p̃ e^{−b'} ≤ Σ p̃ e^{b'} ≤ G (arithmetic and harmonic mean), so |e^{σ_j}/R − 1| ≤ e^{b_j} G − 1, and
     |y − õ| ≤ Σ w_j (e^{b_j} G − 1)|v|_j.
6. Underflow. At most κ = 4 + n + 4·tiles + 2·merges operations touch a term after its score, each off by at most η, and
   storing a weight by at most η_P, of numbers relative to a sum of at least 1 (the largest exponential is e^0), or e^m
   where nothing was subtracted and e^m is no subnormal number. So numerator and denominator are off by at most
   (κη + η_P) Σ|v|_j + κηn and (κη + η_P) n, the denominator is at least D = e^{−max b'} − (κη + η_P) n, and if that is
   positive the quotient moves by at most [(κη + η_P)(Σ|v|_j + n max|v|_j e^{max b} G) + κηn]/D; values that were
   projected in r operations each add at most κηnr e^{max b} G. The bounds of 5. and 6. together are M.
7. An output projection is linear in the heads' outputs: M |W_O| + g(h d_v + 2)((|H| + M)|W_O| + |b_O|). The output is
   rounded once: allowed = M + g(1)(|o| + M) + η.                                                                    ∎

Variants. Masks of every kind say which keys there are; heads that share keys and values are heads with equal ones.
  * A sink is one more key with the value 0. Its score is read, scaled and stored: τ' = g(6)|z|. The reference m̂ may be
    the largest of the other scores alone: then its difference is z − m̂ in place of m − z.
  * Powers of two are those of e of scores times log 2, and τ', sizes and shifts are so many times as large.
  * Rows may be shifted by a constant of at most c (``scores`` says by which): sizes |t_j| and |m| grow by c.
  * Values from a latent are off by e_j beforehand: Σ w_j e^{b_j} G e_j more.
  * Dropout and terms of the values by distance give each row values of its own, v_ij, with three roundings more; in 5.
    |v_ij − o| is replaced by |v_ij| + |o|. Nothing but linearity in the weights was used.
  * Without a softmax there is no quotient, and ``weights`` bounds the error of each weight instead of 2 to 6.

Evaluated in balls, and the upper end taken. A row whose terms may overflow gets +∞: there the bound says nothing.
Sources: N. J. Higham, Accuracy and Stability of Numerical Algorithms (2002), §3; P. Blanchard, D. J. Higham and
N. J. Higham, Accurately computing the log-sum-exp and softmax functions, IMA J. Numer. Anal. 41 (2021).
"""

from __future__ import annotations

from typing import Any

import flint
import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.precision import Precision
from symattn.errors import Undecided
from symattn.verification.arithmetic import Balls, g, largest, number, rate, size, upper, xp
from symattn.verification.outputs import projected
from symattn.verification.reference import Run
from symattn.verification.scores import LOG2_E, score_errors
from symattn.verification.weights import weight_errors


def allowed(run: Run, precision: Precision) -> np.ndarray:
    """The largest legal |y − o| for each element of the output, as float64 rounded up; +∞ where nothing is said."""
    try:
        return _Bound(run, precision).total()
    except Undecided:  # exponentials of errors beyond all range
        return np.full(run.output.plain_shape, np.inf)


class _Bound:
    """The quantities of the statement, by their names there; arrays are (…, n_q, n_k) or (…, n_q, 1)."""

    def __init__(self, run: Run, precision: Precision) -> None:
        self.run, self.precision = run, precision
        self.errors = score_errors(run, precision)
        self.latents = self.errors.values
        self.uneven = bool(run.spec.dropout) or len(run.value_step.of) > 2  # each query may have values of its own
        self.keys = run.allowed
        self.open = self._beside(self.keys, np.ones((*self.keys.shape[:-1], 1), dtype=bool))
        self.n = self.open.shape[-1]
        self.tiles = min(self.n, precision.tiles or self.n) if self.n > 1 else 0
        self.merges = min(self.n - 1, precision.merges)
        self.unit = flint.arb(2).log() if run.spec.base == 2 else flint.arb(1)
        self.t = xp.where(self.open, self._beside(number(run.final_scores), self._sink()), 0) * self.unit
        weights = number(run.values["weights"])
        rest = xp.maximum(1 - xp.sum(weights, axis=-1, keepdims=True), 0)
        self.p = xp.where(self.open, self._beside(weights, rest), 0)
        self.eps = 2 * precision.exp_ulps * float(precision.score.u)
        self.eps = self.eps / (1 - self.eps)
        self.m = largest(self.t, self.open)
        self.tau = self._scores()
        self.star = largest(self.tau, self.open)
        self.vanishes = np.zeros(self.open.shape[:-1], dtype=bool)  # rows whose sum could underflow to nothing
        if run.spec.normaliser == "softmax":
            self._softmax()

    def _softmax(self) -> None:
        self.rescalings = self._rescalings()
        self.a = self._shared()
        self.b, self.b_below = self._apart()

    def total(self) -> np.ndarray:
        """The heads' bound through the output step, and the last rounding."""
        out = projected(self.run, self.precision, self.per_head())
        exact = size(number(self.run.output))
        result = upper(out + (exact + out) * g(1, self.precision.input) + self.precision.input.eta)
        result[self.may_overflow()] = np.inf
        return result

    def _beside(self, keys: Any, sink: Any) -> Any:
        """A column for the sink, where there is one."""
        if self.run.spec.sink is None:
            return keys
        return (np if isinstance(keys, np.ndarray) else xp).concat([keys, sink], axis=-1)

    def _sink(self) -> Balls:
        """The logits of the sinks, (…, n_q, 1)."""
        shape = (*self.run.final_scores.plain_shape[:-1], 1)
        if self.run.spec.sink != "given":
            return xp.zeros(shape)
        z = self.run.values["sink"]
        return xp.zeros(shape) + (z[:, None, None] if self.run.spec.heads > 1 else z)

    def _scores(self) -> Balls:
        """Step 1: τ'_j."""
        p = self.precision
        f = p.score if p.contract == "fused" else p.roughest
        tau, shift = self.errors.tau * self.unit, self.errors.shift * self.unit
        tau = tau + g(2, f) * (size(self.t[..., : self.keys.shape[-1]]) + shift + tau)
        return self._beside(xp.where(self.keys, tau, 0), g(6, f) * (size(self._sink()) * self.unit + shift))

    def _rescalings(self) -> np.ndarray:
        """B_j. The comparison is in float64; a third of τ' more covers its rounding, as τ' ≥ 6u|t|."""
        t = np.where(self.open, self.t.midpoints(), -np.inf)
        tau = upper(self.tau) * 4 / 3
        tau[tau <= np.nextafter(0, 1)] = 0  # upper() moved an exact zero
        above = (t + tau)[..., None, :] > (t - tau)[..., :, None]
        above &= self.open[..., None, :]
        found: np.ndarray = above.sum(axis=-1) - (tau > 0)
        return np.where(self.open, np.maximum(found, 0), 0)

    def _shared(self) -> Balls:
        """Step 2: a_j."""
        f = self.precision.score
        fall = xp.where(self.open, self.m - self.t, 0)
        if self.run.spec.sink is not None:  # which need not be among those that the reference is the largest of
            last = largest(self.t[..., :-1], self.keys)
            above = xp.where(self.keys.any(axis=-1, keepdims=True), size(self.m - last), 0)
            fall = self._beside(fall[..., :-1], xp.maximum(fall[..., -1:], above))
        reference = g(2, f) * (self._length() + 2 * self.star)
        return self.tau + reference + g(3, f) * (fall + 2 * self.star) + (self.rescalings + 1) * Ball.lift(self.eps)

    def _length(self) -> Balls:
        """|t_j| + |m|, with what rows may be shifted by."""
        return size(self.t) + size(self.m) + 2 * self.errors.shift

    def _apart(self) -> tuple[Balls, Balls]:
        """Steps 3 and 4: b_j and b'_j."""
        p, log_n = self.precision, flint.arb(self.n).log()
        length = self._length() + log_n + 2 * self.star
        each = g(6, p.score) * length + 2 * self.eps * log_n + self.eps
        counts = self.n + self.rescalings + 4 * self.tiles + 2 * self.merges
        below = Ball.lift(counts) * rate(p.accumulate)
        values = (self.run.value_terms + 3 * self.uneven) * rate(p.roughest) + rate(p.stored)
        return each * (1 + self.merges) + below + 2 * rate(p.accumulate) + values, below

    def per_head(self) -> Balls:
        """Steps 5 and 6: M for the weighted values of each head, (…, n_q, d_v)."""
        if self.run.spec.normaliser != "softmax":
            return self._without_softmax()
        if not self.run.variant.rows:
            return self._without_rows(self._value_sizes())
        low = xp.sum(self.p * xp.exp(-self.a), axis=-1, keepdims=True)
        low = xp.where(low == 0, 1, low)  # a row without any weight
        w = xp.minimum(self.p * xp.exp(self.a) / low, Ball.lift(1))
        growth = 1 + xp.sum(w * (xp.exp(self.b_below) - 1), axis=-1, keepdims=True)
        factor = xp.exp(self.b) * growth
        away = self._weighed(w * (factor - 1), self._value_sizes())
        away = away + self._underflow(xp.max(factor, axis=-1, keepdims=True))
        if self.latents is not None:
            away = away + self._weighed(w * factor, self.latents[1])
        return self._mean_moved(low) + away

    def _weighed(self, w: Balls, sizes: Balls) -> Balls:
        """Σ w_j |v|_j. The values of a sink are 0; those of a row may be dropped, or have terms of their own."""
        w, values = w[..., : self.keys.shape[-1]], dict(self.run.values)
        if not self.uneven:
            return w @ sizes
        for step in self.run.steps:
            if step.name == "dropped":
                w = step.run(w, *(values[n] for n in step.of[1:]))
        rest = [size(values[n]) for n in self.run.value_step.of[2:]]
        return self.run.value_step.run(w, sizes, *rest)

    def _mean_moved(self, low: Ball) -> Balls:
        """The first part of step 5."""
        o = number(self.run.values["attended" if "attended" in self.run.values else "output"])
        share = self.p * (xp.exp(self.a) - 1) / low
        if self.uneven:
            return self._weighed(share, size(self._v())) + xp.sum(share, axis=-1, keepdims=True) * size(o)
        v = self._beside_values(self._v())
        away = size(v[..., None, :, :] - o[..., :, None, :])
        return xp.minimum(xp.sum(share[..., None] * away, axis=-2), self._farthest(v, o))

    def _beside_values(self, v: Balls) -> Balls:
        """A row of zeros for the sink, where there is one."""
        return v if self.run.spec.sink is None else xp.concat([v, v[..., :1, :] * 0], axis=-2)

    def _farthest(self, v: Balls, o: Balls) -> Balls:
        """max |v_j − o| over the keys j that the row may see, from ends rounded up."""
        ends = [np.where(self.open[..., None], upper(x)[..., None, :, :], -np.inf).max(axis=-2) for x in (v, -v)]
        high, low = (Ball.lift(np.where(np.isfinite(x), x, 0)) for x in ends)
        return xp.maximum(high - o, low + o)

    def _without_rows(self, sizes: Ball) -> Balls:
        """Weights that are not normalised along the row: each is off by its own factor and that of its sum, and by what
        underflows of it, relative to a sum of at least 1."""
        worst = largest(self.a, self.open | True) + largest(self.b_below, self.open | True)
        worst = xp.max(worst, axis=-2, keepdims=True)
        weights = size(self._beside(number(self.run.values["weights"]), worst * 0))
        p, kappa = self.precision, 4 + self.n + 4 * self.tiles + 2 * self.merges
        lost = max(p.score.eta, p.accumulate.eta) * kappa + p.stored.eta
        return self._weighed(weights * (xp.exp(self.a + self.b + worst) - 1) + float(lost), sizes)

    def _without_softmax(self) -> Balls:
        """Of weights that are made otherwise: see ``weights``."""
        f, e = self.precision.roughest, weight_errors(self.run, self.precision, self.tau)
        roundings = self.n + 4 + self.run.value_terms + 3 * self.uneven
        w = size(number(self.run.values["weights"])) + e
        found = self._weighed(e + w * g(roundings, f), self._value_sizes())
        if self.latents is not None:
            found = found + self._weighed(w, self.latents[1])
        return found + float(f.eta) * (4 + self.n) * (1 + self.run.value_terms)

    def _underflow(self, factor: Balls) -> Balls:
        """Step 6."""
        p, n = self.precision, self.n
        kappa = 4 + n + 4 * self.tiles + 2 * self.merges
        rise = self._without_subtraction()
        every, weight = rise * (max(p.score.eta, p.accumulate.eta) * kappa), rise * p.stored.eta
        below = xp.exp(-xp.max(self.b_below, axis=-1, keepdims=True)) - (every + weight) * n
        self.vanishes = np.asarray([x.lower() <= 0 for x in below.entries.flat]).reshape(below.plain_shape)[..., 0]
        below = xp.where(self.vanishes[..., None], 1, below)
        sizes = self._value_sizes()
        if self.uneven:
            total = self._weighed(xp.zeros(self.open.shape) + 1, sizes)
            most = total * factor
        else:
            total = xp.sum(sizes, axis=-2, keepdims=True)
            most = xp.max(sizes, axis=-2, keepdims=True) * factor
        projected = factor * (n * self.run.value_terms)
        return ((every + weight) * (total + most * n) + every * (projected + n)) / below

    def _without_subtraction(self) -> Balls:
        """e^{−m} where no maximum need be subtracted and the largest exponential is below 1, else 1."""
        lowest = np.log(float(min(self.precision.score.smallest_normal, self.precision.accumulate.smallest_normal)))
        m = self.m.midpoints()
        return xp.exp(Ball.lift(np.where(m >= lowest, np.maximum(-m, 0), 0)))

    def may_overflow(self) -> np.ndarray:
        """H7: rows (…, n_q) of the output in which an intermediate result could leave the range."""
        limit = float(min(f.largest for f in (self.precision.score, self.precision.accumulate, self.precision.input)))
        scores = upper(self.errors.largest).max(axis=-1) * LOG2_E * 1.01
        values = upper(self._weighed(xp.zeros((*self.open.shape[:-1], self.n)) + 1, self._value_sizes())).max(axis=-1)
        over = (scores > limit) | (values * 1.01 > limit) | self.vanishes
        heads = self.run.output_step is not None
        return np.asarray(over.any(axis=-2) if heads and over.ndim > 1 else over)

    def _v(self) -> Balls:
        return self.run.values[self.run.values_name]

    def _value_sizes(self) -> Balls:
        """|v|_j."""
        return self.latents[0] if self.latents is not None else self.run.absolute[self.run.values_name]
