"""The filter: how far roundings to nearest take an output, but for a probability that one picks.

The worst case (``bounds.worst_case``) has to allow that all roundings err together. This is what is left if they do
not. Statement. p_j are the exact weights of a row, t_j its scores, v_j its values, o = Σ p_j v_j, y what an
implementation returns; D is a direction: numbers for some elements, which do not depend on y. Under

  N1  *what is stored.* In the input's format, of unit roundoff u and half least number η: scores at most ``scores``
      times (0: they stay wide; 2: as products and scaled; 5: and, of a cap, the quotient, its tanh and the product),
      once more with each array that is added to them (a bias, an additive mask: numbers of the format), sums of these
      arrays even where scores stay wide, and, beside a sink, differences of scores to the largest one or the sink's,
      m; weights once, divided by their sum or relative to a reference, before the sum is taken of them or after; and
      the output. A reference is a score of the row, the largest so far or a stale one, or does not depend on scores;
      a power of 2 times such an exponential may be stored. (A constant above the largest score is no reference: the
      largest weights of all rows would be rounded alike.) The scale is exact, or a number of the format: rounded once,
      as itself, as what scores are divided by, or with log₂ e in it, or twice, as a divisor and then as 1 over it. All
      else is float32, of roundoff w, with exponentials off by at most ε = 2⁻¹³, rescalings included, up to a factor
      common to the row, and tanh of a cap by 2⁻¹¹ of itself.
  N2  *rounding to nearest.* Roundings are independent random numbers of mean 0, each at most half an ulp of what is
      rounded; those of equal numbers are the same one.

let x_e be what is stored, h_e half its ulp, and x̄_e = Σ D ∂y/∂x_e. Then, but for a probability of 2 e^{−λ²/2},

    |⟨D, y − o⟩| ≤ λ σ + r,   σ² = Σ_g (Σ_{e in g} h_e x̄_e)²   over groups g of equal numbers,

r being the second order. K directions are within this at once, but for α, with λ = √(2 ln(2K/α)).

Proof. A number of mean 0 in [−h, h] has E e^{sX} ≤ e^{s²h²/2} (Hoeffding), a sum of independent ones E e^{sX} ≤
e^{s²σ²/2}, so P(|X| > λσ) ≤ 2 e^{−λ²/2} (Chernoff); for K of them probabilities add up. So it is with the first order
of y − o. It remains to find h x̄, and the second order. For each row let a_j = Σ_c D_c v_jc and g = Σ_c D_c o_c.

1. *First order.* A rounding that multiplies e^{t_j} by 1 + δ moves ⟨D, y⟩ by p_j (a_j − g) δ if the sum has it, and by
   p_j a_j δ if only the numerator has. One of a score, by δ t_j, does as e^{t_j} (1 + δ t_j); before a cap it moves t
   by no more than δ t, since x sech² x ≤ tanh x; and before the arrays b, b', … are added, by δ y, y = t − b − b' − …;
   sums of them are off by δ (|y| + |b| + |b'| + …) at most. In the place of t_j², and of |t_j| below, stands the square
   of the largest of these; of one array that is the larger one of |y| and |t|. So with
       h_j² = u² + (scores · u² + 2⁻²² if there is a cap) t_j² + κ²,
       σ² ≤ max{Σ m_j p_j² h_j² a_j², Σ m_j p_j² h_j² (a_j − g)²} + η² Σ a_j² + (step 2),
   where m_j is the number of keys with the same score, or with the same y if they are more, as a group of m has
   (Σ h x̄)² ≤ m Σ (h x̄)²; η is for weights below the normal numbers. A stored difference t_j − m is off by
   u(|t_j| + M), M = max{max|t|, |z|}, and z − m by u(|z| + M): two more in ``scores`` (x² ≤ 2a² + 2b² for x = a + b),
   and κ² has 2u²(|z| + M)² more.
2. *What float32 adds*: the product of q and k passes d + 8 roundings, each of at most w s ‖q‖‖k‖, and e^{t − m} four of
   at most w(|t| + |m|) together with ε: κ² = w² (d + 8 + 16) (s ‖q‖ max‖k‖ + max (|b_j| + |b'_j| + …))² + ε². The
   sums, of products and of weights, rescaled after tiles of 16 keys or more: at most 3 (n + 16) roundings of at most
   w max|a_j| each, so 3 (n + 16) w² max a_j² more in σ².
3. *Second order.* Let E_j ≥ |θ_j| bound the logarithm of the factor of key j. Along τθ, 0 ≤ τ ≤ 1, the weights p^τ are
   within e^{2Ē} of p, Ē = max E_j, and the mean f of a has f'' = Σ p^τ (θ_j − θ̄)² (a_j − f). θ̄ is within β = λ
   √(Σ m_j p_j² E_j²) by N2. So half of f'' is at most ½ e^{2Ē} Σ p_j (E_j + β)² |a_j − f|. If the sum lacks the
   rounding of the weights, the rest is a mean of a_j δ_j with the weights moved: |Σ (p^1_j − p_j) δ_j a_j| ≤
   u e^{2Ē} Σ p_j (E_j + β) |a_j|; and ln(1 + δ) is δ up to δ². Together, with A ≥ |a_j| + |g|,
       r ≤ e^{2Ē} Σ p_j A_j (E_j + β) (½ (E_j + β) + 2u).
   A key whose score is so far below another one that its exponential is 0 whatever roundings do (finfo.min or −10⁹
   was added to it) has no part in any of this.
4. *The output* is rounded once: of one element by half an ulp of what it may be at most, taken at its worst; in means,
   its h x̄ = (half an ulp of what it may be at most) · D is one more term, and u² |D| |o| is added to r. ∎

FP8. Queries, keys and values are numbers of 8 bits times descale factors; what these products are is exact, and is
what the definition is given here. Two hypotheses are others, as u is no small number now. N1: only exponentials are
stored, relative to the largest score so far (of all keys, or of a part that is merged by its log-sum-exp later), times
a number that is at least ``times`` and does not leave the range, in a format of 8 bits or a finer one; the output in a
format of its own; scores are not, and the scale, times factors of queries and keys, is float32's. N2: the mean of a
rounding need not be 0. Where the density of exponentials falls as x^{−k}, more of them lie below a number of the format
than above it, and are rounded up: by about k/3 of the square of half an ulp in the mean, relative to x. So roundings
are μ + ξ_j, in parts of x, where ξ_j have mean 0 and are independent, and |μ| ≤ u², which is enough for k ≤ 3. Then,
with E'_j = E_j without u,

    |⟨D, y − o⟩| ≤ λ σ/(1 − u) + r + u² |g|/(1 − u).

Proof. With θ from scores and exponentials alone, p^θ the weights that it gives and g^θ = Σ p^θ_j a_j, ⟨D, y⟩ is
Σ p^θ_j (1 + δ_j) a_j if sums are taken before the rounding, that is g^θ + Σ p^θ_j δ_j a_j; and g^θ + Σ p^θ_j δ_j (a_j −
g^θ)/(1 + Σ p^θ_j δ_j) if after, where the divisor is at least 1 − u. g^θ − g is what steps 1 to 3 say for E' alone; β
is at most Σ p_j E'_j whatever roundings do, which is taken. With p in the place of p^θ, and g of g^θ, the sums are
linear in δ: their parts of ξ are in σ, and those of μ are μ g and 0. The rest is at most u Σ |p^θ_j − p_j| A_j + u |g^θ
− g|, as in step 3. Below the normal numbers an exponential is off by η, relative to a maximum that is at most the row's
last one, so a weight by η/Σ e^{t_j − m} = η max p_j: this, and that of the sink if it is larger, over ``times``, is η
in step 1. ∎

Without N2, under N1 alone, |⟨D, y − o⟩| ≤ Σ h |x̄| + r, with Σ p_j E_j in the place of β: all roundings err together.
What is beyond this for each of the ways that ``sharp.ways`` lists (constants for the scale, and whether queries are
stored scaled) needs no law of rounding, and is accused whatever the guard says. The limits above are those of one such
way, with its constant and its queries known; an output is accused only if it is beyond those of each.

N2 is false for right kernels on some inputs: where all weights of a row lie within an ulp (scores near 0, as at
initialisation), or values near each other share their sign, roundings go together. So nothing is claimed by this alone:
before an output is accused, right ways to compute the same rows are replayed (``guard``), with references of each kind
(``ways.replays``), and if one of them needs more than a part of the limit, the filter is silent on these inputs. Sums
in the short format, and rounding toward zero, are outside N1 and N2; they are legal in their own contracts, which the
worst case has.

Sources: W. Hoeffding, Probability inequalities for sums of bounded random variables, J. Amer. Statist. Assoc. 58
(1963), lemma 1; N. J. Higham and T. Mary, A new approach to probabilistic rounding error analysis, SIAM J. Sci. Comput.
41 (2019), for the model. That equal numbers are rounded alike, and the rest, is shown here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt
from typing import Any

from symattn.arrays.formats import HALF, Format
from symattn.arrays.namespace import namespace_of
from symattn.arrays.precision import Precision

#: float64 or float32: a NumPy array, or a torch tensor, of which only single numbers leave the device.
Floats = Any

# Input formats with the hypotheses of the section FP8 above.
FP8 = ("float8_e4m3fn", "float8_e5m2")
#: The probability that a right output exceeds its limits, unless another one is chosen.
ALPHA = 1e-9
#: w, the unit roundoff of float32.
W = 2.0**-24
#: ε of N1: the relative error of an exponential, rescalings included.
EXPONENTIAL = 2.0**-13
#: The relative error of a cap's tanh (N1).
TANH = 2.0**-11
#: N1, and N1 with N2, as reports print them.
STORED = "sums are taken in float32, and what is stored is to nearest"
HYPOTHESIS = "roundings to nearest are independent with mean 0, and sums are taken in float32"
_EXPONENTIALS = (
    "and what is stored of weights are exponentials relative to the largest score so far"
)


@dataclass(frozen=True)
class Stores:
    """N1: the format in which arrays are stored, and how often scores are; for FP8 the format of the ``output``, and
    the least factor of exponentials."""

    format: Format
    scores: int
    output: Format | None = None
    times: float = 1.0

    @classmethod
    def of(
        cls, precision: Precision, wide_sums: bool = False, capped: bool = False
    ) -> Stores | None:
        """Return what ``precision`` lets an implementation store; None if the filter does not apply.

        ``wide_sums`` says that sums are in float32, whatever the precision allows; ``capped``, that scores have a cap.

        >>> Stores.of(Precision.of("bfloat16", "fused")).scores, Stores.of(Precision.of("bfloat16"))
        (0, None)
        """
        wide = wide_sums or (
            precision.accumulate.name == "float32" and not precision.accumulate.aligned
        )
        if precision.input.name in FP8:
            # FP8: only exponentials that are not yet divided by their sum may be stored.
            applicable = wide and precision.contract == "fused" and not precision.normalised
            return (
                cls(precision.stored, 0, precision.returned, precision.times)
                if applicable
                else None
            )
        # Sums in a short format are outside N1, and wider inputs need no filter.
        if precision.input.name not in HALF or not wide:
            return None
        # Eager code stores products and scaled scores; a cap has three more arrays (N1).
        return cls(precision.input, 0 if precision.contract == "fused" else 2 + 3 * capped)

    @property
    def u(self) -> float:
        """The unit roundoff of the format."""
        return float(self.format.u)

    @property
    def last(self) -> Format:
        """The format of the output."""
        return self.output or self.format

    @property
    def linear(self) -> float:
        """1/(1 − u) in FP8, the only second order of roundings of weights there; else 1."""
        return 1.0 if self.output is None else 1 / (1 - self.u)

    @property
    def mean(self) -> float:
        """u²/(1 − u) in FP8, the contribution of μ; else 0."""
        return 0.0 if self.output is None else self.u**2 * self.linear

    @property
    def stored(self) -> str:
        """N1 in words."""
        return STORED if self.output is None else f"{STORED}; {_EXPONENTIALS}"

    @property
    def hypothesis(self) -> str:
        """N1 and N2 in words."""
        if self.output is None:
            return HYPOTHESIS
        return f"{HYPOTHESIS.replace('mean 0', f'a mean of at most {self.mean:.2g} of a weight')}, {_EXPONENTIALS}"


def factor(count: int, alpha: float) -> float:
    """Return λ = √(2 ln(2K/α)) for K directions.

    >>> round(factor(1, 1e-9), 2), round(factor(10**6, 1e-9), 2)
    (6.54, 8.39)
    """
    return sqrt(2 * log(2 * max(count, 1) / alpha))


def half_ulp(f: Format, x: Floats) -> Floats:
    """Return half the distance between numbers of the format at |x|: u 2^⌊log₂|x|⌋, or half the least number if more.

    >>> import numpy as np
    >>> half_ulp(Format("bfloat16"), np.array([1.0, 1.9, 2.0])).tolist()
    [0.00390625, 0.00390625, 0.0078125]
    """
    xp: Any = namespace_of(x)
    size = xp.astype(x, xp.float64, copy=False)
    # frexp's mantissa is in [½, 1), so size / mantissa is twice the largest power of 2 in size.
    mantissa, _ = xp.frexp(size)
    fine = xp.isfinite(size) & (size != 0)
    power = xp.where(fine, size, 1.0) / xp.where(fine, mantissa, 1.0)
    half = power * (float(f.u) / 2)
    eta = float(f.eta)
    return xp.where(size == 0, eta, xp.maximum(half, eta))
