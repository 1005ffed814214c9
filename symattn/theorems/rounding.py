"""Rounding: thresholds, masks, sums and scales in number formats; bounds of errors."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from symattn.arrays import kind
from symattn.arrays.array import Array, Functions
from symattn.arrays.formats import NARROW, Format
from symattn.attention.softmax import exponentials, row_max
from symattn.attention.softmax import softmax as soft
from symattn.document.formulas import formula
from symattn.document.notation import Decimal
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.printed_roundings import fl, overflow
from symattn.proof.same_bits import InFormats
from symattn.proof.together import Together, above_zero, bound
from symattn.theorems import rounding_formats
from symattn.theorems.letters import exp, side_by_side, weights
from symattn.theorems.rounding_formats import FORMAT_LETTERS, INFINITE, values
from symattn.theorems.streaming import STATE_LETTERS, named_state
from symattn.theorems.texts import theorems

KEPT = (*INFINITE, "float8_e4m3fn")
PLACES = 6


# -- numbers in the statements -----------------------------------------------------------------------------------------
def _log(x: Fraction) -> Any:
    """Return log x as an Arb ball."""
    from symattn.arrays.ball import Ball

    return Ball.function("log", Ball.scalar(x))


def nearest(of: Callable[[], Any], places: int = PLACES) -> Decimal:
    """Return the number that ``of`` encloses, correctly rounded to ``places`` places."""
    from symattn.arrays.ball import Ball, rising
    from symattn.document.errors import Undecided

    def digits() -> int:
        units = (of() * 10**places + Ball.scalar(Fraction(1, 2))).floor().unique_fmpz()
        if units is None:
            raise Undecided("the last digit")
        return int(units)

    units = rising(digits)
    whole, rest = divmod(abs(units), 10**places)
    return Decimal(f"{'-' if units < 0 else ''}{whole}.{rest:0{places}d}")


def underflow(f: Format) -> Fraction:
    """Half the smallest positive number."""
    return f.smallest / 2


def _between_neighbours(f: Format, threshold: Fraction) -> bool:
    """Return whether e^x crosses the threshold between two neighbouring numbers of the format."""
    from symattn.arrays.ball import Ball

    low, high = f.neighbours(float(_log(threshold).mid()))
    below, above = (Ball.function("exp", Ball.scalar(Fraction(x))) for x in (low, high))
    return bool(below < Ball.scalar(threshold)) and bool(above > Ball.scalar(threshold))


# -- overflow and underflow --------------------------------------------------------------------------------------------
def _overflows(f: Format) -> list[bool]:
    """Check that numbers at the threshold become infinite, and those just below the largest number."""
    t = overflow(f)
    below = np.nextafter(f.wider(t), f.wider(0))
    scores = [[float(f.largest), 1, -float(f.largest)], [-1, -2, -3]]
    return [
        f.power_beyond - t == t - f.largest,
        float(f.cast(float(t))) == np.inf,
        float(f.cast(below)) == float(f.largest),
        _between_neighbours(f, t),
        bool((values(exponentials(kind(f.name).lift(scores))) <= 1).all()),
    ]


_NEVER_ABOVE_ONE = bound(
    {"s": "n m"},
    lambda s: (exponentials(s), 1),
    lambda below: exp(-below) * (exp(below) - 1),
    assumed={"below": ("n m", lambda s: row_max(s) - s)},
)

exp_overflow_threshold = Together(
    (
        _NEVER_ABOVE_ONE,
        InFormats(
            INFINITE,
            _overflows,
            lambda f: np.isfinite(values(soft(kind(f.name).lift([[20, 0]]), stabilised=False))),
            argument=(
                "The threshold is midway between the largest number and the power of two beyond it; what is there "
                "and just below it was rounded, and Arb balls show on which side the exponentials of the two "
                "numbers next to its logarithm lie. Rounding and the exponential grow, which decides all others.",
            ),
        ),
    ),
)


def _underflows(f: Format) -> list[bool]:
    """Check that numbers at the threshold become 0, and those just above it the smallest number."""
    t = underflow(f)
    above = np.nextafter(f.wider(t), f.wider(1))
    return [
        float(f.cast(float(t))) == 0,
        float(f.cast(above)) == float(f.smallest),
        _between_neighbours(f, t),
    ]


underflow_threshold = InFormats(
    KEPT,
    _underflows,
    lambda f: values(soft(kind(f.name).lift([[0, -110]]))) > 0,
    argument=(
        "What is at the threshold and just above it was rounded, and Arb balls show on which side the exponentials "
        "of the two numbers next to its logarithm lie. Rounding and the exponential grow: that decides all others.",
    ),
)


# -- saturation --------------------------------------------------------------------------------------------------------
_LAST_DIGIT = Fraction(1, 2 * 10**PLACES)  # half a unit of it


def _off(xp: Functions) -> Array:
    """Return the gap for two keys, log(2/u) in float32, minus the printed number."""
    return -xp.log(xp.asarray(Format("float32").u / 2)) - Fraction(LOG_OF_HALF_U.digits)


def _eighteen_is_not_enough(xp: Functions) -> Array:
    """Return 1 − u/2 minus the weight of the larger of two scores with the gap 18, which is below 88."""
    return 1 - Format("float32").u / 2 - 1 / (1 + xp.exp(xp.asarray(-18)))


def _largest_weight(reader: Any) -> Any:
    """Return the weight of a score 0 among others that are at most −Δ."""
    s = -reader.array("Δ") - reader.array("t")
    return weights(side_by_side(0 * s[:1], s))[0]


LOG_OF_HALF_U = nearest(lambda: -_log(Format("float32").u / 2))
printed_digits = Together(
    (
        above_zero({}, lambda xp: _LAST_DIGIT + _off(xp), _eighteen_is_not_enough),
        above_zero({}, lambda xp: _LAST_DIGIT - _off(xp), _eighteen_is_not_enough),
    )
)


TWO_TO_P = formula("2^p", {})
LARGEST_HALF = Format("float16").largest
HALF_STEP = (Format("float16").power_beyond - LARGEST_HALF) / 2
NUMBERS = {f"sum_{n}": 2 ** Format(n).digits for n in NARROW} | {
    f"{word}_{n}": nearest(partial(_log, threshold(Format(n))))
    for word, threshold in (("overflow", overflow), ("underflow", underflow))
    for n in ("float32", "bfloat16", "float16")
}

_TEXT = """
dot-product-error: The rounding error of a score
$|fl(q·k) − q·k| ≤ γ_{d_k} {|q|·|k|}$ with $γ_{d_k} = d_k u/(1 − d_k u)$, in any order of summation
letters: rounded | q d_k, k d_k, w | sharp attained far | where u = 1/(d_k + e^w)
for: every operation is computed as $(x ∘ y) (1 + δ)$ with $|δ| ≤ u$, as rounding to nearest does where nothing
  overflows or underflows
for: $d_k u < 1$; |q| and |k| are taken entry by entry
source: Muller et al., Handbook of Floating-Point Arithmetic (2010), chapter 6
why: The terms are wrong in relation to their own sizes; what cancels in the sum leaves its error behind.
false: $|fl(q·k) − q·k| ≤ γ_{d_k} |q·k|$
step new | r, u, v, C, D, E, F | positive r u | nonnegative v | units C D, E F | where m = r + u + v; δ = u (C² − D²)/m;
  g = v/(r + u); θ = g (E² − F²): With r, u and v in the proportion of $1 − (k + 1) u$, u and $k u$, |δ| is at most the
  unit roundoff and |θ| at most the γ of k, which is g; that of k + 1 is $(u + v)/r$, and $θ + δ + θ δ ≤ (u + v)/r$ and
  $−(u + v)/r ≤ θ + δ + θ δ$: one more factor; and $0 ≤ (u + v)/r − g$.
step new | q d, k d, C d, D d, g | positive g | units C D | sizes d | index i d | where θ_i = g (C_i² − D_i²):
  $Σ_{i=1}^d q_i k_i θ_i ≤ g Σ_{i=1}^d |q_i k_i|$ and $−g Σ_{i=1}^d |q_i k_i| ≤ Σ_{i=1}^d q_i k_i θ_i$.
rule: A computed product is the true one times 1 + δ. To add two computed sums multiplies each of their terms by one
  more such factor. By induction over the tree of additions each term of a sum of d_k products is the true one times 1 +
  θ with |θ| ≤ γ, the γ of d_k: sums of a and b terms have at most max(a, b) + 1 ≤ a + b factors on a term.
gap (u + v)/r: 2 g F² (2 u C² + r + v)/m + 2 (g + 1) u D²/m + (u + v) u/(r (r + u))
gap −(u + v)/r: 2 g E² (2 u C² + r + v)/m + 2 g u D²/m + 2 u C²/m + (u + v) u/(r (r + u))
gap (u + v)/r − g: u m/(r (r + u))
gap g Σ_{i=1}^d |q_i k_i|: g Σ_{i=1}^d (f_i C_i² + h_i D_i²); f_i = |q_i k_i| − q_i k_i by magnitude; h_i = |q_i k_i| +
  q_i k_i by magnitude
gap −g Σ_{i=1}^d |q_i k_i|: g Σ_{i=1}^d (f_i D_i² + h_i C_i²); f_i = |q_i k_i| − q_i k_i by magnitude; h_i = |q_i k_i| +
  q_i k_i by magnitude

exp-overflow-threshold: Where the exponential overflows
$fl(e^x) = ∞$ iff $e^x ≥ (2 − u) 2^{e_max}$, that is from x ≈ $@overflow_float32$ in float32,
  $@overflow_bfloat16$ in bfloat16, $@overflow_float16$ in float16; after the row's maximum is subtracted, never
for: rounding is to nearest, ties to even; fl is the correctly rounded value, and u the unit roundoff of the format
why: A tie goes to the even neighbour, which here is the power of two that the format lacks.
false: scores up to 20 are safe in float16 without the maximum
by exp_overflow_threshold

underflow-threshold: Where the exponential underflows
$fl(e^x) = 0$ iff $e^x ≤ η/2$ with the smallest positive number $η$, that is up to x ≈ $@underflow_float32$ in float32,
  $@underflow_bfloat16$ in bfloat16, $@underflow_float16$ in float16; a key so far below the maximum has the weight 0
for: rounding is to nearest, ties to even; subnormal numbers are kept, not flushed to 0; fl is the correctly rounded
  value
why: A tie goes to the even neighbour, and that is 0.
false: computed softmax weights are positive
by underflow_threshold

one-hot-saturation: Where weights become one-hot
$fl(p_max) = 1$ for $Δ ≥ log(2/u) + log(n_k − 1)$, a gap of ≈ $@LOG_OF_HALF_U$ for two keys in float32; then p (1 − p),
  computed from it, is 0
letters: largest | Δ, t r | sizes n_k 1+r | nonnegative t
for: Δ is the gap between the largest score and all others; p is correctly rounded, ties to even
why: The other keys together get less than half of the distance from 1 to the number below it.
false: a gap of 88 is needed
by printed_digits
step new | Δ, t n, h | nonnegative t h | sizes n | index j n: The largest weight is $1/(1 + R) ≥ 1 − (h + n e^{−Δ})$
  with $R = Σ_{j=1}^n e^{−Δ − t_j}$ for the n other keys, where none of $t_j$ and h is negative.
rule: The hypothesis is that (n_k − 1) e^{−Δ} ≤ u/2, and then p is between 1 − u/2 and 1. The number next to 1 is 1 − u,
  and the tie at 1 − u/2 goes to 1, which is even; and 1 · (1 − 1) is 0.
gap 1/(1 + R): h + Σ_{j=1}^n e^{−Δ − t_j} (e^{t_j} − 1) + R²/(1 + R)

output-from-score-error: From errors of scores to errors of outputs
$ô_c − o_c ≤ w_c (e^η − 1)/(e^η + 1)$, and, as both may change places, |ô_c − o_c| ≤ w_c tanh(η/2) for values between
  b_c and b_c + w_c
letters: new | s n_k, z n_k, r, C n_k d_v, D n_k d_v, b d_v, w d_v | units C D | index c d_v, j n_k, l n_k | nonnegative
  η w | rows | roles w none | where η = r²; V_j_c = b_c + w_c C_j_c²; t_j = s_j + η tanh(z_j); o = softmax(s) V; ô =
  softmax(t) V; a_c = Σ_{j=1}^{n_k} e^{s_j} C_j_c²; f_c = Σ_{j=1}^{n_k} e^{s_j} D_j_c²; n_c = Σ_{j=1}^{n_k} e^{s_j} +
  a_c (e^{2 η} − 1)
for: no score is wrong by η or more: the wrong ones are $t_j = s_j + η tanh(z_j)$
for: the values are $V_j_c = b_c + w_c C_j_c²$ with $C_j_c² + D_j_c² = 1$, which are any numbers from b_c to b_c + w_c
why: The output moves most when half of the weight goes from the smallest value to the largest.
false: |ô_c − o_c| ≤ tanh(η/2) |o_c|, which is $ô_c − o_c ≤ 0$ once o_c is subtracted from the values
gap w_c (e^η − 1)/(e^η + 1): w_c {Σ_{j=1}^{n_k} Σ_{l=1}^{n_k} e^{t_j + s_l} (e^{η (x_j + y_l)} − 1) C_j_c² D_l_c²}/(n_c
  Σ_{j=1}^{n_k} e^{t_j}) + w_c (e^η − 1) (e^η a_c − f_c)²/((e^η + 1) n_c Σ_{j=1}^{n_k} e^{s_j}); x_j = 1 − tanh(z_j) by
  bounded; y_j = 1 + tanh(z_j) by bounded

shifted-softmax-error: The rounding error of shifted softmax
$e^{−T_j} ≤ p̂_j/p_j ≤ e^{T_j}$ with $T_j = (|s_j − m| + max_l |s_l − m|) u + (n_k + 2 κ) û$ and $û = −log(1 − u)$
letters: rounded | s n_k, w, κ | index j n_k, l n_k | nonnegative κ | sharp far | where p̂_j = fl(e^{s_j −
  m}/Σ_{l=1}^{n_k} e^{s_l − m}); u = 1/(1 + e^w); m = max(s); p = softmax(s)
for: every operation is computed as $(x ∘ y) (1 + δ)$ with $|δ| ≤ u$, as rounding to nearest does where nothing
  overflows or underflows
for: the computed exponential of x is e^x times a factor between $(1 − u)^κ$ and $(1 − u)^{−κ}$
for: $u < 1$, and û is u up to terms of the order u²; m is the largest score
source: Blanchard, Higham, Higham, Accurately computing the log-sum-exp and softmax functions (2021)
why: A relative error of a difference of scores is an absolute error in the exponent, as large as the difference.
false: the same without the spread of the scores: $p̂_j/p_j ≤ e^{(n_k + 2 κ) û}$
step new | x n, α n, β n, γ n, u, r, c | nonnegative u r c | sizes n | index j n, l n | where M = max(|x|); a_j = x_j u
  tanh(α_j) + r tanh(β_j); b_j = x_j u tanh(α_j) + c tanh(γ_j); w_j = e^{x_j + a_j}/(Σ_{l=1}^n e^{x_l + b_l}); p =
  softmax(x); T_j = u (|x_j| + M) + r + c: For x = s − m, which is computed as x (1 + δ), and computed weights w, whose
  numerators have further factors of at most $e^r$ and whose terms in the sum have factors of at most $e^c$, $w_j ≤ p_j
  e^{T_j}$ and $p_j ≤ w_j e^{T_j}$.
step new | a, v, C, D | positive a v | units C D | where u = a/(a + v); δ = u (C² − D²): $1 − u ≤ 1 + δ$ and $1 + δ ≤
  1/(1 − u)$.
rule: So each factor 1 + δ lies between 1 − u = e^{−û} and e^û. The exponential and the division put κ + 1 of them on
  the numerator; the exponential and the sum, of n_k terms in any order, put at most κ + n_k − 1 on each term of the
  denominator. The maximum m is exact, and what is subtracted from it is wrong by |s_j − m| u. The errors are below
  their bounds here; by continuity they may reach them.
gap p_j e^{T_j}: Σ_{l=1}^n e^{x_j + a_j + x_l} (e^{u (k_j h_j + m_j f_j)/2 + r q_j + u (m_l h_l + k_l f_l)/2 + u g_l + c
  t_l} − 1)/({Σ_{l=1}^n e^{x_l}} {Σ_{l=1}^n e^{x_l + b_l}}); f_j = |x_j| − x_j by magnitude; h_j = |x_j| + x_j by
  magnitude; g_j = M − |x_j| by largest; k_j = 1 − tanh(α_j) by bounded; m_j = 1 + tanh(α_j) by bounded; q_j = 1 −
  tanh(β_j) by bounded; t_j = 1 + tanh(γ_j) by bounded
gap w_j e^{T_j}: Σ_{l=1}^n e^{x_j + x_l + b_l} (e^{u (m_j h_j + k_j f_j)/2 + r q_j + u (k_l h_l + m_l f_l)/2 + u g_l + c
  t_l} − 1)/({Σ_{l=1}^n e^{x_l}} {Σ_{l=1}^n e^{x_l + b_l}}); f_j = |x_j| − x_j by magnitude; h_j = |x_j| + x_j by
  magnitude; g_j = M − |x_j| by largest; k_j = 1 − tanh(α_j) by bounded; m_j = 1 + tanh(α_j) by bounded; q_j = 1 +
  tanh(β_j) by bounded; t_j = 1 − tanh(γ_j) by bounded
gap 1 + δ: 2 u C²
gap 1/(1 − u): 2 u D² + a²/(v (a + v))

power-of-two-scale-exact: A power of two as scale is exact
for $d_k = 4^k$ scaling by $1/√d_k = 2^{−k}$ is exact, and scaling Q, K or S gives the same bits
letters: new | x k | sizes k | roles
for: rounding is to nearest, ties to even; nothing underflows or overflows; sums are taken in the same order
why: A power of two changes the exponent alone, so scaling commutes with rounding.
false: the same bits for $d_k = 2 4^k$ or $d_k = 80$
by power_of_two_scale

low-precision-sum-stagnates: A sum in low precision stagnates
a sum of ones, taken one at a time, stops at $@TWO_TO_P$: at $@sum_float16$ in float16, $@sum_bfloat16$ in bfloat16,
  $@sum_float8_e4m3fn$ in float8_e4m3fn, $@sum_float8_e5m2$ in float8_e5m2; so the sum of the exponentials needs a wider
  format
for: p is the number of digits of a significand; rounding is to nearest, ties to even
why: 2^p + 1 is midway between two numbers of p digits, and the tie goes to 2^p, which is even.
false: the relative error of a sum of n numbers is at most $√n u$, as errors cancel
by low_precision_sum

fp16-mask-constant: Constants for masks in float16
$fl(−10⁹) = −∞$ in float16, whose largest number is $@LARGEST_HALF$; and $fl(−@LARGEST_HALF + s) = −∞$
  iff $s ≤ −@HALF_STEP$
for: rounding is to nearest, ties to even
why: Beyond the largest number all is −∞ from half a step on.
false: $−10⁹$ is a finite mask in every format
by fp16_mask_constant

masked-row-nan: A fully masked row gives NaN
in a row without an allowed key $fl(s_j − max(s)) = NaN$; with 0 in place of the maximum −∞ the sum is 0, and 0/0 is
  NaN again, unless that is guarded, too
for: the definition of softmax that symattn gives was run, and the plain difference
why: IEEE 754 has no value for ∞ − ∞ nor for 0/0.
false: the weights are 0 by themselves
by masked_row_nan

merge-rounding-commutes: Rounded merging commutes, but is not associative
$fl(merge(a, b)) = fl(merge(b, a))$ bit for bit, as computed; but not always $fl(merge(merge(a, b), c)) = fl(merge(a,
  merge(b, c)))$
for: + and × are those of IEEE 754-2019 with one NaN, and max is its maximum, with −0 < +0: all three commute
for: no multiplication is fused with an addition
why: To exchange both sides only exchanges the operands of +, × and max.
false: any order of tiles gives the same bits: $fl(merge(merge(a, b), c)) = fl(merge(a, merge(b, c)))$
by merge_commutes
"""

THEOREMS = theorems(
    "rounding",
    _TEXT,
    {
        "": FORMAT_LETTERS,
        "rounded": Glossary(families={"fl": fl}),
        "underflow-threshold": FORMAT_LETTERS.also(formats=KEPT),
        "largest": FORMAT_LETTERS.also(defined={"p_max": _largest_weight}),
        "low-precision-sum-stagnates": None,
        "fp16-mask-constant": FORMAT_LETTERS.also({"s": ""}, formats=("float16",)),
        "masked-row-nan": FORMAT_LETTERS.also(
            {"x": "n_k"},
            index={"j": "n_k"},
            defined={"s": lambda reader: 0 * reader.array("x") - reader.letter("∞").array},
        ),
        "merge-rounding-commutes": STATE_LETTERS.also(
            defined={letter: named_state(i) for i, letter in enumerate("abc")},
            families={"fl": fl},
            alike=None,
            formats=("float32", "float16", "bfloat16"),
        ),
    },
    vars(rounding_formats) | globals() | NUMBERS,
)
