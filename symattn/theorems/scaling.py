"""Scaling and statistics: how scores, outputs and gradients are spread when their inputs are random."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from symattn.proof.expectation import NORMAL, EntryLaw
from symattn.proof.relations.glossary import Glossary
from symattn.proof.together import above_zero
from symattn.theorems.texts import theorems

UNIT = EntryLaw((), lambda: (0, 1), lambda: [(-1, Fraction(1, 2)), (1, Fraction(1, 2))])


# The values −a, 0 and a have any variance and fourth moment of a law whose squares are not constant. No third moment
# is assumed.
THREE_VALUES = EntryLaw(
    ("a", "b"),
    lambda a, b: (0, a**2 / (1 + b), None, a**4 / (1 + b) - 3 * (a**2 / (1 + b)) ** 2),
    lambda a, b: [(-a, 1 / (2 + 2 * b)), (0 * a, b / (1 + b)), (a, 1 / (2 + 2 * b))],
)


# -- unscaled-mean-gradient-decays-slowly ----------------------------------------------------------------------------
def _mean_is_as_small_as_the_median() -> Any:
    """e^{−0.95 τ} less a part of E[p₁p₂], that of |Δ| ≤ 20, at τ = 8."""
    import flint

    def inside(x: Any, _: Any) -> Any:
        e = x.exp()
        return e / (1 + e) ** 2 * (-(x * x) / 256).exp()

    part = flint.acb.integral(inside, -20, 20).real / (2 * flint.arb.pi().sqrt() * 8)
    return (-flint.arb(38) / 5).exp() - part


# twice 1/2 − P(|Δ| ≤ 0.95 τ) for Δ ∼ N(0, 2τ²)
half_of_the_gaps = above_zero(
    {}, lambda xp: 1 - 2 * xp.erf(xp.asarray(Fraction(19, 40))), _mean_is_as_small_as_the_median
)


_TEXT = """
score-variance: The variance of a score
$Var(q·k) = d_k σ_q² σ_k²$
letters: | q d_k, k d_k | laws q σ_q, k σ_k
source: Vaswani et al., Attention Is All You Need (2017), §3.2.1
why: The products of different coordinates are uncorrelated, so their variances add up.
false: $Var(q·k) = d_k² σ_q² σ_k²$

score-variance-with-means: The variance of a score with means that are not zero
$Var(q·k) = d_k (σ_q² σ_k² + σ_q² μ_k² + σ_k² μ_q²)$; for x and y of one law $Var(x·y) = d_k ((σ² + μ²)² − μ⁴)$
letters: | q d_k, k d_k, x d_k, y d_k | laws q σ_q μ_q, k σ_k μ_k, x σ μ, y σ μ | roles x input, y input
why: Within one coordinate the square of the mean of one factor meets the variance of the other.
false: $Var(q·k) = d_k σ_q² σ_k²$

scale-gives-unit-variance: The scale gives scores of variance 1
$Var(q·k/√d_k) = 1$
letters: unit | q d_k, k d_k
source: Vaswani et al., Attention Is All You Need (2017), §3.2.1
why: The variance of the unscaled score is d_k, and scaling by c multiplies it by c².
false: $Var(q·k/d_k) = 1$

row-scores-uncorrelated-not-independent: The scores of a row are uncorrelated, but not independent
$Cov(s_1, s_2) = 0$, but $Cov(s_1², s_2²) = d_k (E[q_i⁴] − σ_q⁴) σ_k⁴$
letters: three | q d_k, k₁ d_k, k₂ d_k | laws k₁ σ_k, k₂ σ_k | positive a b | index i d_k | where s_1 = q·k_1; s_2 =
  q·k_2; σ_q = √(a²/(1 + b))
for: all entries of the query and of the two keys are independent with mean 0, the keys' of one law
for: the query's entries have the variance a²/(1 + b) and the fourth moment a⁴/(1 + b) with a, b > 0, as every law has
  whose squares are not constant
why: Given q, both scores have the variance σ_k²‖q‖²; that common factor is random, unless q² is constant.
false: the scores of one row are independent, so that $Cov(s_1², s_2²) = 0$

score-kurtosis: The kurtosis of a score
$E[(q·k)⁴] = 3 d_k (d_k + 2)$; so the excess kurtosis is $E[(q·k)⁴]/Var(q·k)² − 3 = 6/d_k$
letters: normal | q d_k, k d_k
why: E[x⁴] = 3, so a coordinate that coincides with itself counts 9 and two pairs of coordinates count 1.
false: $E[(q·k)⁴] = 3 d_k²$, as of a normal law

projected-score-variance: The variance of a score over random projections
$Var(x W_Q·(y W_K)) = d_k σ⁴ ‖x‖² ‖y‖²$
letters: | x m, y m, W_Q m d_k, W_K m d_k | laws W_Q σ, W_K σ | roles x input, y input
for: x and y are fixed
why: Each product of two weights occurs once, with its own factor $x_i y_l$.
false: the same for one matrix: $Var(x W_Q·(y W_Q)) = d_k σ⁴ ‖x‖² ‖y‖²$

output-variance-participation: The variance of an output, and how many values take part
$Var(Σ_{j=1}^{n_k} p_j v_j) = σ² Σ_{j=1}^{n_k} p_j²$, of which $σ²/n_k ≤ σ² Σ_{j=1}^{n_k} p_j²$ and $σ² Σ_{j=1}^{n_k}
  p_j² ≤ σ²$
letters: new | t n_k, v n_k | index j n_k, l n_k | laws v σ μ | sharp attained far | where p = softmax(t)
for: the weights p are fixed, positive, and sum to 1
why: The values' variances add up with the squares of the weights, which lie between those of equal weights and 1.
false: $Var(Σ_{j=1}^{n_k} p_j v_j) = σ²$
gap σ²/n_k: σ² {Σ_{j=1}^{n_k} (n_k p_j − 1)²}/n_k²
gap σ²: σ² Σ_{j=1}^{n_k} Σ_{l≠j} p_j p_l

unscaled-mean-gradient-decays-slowly: Without the scale the mean gradient decays slowly
$E[p_1 p_2] ≤ 1/(2 √π τ)$, and at least $1 − 1/τ²$ times that, so the ratio of both sides tends to 1 as $τ → ∞$; but
  the median of $p_1 p_2$ is at most $e^{−19/20 τ}$
for: $s_1$ and $s_2$ are independent and N(0, τ²)
why: The mean is carried by the few rows whose two scores are close, and those become rare only as 1/τ.
false: the mean of $p_1 p_2$ is as small as its median, $e^{−19/20 τ}$
by half_of_the_gaps
step new | x, t | where f = e^x/(1 + e^x); r = e^x/(1 + e^x)²; b = e^{−t² x²}; g = −(x² + 2 x + 2) e^{−x}: The gap Δ of
  the scores is N(0, 2τ²), and $p_1 p_2$ is the derivative r of its logistic function, which grows from 0 to 1, so the
  integral is 1: $∂f/∂x = r$. Times the greatest density $1/(2 √π τ)$, $r b ≤ r$ gives the bound, and $r (1 − t² x²) ≤ r
  b$ with t for 1/(2τ) the lower bound $1 − c/(4 τ²)$ of the ratio, with c for ∫ Δ² r. As $r ≤ e^{−x}$ for the gap in
  either order, c is at most 4, twice the integral of x² e^{−x} from 0 on, which $∂g/∂x = x² e^{−x}$ gives.
rule: And |Δ| > 19/20 τ with a probability over 1/2.
gap r: r b (e^{t² x²} − 1)
gap r b: r (e^{−t² x²} − 1 + t² x²)
gap e^{−x}: (1 + 2 e^x)/(e^x (1 + e^x)²)
"""

THEOREMS = theorems(
    "scaling",
    _TEXT,
    {
        "": Glossary(rows=True),
        "unit": Glossary(laws=dict.fromkeys("qk", UNIT), rows=True),
        "normal": Glossary(laws=dict.fromkeys("qk", NORMAL), rows=True),
        "three": Glossary({"a": "", "b": ""}, laws={"q": THREE_VALUES}, rows=True),
        "unscaled-mean-gradient-decays-slowly": None,
    },
    globals(),
)
