"""What is shown of softmax for any number of keys: the one definition, run on letters and differentiated.

Each fact gives what the prover decides: identities, and inequalities with the gap that shows their sign.
"""

from __future__ import annotations

from typing import Any

from symattn.attention.softmax import softmax
from symattn.proof.gradients import jacobian
from symattn.proof.statement import Declared
from symattn.proof.theorem import Method
from symattn.proof.together import Positive, bound, identity
from symattn.theorems.sums import add_up, exp, others

Methods = tuple[Method, ...]
_ROW = {"s": "n"}
_FIRST = {"s": "1", "t": "r"}  # the score of one key, and those of the others
_LEAD = {"top": "", "delta": "", "u": "r"}  # the others lie below the largest score by Δ + u
_BELOW = {"w": ("r", lambda u: u)}  # u ≥ 0, under the name w


def weights(s: Any) -> Any:
    """softmax(s), without the maximum: the same weights (derivation ``shift``), of letters alone."""
    return softmax(s, stabilised=False)


def derivative(s: Any) -> Any:
    """∂p_i/∂s_j, differentiated."""
    return jacobian(weights, "s", s=s)


def times(a: Any, x: Any) -> Any:
    """A x, or xᵀ y of two vectors."""
    return (a * x).sum(axis=-1)


def lead() -> Methods:
    """1 − p_m = R/(1 + R) with R = Σ_{ℓ≠m} e^{s_ℓ − s_m}, for the key m that stands first."""

    def sides(s: Any, t: Any) -> Any:
        r = add_up(exp(t - s))
        return 1 - weights(s.__array_namespace__().concat([s, t]))[:1], r / (1 + r)

    return (identity(_FIRST, sides),)


def quotient_grows() -> Methods:
    """R/(1 + R) ≤ B/(1 + B) < B for R = Σ_ℓ e^{−Δ−u_ℓ} and B = (n − 1) e^{−Δ}, where no u_ℓ is negative."""

    def largest(delta: Any, r: Any) -> Any:
        return r * exp(-delta)

    def sides(delta: Any, u: Any, r: Any) -> Any:
        rest, most = add_up(exp(-delta - u)), largest(delta, r)
        return [(rest / (1 + rest), most / (1 + most)), (most / (1 + most), most)]

    def gap(delta: Any, u: Any, w: Any, r: Any) -> Any:
        rest, most = add_up(exp(-delta - u)), largest(delta, r)
        return [add_up(exp(-delta - w) * (exp(w) - 1)) / ((1 + rest) * (1 + most)), most * most / (1 + most)]

    chosen = {"u": lambda u: u * u}
    strict = Positive(Declared(_LEAD), lambda delta, r: largest(delta, r) ** 2 / (1 + largest(delta, r)))
    return bound(_LEAD, sides, gap, assumed=_BELOW, chosen=chosen), strict


def entries_small() -> Methods:
    """p (1 − p) ≤ ε for the weight p = 1 − ε that stands first, and q_j (1 − q_j) ≤ Σ_ℓ q_ℓ = ε for the others."""

    def rest(s: Any, t: Any) -> Any:
        p = weights(s.__array_namespace__().concat([s, t]))
        return 1 - p[:1], add_up(p[1:])

    def others_small(q: Any, r: Any) -> Any:
        return q * q + times(others(r, q), q)

    return (
        identity(_FIRST, rest),
        bound({"p": ""}, lambda p: (p * (1 - p), 1 - p), lambda p: (1 - p) ** 2),
        bound({"q": "r"}, lambda q: (q * (1 - q), add_up(q) + 0 * q), others_small, positive=("q",)),
    )


def slope_of_two() -> Methods:
    """∂p₁/∂s₁ = p₁(1 − p₁) = (1/4) sech²(Δ/2) = 1/(e^{Δ/2} + e^{−Δ/2})² for two scores Δ apart."""

    def sides(s: Any) -> Any:
        slope, p = derivative(s)[0, 0], weights(s)[0]
        half = (s[0] - s[1]) / 2
        cosh = (exp(half) + exp(-half)) / 2
        return [(slope, p * (1 - p)), (slope, 1 / (4 * cosh * cosh)), (p, 1 / (1 + exp(-2 * half)))]

    return (identity({"s": "2"}, sides),)


def slope_falls() -> Methods:
    """y/(1 + y)² falls with y ≥ 1: at 1 + v it is no smaller than at 1 + v + w."""

    def slope(y: Any) -> Any:
        return y / ((1 + y) * (1 + y))

    def gap(v: Any, w: Any) -> Any:
        near, far = 2 + v, 2 + v + w
        return w * (2 * v + w + v * v + v * w) / (near * near * far * far)

    return (bound({"v": "", "w": ""}, lambda v, w: (slope(1 + v + w), slope(1 + v)), gap, positive=("v", "w")),)


def equal_shares() -> Methods:
    """softmax(0, …, 0) = (1/n, …, 1/n)."""
    return (identity(_ROW, lambda s, n: (n * weights(0 * s), 0 * s + 1)),)
