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
   underflows), |t|_j the sum of the monomials' absolute values, scaled. By H4 the score is off by at most
   τ'_j = τ_j + g(2)(|t_j| + τ_j).
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

Evaluated in balls, and the upper end taken. A row whose terms may overflow gets +∞: there the bound says nothing.
Sources: N. J. Higham, Accuracy and Stability of Numerical Algorithms (2002), §3; P. Blanchard, D. J. Higham and
N. J. Higham, Accurately computing the log-sum-exp and softmax functions, IMA J. Numer. Anal. 41 (2021).
"""

from __future__ import annotations

from typing import Any

import flint
import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.formats import Format
from symattn.arrays.precision import Precision
from symattn.errors import Undecided
from symattn.verification.reference import Run, Values

_SCALE_ROUNDINGS = 6
_LOG2_E = 1.5  # rounded up
Balls = Any  # arrays of balls, as their untyped namespace gives them
xp = Ball.xp


def allowed(run: Run, precision: Precision) -> np.ndarray:
    """The largest legal |y − o| for each element of the output, as float64 rounded up; +∞ where nothing is said."""
    bound = _Bound(run, precision)
    try:
        out = bound.projected(bound.per_head())
    except Undecided:  # exponentials of errors beyond all range
        return np.full(run.output.plain_shape, np.inf)
    exact = _size(_number(run.output))
    result = upper(out + (exact + out) * g(1, precision.input) + precision.input.eta)
    result[bound.may_overflow()] = np.inf
    return result


def g(n: Any, f: Format) -> Any:
    """g(n) = e^{nλ} − 1, λ = u/(1 − u), in balls."""
    return xp.exp(Ball.lift(n) * _rate(f)) - 1


def upper(balls: Balls) -> np.ndarray:
    """Upper ends as float64, rounded up."""
    ends = np.frompyfunc(lambda x: float(x.upper()), 1, 1)(balls.entries).astype(np.float64)
    return np.asarray(np.nextafter(ends, np.inf))


class _Bound:
    """The quantities of the statement, by their names there; arrays are (…, n_q, n_k) or (…, n_q, 1)."""

    def __init__(self, run: Run, precision: Precision) -> None:
        self.run, self.precision = run, precision
        self.open = run.allowed
        self.n = self.open.shape[-1]
        self.tiles = min(self.n, precision.tiles or self.n) if self.n > 1 else 0
        self.merges = min(self.n - 1, precision.merges)
        self.t = xp.where(self.open, _number(run.final_scores), 0)
        self.p = xp.where(self.open, _number(run.values["weights"]), 0)
        self.eps = 2 * precision.exp_ulps * float(precision.score.u)
        self.eps = self.eps / (1 - self.eps)
        self.m = _largest(run.final_scores, self.open)
        self.tau = self._scores()
        self.star = _largest(self.tau, self.open)
        self.rescalings = self._rescalings()
        self.a = self._shared()
        self.b, self.b_below = self._apart()
        self.vanishes = np.zeros(self.open.shape[:-1], dtype=bool)  # rows whose sum could underflow to nothing

    def _score_format(self) -> Format:
        p = self.precision
        return p.score if p.contract == "fused" else p.roughest

    def _scores(self) -> Balls:
        """Step 1: τ'_j."""
        f, run = self._score_format(), self.run
        size = _size(run.absolute["scaled"])
        if run.spec.mask == "additive":
            size = size + _size(_number(run.values["mask"]))
        size = xp.where(self.open, size, 0)
        tau = g(run.terms + _SCALE_ROUNDINGS, f) * size + self._score_underflow(f)
        return xp.where(self.open, tau + g(2, f) * (_size(self.t) + tau), 0)

    def _score_underflow(self, f: Format) -> Balls:
        """Every operation of step 1 may be off by η, and that is multiplied by what comes later."""
        absolute = self.run.absolute
        d_k = absolute["q"].plain_shape[-1]
        size = _largest_row(absolute["q"]) + _largest_row(absolute["k"]) + 2 * d_k + 1
        if "w_q" in self.run.values:  # W_Q W_Kᵀ may be formed first
            x = absolute["x"]
            size = size + _largest_row(x) * _largest_row(absolute.get("y", x)) * d_k
        steps = int(self.run.terms.max(initial=0)) + _SCALE_ROUNDINGS + 2
        scale = max(1.0, abs(float(self.run.spec.scale or 1)))
        return size * (self.run.terms > 0).astype(float) * (float(f.eta) * steps * _LOG2_E * scale)

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
        reference = g(2, f) * (_size(self.t) + _size(self.m) + 2 * self.star)
        return self.tau + reference + g(3, f) * (fall + 2 * self.star) + (self.rescalings + 1) * Ball.lift(self.eps)

    def _apart(self) -> tuple[Balls, Balls]:
        """Steps 3 and 4: b_j and b'_j."""
        p, log_n = self.precision, flint.arb(self.n).log()
        length = _size(self.t) + _size(self.m) + log_n + 2 * self.star
        each = g(6, p.score) * length + 2 * self.eps * log_n + self.eps
        counts = self.n + self.rescalings + 4 * self.tiles + 2 * self.merges
        below = Ball.lift(counts) * _rate(p.accumulate)
        values = self.run.value_terms * _rate(p.roughest) + _rate(p.stored)
        return each * (1 + self.merges) + below + 2 * _rate(p.accumulate) + values, below

    def per_head(self) -> Balls:
        """Steps 5 and 6: M for the weighted values of each head, (…, n_q, d_v)."""
        size = self._value_sizes()
        if not self.run.variant.rows:
            return self._without_rows(size)
        low = xp.sum(self.p * xp.exp(-self.a), axis=-1, keepdims=True)
        low = xp.where(low == 0, 1, low)  # a row without any weight
        w = xp.minimum(self.p * xp.exp(self.a) / low, Ball.lift(1))
        growth = 1 + xp.sum(w * (xp.exp(self.b_below) - 1), axis=-1, keepdims=True)
        factor = xp.exp(self.b) * growth
        return self._mean_moved(low) + (w * (factor - 1)) @ size + self._underflow(size, xp.max(factor, axis=-1))

    def _mean_moved(self, low: Ball) -> Balls:
        """The first part of step 5."""
        v = self._v()
        o = _number(self.run.values["attended" if "attended" in self.run.values else "output"])
        away = _size(v[..., None, :, :] - o[..., :, None, :])
        share = (self.p * (xp.exp(self.a) - 1) / low)[..., None]
        return xp.minimum(xp.sum(share * away, axis=-2), self._farthest(v, o))

    def _farthest(self, v: Balls, o: Balls) -> Balls:
        """max |v_j − o| over the keys j that the row may see, from ends rounded up."""
        ends = [np.where(self.open[..., None], upper(x)[..., None, :, :], -np.inf).max(axis=-2) for x in (v, -v)]
        high, low = (Ball.lift(np.where(np.isfinite(x), x, 0)) for x in ends)
        return xp.maximum(high - o, low + o)

    def _without_rows(self, size: Ball) -> Balls:
        """Weights that are not normalised along the row: each is off by its own factor and that of its sum."""
        worst = _largest(self.a, self.open | True) + _largest(self.b_below, self.open | True)
        worst = xp.max(worst, axis=-2, keepdims=True)
        weights = _size(_number(self.run.values["weights"]))
        return (weights * (xp.exp(self.a + self.b + worst) - 1)) @ size

    def _underflow(self, size: Balls, factor: Balls) -> Balls:
        """Step 6."""
        p, n = self.precision, self.n
        kappa = 4 + n + 4 * self.tiles + 2 * self.merges
        rise = self._without_subtraction()
        every, weight = rise * (max(p.score.eta, p.accumulate.eta) * kappa), rise * p.stored.eta
        below = xp.exp(-xp.max(self.b_below, axis=-1, keepdims=True)) - (every + weight) * n
        self.vanishes = np.asarray([x.lower() <= 0 for x in below.entries.flat]).reshape(below.plain_shape)[..., 0]
        below = xp.where(self.vanishes[..., None], 1, below)
        total = xp.sum(size, axis=-2, keepdims=True)
        largest = xp.max(size, axis=-2, keepdims=True) * factor[..., None]
        projected = factor[..., None] * (n * self.run.value_terms)
        return ((every + weight) * (total + largest * n) + every * (projected + n)) / below

    def _without_subtraction(self) -> Balls:
        """e^{−m} where no maximum need be subtracted and the largest exponential is below 1, else 1."""
        lowest = np.log(float(min(self.precision.score.smallest_normal, self.precision.accumulate.smallest_normal)))
        m = self.m.midpoints()
        return xp.exp(Ball.lift(np.where(m >= lowest, np.maximum(-m, 0), 0)))

    def projected(self, moved: Ball) -> Balls:
        """Step 7, where there is an output step."""
        step = self.run.output_step
        if step is None:
            return moved
        sizes = {n: _size(_number(self.run.values[n])) for n in step.of}
        if "w_o" not in sizes:
            return self._output({**sizes, "attended": moved})
        without_bias = sizes | ({"b_o": sizes["b_o"] * 0} if "b_o" in sizes else {})
        passed = self._output({**without_bias, "attended": moved})
        rounded = self._output({**sizes, "attended": sizes["attended"] + moved})
        f, terms = self.precision.roughest, sizes["w_o"].plain_shape[-2] + 2
        return passed + rounded * g(terms, f) + f.eta * terms

    def _output(self, values: Values) -> Balls:
        """The output step, or what a variant puts in its place, on other arrays."""
        step, change = self.run.output_step, self.run.variant.steps.get("output")
        assert step is not None
        return change(self.run.spec, values) if change else step.run(*[values[n] for n in step.of])

    def may_overflow(self) -> np.ndarray:
        """H7: rows (…, n_q) of the output in which an intermediate result could leave the range."""
        absolute = self.run.absolute
        limit = float(min(f.largest for f in (self.precision.score, self.precision.accumulate, self.precision.input)))
        scores = np.maximum(upper(absolute["scores"]), upper(_size(absolute["scaled"]))).max(axis=-1) * _LOG2_E * 1.01
        values = upper(xp.sum(self._value_sizes(), axis=-2)).max(axis=-1, keepdims=True) * 1.01
        over = (scores > limit) | (values > limit) | self.vanishes
        heads = self.run.output_step is not None
        return np.asarray(over.any(axis=-2) if heads and over.ndim > 1 else over)

    def _v(self) -> Balls:
        return self.run.values[self.run.variant.values]

    def _value_sizes(self) -> Balls:
        """|v|_j."""
        return self.run.absolute[self.run.variant.values]


def _rate(f: Format) -> flint.arb:
    """λ."""
    u = flint.arb(float(f.u))
    return u / (1 - u)


def _number(balls: Balls) -> Balls:
    """Zero in place of −∞ and undefined."""
    return xp.where(xp.isfinite(balls), balls, 0)


def _size(balls: Balls) -> Balls:
    """Absolute values, of finite entries alone, in one pass."""
    return Ball(Ball.each(abs, balls))


def _largest_row(balls: Balls) -> Balls:
    """The largest sum over the last axis."""
    return xp.max(xp.sum(balls, axis=-1))


def _largest(balls: Balls, where: np.ndarray) -> Balls:
    """Row maxima over the places in ``where``, kept as an axis; 0 for a row without any."""
    m = xp.max(xp.where(where, balls, -np.inf), axis=-1, keepdims=True)
    return _number(m)
