"""Weights of keys: softmax, plain and stabilised, in powers of e or of two, with the logarithm of its sums; sinks,
functions of single scores, projections to the simplex of weights, and dropout.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.document.errors import InputError


def row_max(s: Array) -> Array:
    """m_i = max_j s_ij, and 0 for a row in which every key is forbidden. Shapes: (…, n_q, n_k) → (…, n_q, 1)."""
    xp = namespace_of(s)
    m = xp.max(s, axis=-1, keepdims=True)
    return xp.where(xp.isfinite(m), m, 0)


def powers(s: Array, base: int | None = None) -> Array:
    """e^s, or 2^s for the base 2; 0 where s is −∞."""
    xp = namespace_of(s)
    return xp.exp(s) if base is None else xp.exp2(s)


def logarithms(z: Array, base: int | None = None) -> Array:
    """log z, or log₂ z = log z / log 2 for the base 2."""
    xp = namespace_of(z)
    return xp.log(z) if base is None else xp.log(z) / xp.log(xp.asarray(2, dtype=z.dtype))


def powers_of_two(s: Array) -> Array:
    """e^s as kernels compute it, 2^{s log₂ e}. Source: Dao, FlashAttention-2 (2023), whose kernels scale by log₂ e."""
    xp = namespace_of(s)
    return xp.exp2(s / xp.log(xp.asarray(2, dtype=s.dtype)))


def exponentials(s: Array, stabilised: bool = True, base: int | None = None) -> Array:
    """e^{s_ij − m_i}, or e^{s_ij} if not ``stabilised``: the same weights, but these overflow for large scores."""
    return powers(s - row_max(s) if stabilised else s, base)


def nonempty(z: Array, fully_masked: str = "nan") -> Array:
    """Return the divisors z of rows, adjusted for fully masked rows, for which z = 0.

    With ``nan`` they stay 0 and the row gives 0/0; with ``zeros`` they become 1 and the row gives zeros; ``error``
    raises InputError.
    """
    # The plain 0/0 needs no comparison, which some kinds cannot decide.
    if fully_masked == "nan":
        return z
    xp = namespace_of(z)
    empty = z == 0
    if fully_masked == "error" and xp.any(empty):
        raise InputError(
            "a row of scores is fully masked; hint: allow a key, or fully_masked='zeros'"
        )
    return xp.where(empty, 1, z)


def normalise(e: Array, fully_masked: str = "nan") -> Array:
    """a_ij = e_ij / Σ_l e_il; ``fully_masked`` says what a row of zeros gives, see ``nonempty``."""
    return e / nonempty(namespace_of(e).sum(e, axis=-1, keepdims=True), fully_masked)


def softmax(
    s: Array, stabilised: bool = True, fully_masked: str = "nan", base: int | None = None
) -> Any:
    """a_ij = e^{s_ij} / Σ_l e^{s_il}, over the last axis; the maximum is subtracted first if ``stabilised``.

    With the base 2: 2^{s_ij} / Σ_l 2^{s_il}. Shapes: (…, n_k) → (…, n_k).
    Source: Bridle (1990); the shift: Blanchard, Higham, Higham (2021), §1.
    """
    return normalise(exponentials(s, stabilised, base), fully_masked)


def log_sum_exp(s: Array, masked: bool = True, base: int | None = None) -> Array:
    """L_i = log Σ_j e^{s_ij}, finite for finite scores of any size, so that softmax is e^{s_ij − L_i}.

    A row in which every key is forbidden has L_i = −∞; if there are none (not ``masked``), this case is not checked.
    With the base 2: log₂ Σ_j 2^{s_ij}. Shapes: (…, n_q, n_k) → (…, n_q, 1).
    Source: Blanchard, Higham, Higham, Accurately computing the log-sum-exp and softmax functions (2021), §1.
    """
    xp = namespace_of(s)
    # With the maximum subtracted no power overflows, and the largest is 1.
    m = row_max(s)
    z = xp.sum(powers(s - m, base), axis=-1, keepdims=True)
    # Empty rows get log 1 here, so that no logarithm of 0 is taken before they are replaced.
    finite = m + logarithms(nonempty(z, "zeros") if masked else z, base)
    return xp.where(z == 0, -xp.inf, finite) if masked else finite


# -- sinks: a logit per row that takes weight but has no value ---------------------------------------------------------
def sink_weights(
    s: Array, sink: Array | int, stabilised: bool = True, base: int | None = None
) -> Array:
    """a_ij = e^{s_ij} / (e^{b_i} + Σ_l e^{s_il}), stabilised by a maximum that includes the sink b.

    A row in which every key is forbidden gives zeros: the sink takes all. With the base 2: powers of two throughout.
    Shapes: s (…, n_q, n_k), sink (…, n_q, 1), or any shape that broadcasts to it, such as (h, 1, 1) → (…, n_q, n_k).
    Source: Xiao et al., Efficient Streaming Language Models with Attention Sinks (2024), §3.3; a logit per head:
    OpenAI, gpt-oss-120b & gpt-oss-20b Model Card (2025), §2.2; of logit 0: E. Miller, Attention Is Off By One (2023).
    """
    e, z, _ = _exponentials_and_their_sum(s, sink, stabilised, base)
    return e / z


def sink_log_sum_exp(s: Array, sink: Array | int, base: int | None = None) -> Array:
    """log(e^{b_i} + Σ_j e^{s_ij}), the logarithm of the divisor of ``sink_weights``.

    Shapes: s (…, n_q, n_k), sink (…, n_q, 1) → (…, n_q, 1).
    """
    _, z, m = _exponentials_and_their_sum(s, sink, True, base)
    return m + logarithms(z, base)


def _exponentials_and_their_sum(
    s: Array, sink: Array | int, stabilised: bool, base: int | None
) -> tuple[Array, Array, Array]:
    """e^{s − m}, its sum with the sink's e^{b − m}, and m. As the sink is finite, so is every row's maximum."""
    xp = namespace_of(s)
    # The sink may be above all scores, and its power must not overflow either.
    largest = xp.maximum(xp.max(s, axis=-1, keepdims=True), sink)
    m = largest if stabilised else xp.asarray(0, dtype=s.dtype)
    e = powers(s - m, base)
    return e, powers(sink - m, base) + xp.sum(e, axis=-1, keepdims=True), m


# -- weights that are functions of single scores: rows need not sum to one ---------------------------------------------
def sigmoid_weights(s: Array, bias: Array | int | None = None, stabilised: bool = True) -> Array:
    """a_ij = σ(s_ij + b) = e^x / (1 + e^x) with x = s_ij + b; b = −log n_k if none is given.

    A forbidden score gives 0. If ``stabilised``, both powers are divided by e^{max(x, 0)} and none overflows.
    Shapes: s (…, n_q, n_k), b of any shape that broadcasts to it → (…, n_q, n_k).
    Source: Ramapuram et al., Theory, Analysis, and Best Practices for Sigmoid Self-Attention (2024), equation 3; the
    value of b: their experiments, §5.
    """
    xp = namespace_of(s)
    # With −log n_k the weights of equal scores sum to about 1, as those of a softmax.
    x = s + (-xp.log(xp.asarray(s.shape[-1], dtype=s.dtype)) if bias is None else bias)
    zero = xp.asarray(0, dtype=s.dtype)
    # Both powers are at most 1: for x > 0 the quotient is 1 / (e^−x + 1).
    m = xp.maximum(x, zero) if stabilised else zero
    e = xp.exp(x - m)
    return e / (xp.exp(zero - m) + e)


def relu_weights(s: Array, divided: bool = True) -> Array:
    """a_ij = max(s_ij, 0) / n_k, or max(s_ij, 0) if not ``divided``; a forbidden score gives 0.

    It depends on the order of scores, so kinds without an order refuse it; ``maximum`` is an opaque function there.
    Shapes: (…, n_k) → (…, n_k). Source: Wortsman et al., Replacing softmax with ReLU in Vision Transformers (2023), §3.
    """
    xp = namespace_of(s)
    # The comparison sends −∞ to 0 without a product −∞ · 0.
    positive = xp.where(s <= 0, 0, s)
    return positive / xp.asarray(s.shape[-1], dtype=s.dtype) if divided else positive


# -- weights that can be exactly 0: projections of the scores to the simplex of weights --------------------------------
def sparsemax(s: Array, fully_masked: str = "nan") -> Array:
    """Return the weights nearest to the scores: argmin ‖p − s‖² over p ≥ 0 with Σ p = 1, p_j = max(s_j − τ, 0).

    τ = (Σ_{j ≤ k} z_j − 1) / k for the scores z in falling order, k the last place with 1 + k z_k > Σ_{j ≤ k} z_j.
    A forbidden score gives 0. Shapes: (…, n_k) → (…, n_k).
    Source: Martins, Astudillo, From Softmax to Sparsemax (2016), algorithm 1.
    """
    xp = namespace_of(s)
    s = s - row_max(s)  # the weights stay the same, and no sum cancels
    z, place = _sort_scores_descending(s)
    # In falling order the support is a prefix, so one pass decides it.
    keeps = 1 + place * z > xp.cumulative_sum(z, axis=-1)
    number = nonempty(_count_keys_in_support(keeps, s), fully_masked)
    tau = (xp.sum(xp.where(keeps, z, 0), axis=-1, keepdims=True) - 1) / number
    return xp.maximum(s - tau, 0)


def entmax15(s: Array, fully_masked: str = "nan") -> Array:
    """1.5-entmax: p_j = max(s_j/2 − τ, 0)² with Σ p = 1, between softmax and sparsemax.

    For z = s/2 in falling order τ = μ − √((1 − Σ_{j ≤ k} (z_j − μ)²) / k), μ the mean of the first k, and k the last
    place with Σ_{j ≤ k} (z_j − z_k)² < 1: there the weights for the threshold z_k do not yet sum to 1.
    A forbidden score gives 0. One root is taken in each row. Shapes: (…, n_k) → (…, n_k).
    Source: Peters, Niculae, Martins, Sparse Sequence-to-Sequence Models (2019), algorithm 2.
    """
    xp = namespace_of(s)
    # The weights do not change by the shift, and the largest z is 0.
    s = (s - row_max(s)) / 2
    z, place = _sort_scores_descending(s)
    near = z > -1  # τ is −1 or more, since the largest z is 0 and has a weight of at most 1
    # Scores of −∞ would make ∞ − ∞ in the sums below.
    z = xp.where(near, z, 0)
    # Σ (z_j − z_k)² over j ≤ k, multiplied out so that cumulative sums suffice.
    beyond = (
        xp.cumulative_sum(z * z, axis=-1) - 2 * z * xp.cumulative_sum(z, axis=-1) + place * z * z
    )
    support = near & (beyond < 1)
    number = nonempty(_count_keys_in_support(support, s), fully_masked)
    mean = xp.sum(xp.where(support, z, 0), axis=-1, keepdims=True) / number
    spread = xp.sum(xp.where(support, (z - mean) * (z - mean), 0), axis=-1, keepdims=True)
    p = xp.maximum(s - mean + xp.sqrt((1 - spread) / number), 0)
    return p * p


def _sort_scores_descending(s: Array) -> tuple[Any, Any]:
    """Return the scores in descending order, forbidden ones last, and the ranks 1, 2, … in their dtype."""
    xp = namespace_of(s)
    descending = xp.flip(xp.sort(s, axis=-1), axis=-1)
    ranks = xp.arange(1, s.shape[-1] + 1)
    return descending, xp.astype(ranks, s.dtype)


def _count_keys_in_support(values: Array, s: Array) -> Array:
    xp = namespace_of(s)
    return xp.sum(xp.astype(values, s.dtype), axis=-1, keepdims=True)


# -- what a specification can name in place of a softmax ---------------------------------------------------------------
class Normaliser(NamedTuple):
    """Weights of scores other than a softmax, and what is said of them.

    ``weights`` takes scores, and ``bias``, whether the specification has one, ``stabilised``, and ``fully_masked``.
    ``formula`` and ``entry`` are those of the step; ``log(n_k)`` is not subtracted where there is a bias, see
    ``at_bias``. Without an ``entry`` the weights of a row have no closed form.
    """

    title: str
    weights: Callable[..., Array]
    formula: str
    entry: str
    convention: str
    why: str
    sums_to_one: bool = False
    takes_exponentials: bool = False

    def at_bias(self, bias: bool) -> Normaliser:
        """Return the record with ``log(n_k)`` left out of its formulas if the specification has a bias."""
        texts = ("formula", "entry", "convention") if bias else ()
        return self._replace(
            **{name: getattr(self, name).replace(" − log(n_k)", "") for name in texts}
        )


# The reason that both projections share.
_SPARSE = "The weights are positive with sum 1, and 0 for keys with low scores: softmax gives each key something."
# Each value of ``Attention.normaliser`` besides softmax.
NORMALISERS = {
    "sparsemax": Normaliser(
        "sparsemax",
        lambda s, bias, stabilised, fully_masked: sparsemax(s, fully_masked),
        "sparsemax(@0)",
        "",
        "with the threshold for which a row sums to one: $a_ij = max(s_ij − τ_i, 0)$",
        _SPARSE,
        sums_to_one=True,
    ),
    "entmax": Normaliser(
        "entmax (1.5)",
        lambda s, bias, stabilised, fully_masked: entmax15(s, fully_masked),
        "entmax_{3/2}(@0)",
        "",
        "with the threshold for which a row sums to one: $a_ij = max(s_ij/2 − τ_i, 0)²$",
        _SPARSE,
        sums_to_one=True,
    ),
    "relu": Normaliser(
        "ReLU",
        lambda s, bias, stabilised, fully_masked: relu_weights(s),
        "relu(@0)/n_k",
        "out[i,j] = max(0[i,j], 0)/n_k",
        "each score by itself has its weight: $a_ij = max(s_ij, 0)/n_k$",
        "Each score above 0 is its own weight, over the number of keys: keys do not compete.",
    ),
    "relu_sum": Normaliser(
        "ReLU without 1/n",
        lambda s, bias, stabilised, fully_masked: relu_weights(s, divided=False),
        "relu(@0)",
        "out[i,j] = max(0[i,j], 0)",
        "each score by itself is its weight: $a_ij = max(s_ij, 0)$",
        "Each score above 0 is its own weight: keys do not compete, and outputs grow with their number.",
    ),
    "sigmoid": Normaliser(
        "a sigmoid",
        lambda s, bias, stabilised, fully_masked: sigmoid_weights(
            s, 0 if bias else None, stabilised
        ),
        "sigmoid(@0 − log(n_k))",
        "out[i,j] = 1/(1 + e^{−{0[i,j] − log(n_k)}})",
        "each score by itself has its weight: $a_ij = 1/{1 + e^{−{s_ij − log(n_k)}}}$",
        "Each score has its weight by itself, between 0 and 1: keys do not compete.",
        takes_exponentials=True,
    ),
}


# -- dropout, with the choice of what is dropped as an input -----------------------------------------------------------
def dropout(a: Array, keep: Array, rate: int | float | Fraction) -> Array:
    """Return a ⊙ B / (1 − r): dropped weights are 0, and the others grow so that the mean over B is A.

    The entries of B are 1 with probability 1 − r; rows no longer sum to one. Raises InputError
    unless 0 ≤ r < 1. Shapes: a (…, n_q, n_k), keep booleans that broadcast to it, True for what is kept.
    Source: Srivastava et al., Dropout (2014), §10, which scales by 1/(1 − r) while training.
    """
    if not 0 <= rate < 1:
        raise InputError(f"dropout: the rate {rate} is not from 0 on and below 1")
    xp = namespace_of(a)
    return xp.where(keep, a, 0) / xp.asarray(1 - rate, dtype=a.dtype)
