"""How far a legal implementation can be from the exact output: the bound that replaces tolerances.

Statement. Let t_j be the exact masked scores of a row, p_j its weights, v_j one column of the values, o = Σ p_j v_j.
Let y be what an implementation in the arithmetic of a ``Precision`` gives, under

  H1  every operation is (exact)(1 + δ) + η', |δ| ≤ u, |η'| ≤ η (η' = 0 unless the result underflows), u and η those of
      the format; the exponential, of base e or 2, and the logarithm have relative error at most ε = 2·exp_ulps·u, and
      exp(0) = 1; ``accumulate`` is the arithmetic of sums, and may have a u of its own: that of sums in matrix units;
  H2  sums are taken in any order, or so that no term passes more than ``height`` additions; products may be fused into
      them (no Strassen); zero times a number is zero; factors may be rounded to ``factors`` first;
  H3  the factor s of the scores, and log₂ e if the base is 2, reach a product q_l k_l by at most K = 6 roundings, in
      constants or in products, before or after the sum, with factors between 1 and s;
  H4  to a score, two more roundings (a mask added, a score stored), and one of ``kept``; from it a reference is
      subtracted: the largest score met so far, or nothing where exponentials stay in range, with at most three
      roundings in subtracting, storing and rescaling, and two of the reference itself;
  H5  when the maximum grows, at most ``rescalings`` times, what was summed is rescaled by one exponential and one
      product; the running result, one number, may also be normalised after each of ``tiles`` tiles, with four more
      roundings; and either at most ``merges`` times, one after another, parts normalised by themselves are merged by
      their log-sum-exp, or (``lse``) weights are exp(score − log-sum-exp);
  H6  weights may be rounded to ``stored``, before they are summed as well or only before they meet the values; division
      by the sum is before or after the values, as one division or as reciprocal and product; a forbidden key has weight
      zero, or at most η (a mask of −1e9), whatever becomes of its score; step 7 says which allowed keys count as such;
  H7  nothing overflows: no sum of absolute values of its terms exceeds the range, but for scores of step 7.

Then |y − o| ≤ ``allowed``. Proof. Put λ = u/(1 − u), so that |ln(1 + δ)| ≤ λ, and g(n) = e^{nλ} − 1: a product of n
factors (1 + δ)^{±1} is within g(n) of 1. n counts the keys, n_i those that the row may see.

1. Scores (H2, H3). Each monomial passes N_j + K roundings, so its sum is off by at most τ_j = g(N_j + K) |t|_j + (what
   underflows), |t|_j the sum of the monomials' absolute values, scaled; for scores that are made otherwise, capped or
   biased, ``scores`` has τ_j. By H4 the score is off by at most τ'_j = τ_j + g(2)(|t_j| + τ_j), and the same for
   ``kept``.
2. Exponents. Put τ* = max τ', m = max t, ε' = ε/(1 − ε). A reference is m̂ at the end and lies between t_j and m
   before, up to τ*. A shift common to the row cancels in the quotient; what does not is the rounding of references
   that differ, at most g(2)(|t_j| + |m| + 2τ*), and that of the differences: their absolute values telescope to m̂ −
   t̂_j as the maximum grows, so g(3)(m − t_j + 2τ*). A rescaling of key j needs a computed score above its own, each
   time a larger one, so there are at most B_j = #{i ≠ j: t_i + τ'_i > t_j − τ'_j} of them, and ``rescalings``. So key
   j's exponential, as it is summed, is e^{t_j − m} e^{θ}, up to a factor common to the row, with |θ| ≤ τ'_j + r_j,
     r_j = g(2)(|t_j| + |m| + 2τ*) + g(3)(m − t_j + 2τ*) + (1 + B_j) ε'.
3. Log-sum-exps. Let β* be the largest r_j + b⁰_j + g(4)(|m| + ln n + 2τ*) + 2ε' ln n, with b⁰ of step 4 for the sum
   that the logarithm is taken of: then Λ = ln n + 2τ* + β* is at least the logarithm, and |m| + Λ the log-sum-exp as
   computed.
   a. Weights exp(score − log-sum-exp) have exponentials of their own: e^{t_j − m} e^{θ}, |θ| ≤ τ'_j + r'_j, up to a
      common factor, r'_j = g(3)(m − t_j + Λ) + ε', since t_j − lse is at most m − t_j + ln n in size. The common
      factor: the sum is off by factors e^{±(r_j + b⁰_j)}, τ'_j being common to both exponentials, its logarithm by
      2ε'(ln n + β*) at most, and the sum with m̂, its storing and a change of base by g(4)(|m| + Λ).
   b. A merge multiplies parts by exponentials of differences of two log-sum-exps: two logarithms 2ε'(ln n + β*), sums
      and storing g(4), the difference of at most twice their size g(2), and ε'. So for each merge
        e_j = g(6)(|t_j| + |m| + Λ) + 2ε'(ln n + β*) + ε',
      enlarged by 1/(1 − merges (g(6) + 2ε')), since log-sum-exps that were merged before are off by this as well.
   Let a_j = τ'_j + max(r_j, r'_j), with r'_j only for ``lse``.
4. Sums (H5, H6). Numerators and denominators are binary trees of additions, with products in between. Products scale
   what is below them, so their roundings can be put to the terms: in the numerator B_j + 3 + 2·merges (its own product,
   two of the division, rescalings, merges) and those of its value, in the denominator B_j + 2·merges. So
     y = (Σ p_j e^{θ_j + σ_j} v_j + E) / Σ p_j e^{θ_j + ρ_j},   |θ_j| ≤ a_j,
     |σ_j| ≤ s_j = (B_j + 3 + 2·merges) λ_a + merges · e_j + (the value's),
     |ρ_j| ≤ b_j = b⁰_j + max{merges · e_j, r_j + r'_j + g(4)(|m| + Λ) + 2ε'(ln n + β*)},
     b⁰_j = (h + 1 + B_j + 4·tiles + 2·merges) λ_a,
   but for storing and underflow, where h = min(height, n_i − 1) bounds the additions a term passes. (What is forbidden
   and not quite zero is absorbed: a float that is rounded to nearest moves by no more than what is added to it; see 6.)
   E is the error of the numerator's additions and of normalising it at each tile. With X the sum of the terms' absolute
   values, and Z their sum: a term passes h + 4·tiles of these roundings, so |E| ≤ g(h + 4·tiles) X. Also, there are at
   most N = n_i − 1 + 4·tiles of them in all, each of a sum of some of the terms, which, without its error, lies between
   the sum of the negative terms and that of the positive ones, so is at most (X + |Z|)/2; errors add up along the tree,
   so the largest error of a sum is at most N u ((X + |Z|)/2 + itself), and |E| ≤ N u/(1 − N u) · (X + |Z|)/2. The
   second form is not used where errors are relative to absolute values (matrix units), nor for values that are sums
   themselves.
5. Put A = Σ p_j e^{−a_j}, p̃_j = p_j e^{θ_j}/Σ p e^θ ≤ w_j = min(1, p_j e^{a_j}/A), õ = Σ p̃_j v_j. Then
     |õ − o| = |Σ p_j (e^{θ_j} − 1)(v_j − o)| / Σ p e^θ ≤ W = min{Σ p_j (e^{a_j} − 1)|v_j − o| / A, max_j |v_j − o|},
   the latter since õ is a mean of the v_j. And y = (Σ p̃_j e^{σ_j} v_j + E)/R with
     R = Σ p̃_j e^{ρ_j} ≤ G = 1 + Σ w_j (e^{b_j} − 1),
   and 1/R ≤ 1/Σ p̃ e^{−b} ≤ Σ p̃ e^{b} ≤ G (arithmetic and harmonic mean). With S = Σ w_j (e^{s_j} − 1)|v|_j, X = Σ
   w_j |v|_j,
     |y − õ| ≤ |1/R − 1||õ| + (S + |E|)/R ≤ (G − 1)(|o| + W) + G (S + E(X + S, |o| + W + S)).
   Storing weights moves each by a factor e^{δ_j}, |δ_j| ≤ λ_P. If it is in the numerator alone, it adds G (e^{λ_P} −
   1)(X + S); if the sum has it too, weights are p̃ e^δ/Σ p̃ e^δ in the place of p̃: their mean is off by at most
   (e^{λ_P} − 1) e^{λ_P} (Y + W), where Y = min{Σ w_j |v_j − o|, X + |o|}, and they are at most e^{2λ_P} w_j. Let P be
   the larger one of (e^{λ_P} − 1)(X + S) and (e^{λ_P} − 1) e^{λ_P} (Y + W), and G' = 1 + e^{2λ_P}(G − 1). Both are
   covered by
     M = W + P + (G' − 1)(|o| + W + P) + G' e^{2λ_P} (S + E(X + S, |o| + W + P + S)).
6. Underflow. At most κ = 6 + n + 4·tiles + 2·merges operations touch a term after its score, each off by at most η, and
   storing a weight by at most η_P, of numbers relative to a sum of at least 1 (the largest exponential is e^0), or e^m
   where nothing was subtracted and e^m is no subnormal number. (Forbidden keys that are not quite zero are among
   these.) Weights that are not ``normalised`` before they are stored are relative to the largest: then η_P max w
   stands for η_P. So numerator and denominator are off by at most (κη + η_P) Σ|v|_j + κηn and (κη + η_P) n, the
   denominator is at least D = e^{−max b} − (κη + η_P) n, and if that is positive the quotient moves by at most, with
   F = e^{max s + 2λ_P} (g(h + 4·tiles) + 1) G', [(κη + η_P)(Σ|v|_j + n max|v|_j F) + κηn]/D; values that were
   projected in r operations each add at most κηnr F. The bounds of 5. and 6. together are M.
7. Keys far below, under an additive mask, such as one of −1e9. Let a be the key with t_a = m, L = 3 − ln η, and
     (m − t_j − τ'_j − τ'_a − g(2)(|m| + τ'_a)) (1 − g(3)) ≥ L.
   The reference is at least the computed score of key a in the end, t_a − τ'_a but for its roundings, and so is a
   log-sum-exp but for β*; key j's computed score is at most t_j + τ'_j, or has become −∞. So if β* ≤ 1 the argument of
   its exponential is at most ln η − 2 by H4, and the exponential at most η: the key counts as forbidden in all steps
   above, which then bound |y − o'|, o' being the output without these keys. They weigh less than nη/e in all, so that
   |o − o'| ≤ nη max |v_j − v_k|, which is added to M. If β* > 1, nothing is said.
8. Steps behind the weighted values H, such as a gate, an output projection or a factor, take M to the M of what they
   give, in their order, each by its error term: these are proved in ``output_steps``. The output o is rounded once:
   allowed = M + g(1)(|o| + M) + η.                                                                                    ∎

Variants. Masks of every kind say which keys there are; heads that share keys and values are heads with equal ones.
  * A sink is one more key with the value 0. Its score is read, scaled and stored: τ' = g(6)|z|. The reference m̂ may be
    the largest of the other scores alone: then its difference is z − m̂ in place of m − z.
  * Powers of two are those of e of scores times log 2, and τ', sizes and shifts are so many times as large.
  * Rows may be shifted by a constant of at most c (``scores`` says by which): sizes |t_j| and |m| grow by c.
  * Values that are sums (projections) have monomials in the place of v_j, each with roundings of its own, and |v|_j
    is the sum of their absolute values. Values from a latent, or normalised ones, are off by e_j beforehand:
    Σ w_j e^{s_j} g' G' e_j more.
  * Dropout and terms of the values by distance give each row values of its own, v_ij, with three roundings more; in 5.
    |v_ij − o| is replaced by |v_ij| + |o|. Nothing but linearity in the weights was used.
  * Without a softmax there is no quotient, and ``weight_errors`` bounds the error of each weight instead of 2 to 6.

A row whose terms may overflow gets +∞: there the bound says nothing. ``balls`` evaluates this in balls, for
every variant, and takes the upper end; ``float_worst_case`` in float64, at the speed of BLAS, for each softmax of
scores that float64 or enclosures give, and values that are inputs or projections of tokens.
Sources: N. J. Higham, Accuracy and Stability of Numerical Algorithms (2002), §3 and §4.2 (sums, by the sizes of partial
sums); P. Blanchard, D. J. Higham and N. J. Higham, Accurately computing the log-sum-exp and softmax functions, IMA J.
Numer. Anal. 41 (2021); of matrix units, Fasi, Higham, Mikaitis, Pranesh, Numerical behavior of NVIDIA tensor cores,
PeerJ Comput. Sci. 7:e330 (2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from symattn.arrays.ball import precision as bits
from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds import enclosed
from symattn.bounds.balls import allowed as in_balls
from symattn.bounds.reference import canonical, float64_inputs, run
from symattn.document.errors import Refused

# Bits of balls, far more than float64's 53, so that their radii are negligible.
_BITS = 128


@dataclass(frozen=True, eq=False)
class Bound:
    """How far each element of the output may be from the exact one: (…, n_q, d_v), +∞ where nothing is said.

    ``parts`` says how much of it comes from which step; they sum to ``allowed`` where that is finite. It is empty where
    the evaluation is one in balls (``method``), which knows the sum alone.
    """

    allowed: np.ndarray
    parts: dict[str, np.ndarray]
    method: str

    @property
    def largest(self) -> float:
        """The largest allowed error."""
        return float(self.allowed.max(initial=0.0))

    @property
    def where(self) -> tuple[int, ...]:
        """The index of the largest."""
        place = np.unravel_index(int(self.allowed.argmax()), self.allowed.shape)
        return tuple(int(i) for i in place)

    def steps(self) -> dict[str, float]:
        """Return the parts of the largest element, the largest part first."""
        result = {name: float(part[self.where]) for name, part in self.parts.items()}
        return dict(sorted(result.items(), key=lambda item: -item[1]))


def bound(spec: Attention, inputs: Mapping[str, object], precision: str | Precision) -> Bound:
    """Return the bound for these inputs, by name (q, k, v, mask, …), as ``Attention`` takes them.

    Plain attention (masks, heads, shared keys, sinks) is bounded in floats at BLAS's speed. So is every softmax of
    other scores (rotary positions, caps, biases, additive masks), from enclosures of these; what is left, in balls.
    Raises InputError where no bound is proved for the specification. The statement and its proof stand above.
    """
    arrays = float64_inputs({name: np.asarray(a) for name, a in inputs.items()})
    spec, precision = canonical(spec), Precision.of(precision)
    try:
        whole, shares = enclosed.with_shares(spec, arrays, precision)
    except Refused:
        with bits(_BITS):
            return Bound(in_balls(run(spec, arrays), precision), {}, "balls")
    with np.errstate(all="ignore"):  # shares that sum to what is allowed
        total = sum(shares.values())
        factor = np.where(np.isfinite(whole) & (total > 0), whole / total, 0.0)
        shares = {
            name: np.where(np.isfinite(part), part, 0.0) * factor for name, part in shares.items()
        }
    return Bound(whole, shares, "floats")
