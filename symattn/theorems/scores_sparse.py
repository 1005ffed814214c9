"""Score variants: sparse weights, and the energy that one step of attention lowers."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.attention.softmax import sparsemax as sparse_weights
from symattn.proof.statement import Declared
from symattn.proof.together import Positive, Together, bound
from symattn.theorems.sums import add_up, beside, squares

# -- sparsemax ---------------------------------------------------------------------------------------------------------
# Scores p + τ − λ have the weights p: λ is what scores lie below the threshold τ by. The same for q, ρ, μ.
SPARSE = {**dict.fromkeys(("p", "q", "lam", "mu"), "m"), "tau": "", "rho": ""}
NOT_BELOW_ZERO = ("p", "q", "lam", "mu")


def _nearest(p: Array, q: Array, lam: Any, tau: Any) -> tuple[Any, Any]:
    """‖p − s‖² and ‖q − s‖², but for terms that are 0 if p and q have one sum and λ p = 0."""
    s = p + tau - lam
    nothing = 2 * add_up(p * lam) + 2 * tau * (add_up(q) - add_up(p))
    return squares(p - s) - nothing, squares(q - s)


def _nonexpansive(p: Array, q: Array, lam: Any, mu: Any, tau: Any, rho: Any) -> tuple[Any, Any]:
    """‖p − q‖² and ‖s − t‖², but for terms that are 0 if p and q have one sum and λ p = μ q = 0."""
    nothing = 2 * add_up(p * lam + q * mu) + 2 * (tau - rho) * (add_up(q) - add_up(p))
    return squares(p - q) - nothing, squares((p + tau - lam) - (q + rho - mu))


sparsemax = Together(
    (
        Positive(
            Declared({"p": "m"}, positive=("p",)),
            lambda p: p / add_up(p),
            # The scores 1 and −p have the weights 1 and 0.
            lambda p: sparse_weights(beside(0 * p + 1, -p)),
        ),
        bound(
            SPARSE,
            _nearest,
            lambda p, q, lam: squares(q - p) + 2 * add_up(q * lam),
            nonnegative=NOT_BELOW_ZERO,
        ),
        bound(
            SPARSE,
            _nonexpansive,
            lambda p, q, lam, mu, tau, rho: (
                squares((tau - rho) - (lam - mu)) + 2 * add_up(p * mu) + 2 * add_up(q * lam)
            ),
            # Scores that are weights are their own sparsemax.
            lambda p, q: (2 * squares(p / add_up(p) - q / add_up(q)) * 2, squares(p / add_up(p) - q / add_up(q))),
            nonnegative=NOT_BELOW_ZERO,
        ),
    ),
    (
        "If s = p + τ − λ with λ ≥ 0, and λ = 0 where p > 0, then p is nearest, and alone so, as ‖q − p‖² is left "
        "over. Such a p there is for all s, p = max(s − τ, 0): as τ falls its sum grows from 0 without a break, so "
        "it is 1 for some τ. Scores s + t have the same p and λ, with the threshold τ + t.",
    ),
)
