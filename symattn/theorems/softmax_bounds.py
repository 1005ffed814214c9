"""Softmax: how its weights move when scores do, and how far they can be from equal or from one-hot."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.proof.gradients import gradient
from symattn.proof.relations.glossary import Glossary
from symattn.proof.together import Together, bound, identity
from symattn.theorems.sums import (
    HALF,
    add_up,
    beside,
    form,
    others,
    outer,
    squares,
    total,
    weights,
)

LETTERS = Glossary(
    given={"s": "n_k", "t": "n_k", "S": "n_q n_k", "x": "n_k"},
    sharp="attained",
    index={"i": "n_k", "j": "n_k", "l": "n_k"},
).where("p = softmax(s)", "P = softmax(S)", "p_max = max(p)", "J = diag(p) − p pᵀ")
TWO_ROWS = {"a": "n m", "b": "n m"}


def _along(s: Array, x: Array) -> Array:
    """⟨x, softmax(s)⟩, whose gradient by s is J x, J being symmetric."""
    return total(weights(s) * x)


def jacobian_times(s: Array, x: Array) -> Any:
    """(diag(p) − p pᵀ) x."""
    p = weights(s)
    return p * x - p * add_up(p * x)


VECTORS = {"s": "m", "x": "m"}
JACOBIAN = identity(VECTORS, lambda s, x: (gradient(_along, "s", s=s, x=x), jacobian_times(s, x)))
FORMS = {"s": "n m", "x": "n m"}
AT_LEAST_ZERO = bound(FORMS, lambda s, x: (0, form(weights(s), x)), lambda s, x: outer(weights(s), x, x) * HALF)


def _half_minus(s: Array, x: Array, m: Array) -> Any:
    """½‖x‖² − xᵀJx, written as a sum of squares."""
    xp, p = s.__array_namespace__(), weights(s)
    both = x[..., :, None] + x[..., None, :]
    mixed = p[..., :, None] * p[..., None, :] * others(m, s) * both * both
    return (squares((1 - 2 * p) * x) + xp.sum(mixed, axis=(-2, -1))[..., None]) * HALF


AT_MOST_HALF = bound(FORMS, lambda s, x: (form(weights(s), x), squares(x) * HALF), _half_minus)


# -- Lipschitz ---------------------------------------------------------------------------------------------------------
def _sharp(s: Array) -> Any:
    """J x = x / 2 for two equal scores and x = (1, −1)."""
    x = beside(s * 0 + 1, s * 0 - 1)
    return jacobian_times(beside(s, s), x), x * HALF


def _row_sums(s: Array, m: Array) -> tuple[Any, Any]:
    """Σ_l |J_jl| = p_j (1 − p_j) + Σ_{l ≠ j} p_j p_l."""
    p = weights(s)
    return p * (1 - p) + add_up(p[..., :, None] * p[..., None, :] * others(m, s))[..., 0], 2 * p * (1 - p)


softmax_half_lipschitz = Together(
    (
        bound(
            TWO_ROWS,
            lambda a: (2 * weights(a) * (1 - weights(a)), 0 * a + HALF),
            lambda a: (1 - 2 * weights(a)) ** 2 * HALF,
            lambda a, b: (16 * squares(weights(a) - weights(b)), squares(a - b)),
        ),
        JACOBIAN,
        AT_LEAST_ZERO,
        AT_MOST_HALF,
        identity({"s": "n m"}, _row_sums),
        identity({"s": "n 1"}, _sharp),
    ),
    (
        "The eigenvalues of the Jacobian J lie between 0 and ½, and each of its rows has the absolute sum "
        "2 p (1 − p) ≤ ½. By the mean value inequality along the segment from s to t both are Lipschitz constants. "
        "For two equal scores J (1, −1) is half of (1, −1), so none is smaller.",
    ),
)


def _symmetric(a: Array, x: Array) -> Any:
    """xᵀJx − 2‖Jx‖² = 4 (zᵀJz + yᵀ(½ − J)y) with y = Jx and z = x/2 − y, for every symmetric J = a + aᵀ."""
    j = a + a.mT
    y = j @ x
    z = x * HALF - y
    return x.mT @ y - 2 * (y.mT @ y), 4 * (z.mT @ (j @ z) + y.mT @ (y * HALF - j @ y))


softmax_cocoercive = Together(
    (
        JACOBIAN,
        # s and t = s + 1 have the same weights, so the left side is 0: no μ will do, c is any.
        bound(
            {**FORMS, "c": ""},
            lambda s, x: (0, form(weights(s), x)),
            lambda s, x: outer(weights(s), x, x) * HALF,
            lambda s, c: (c * squares(0 * s + 1), -add_up(weights(s) - weights(s + 1))),
            positive=("c",),
        ),
        AT_MOST_HALF,
        identity({"a": "m m", "x": "m 1"}, _symmetric),
    ),
    (
        "Both forms on the right of the identity are never negative, so xᵀJx ≥ 2‖Jx‖² everywhere on the segment "
        "from s to t. Integrate along it with x = s − t: ∫ J x = softmax(s) − softmax(t), and the mean of ‖Jx‖² "
        "is at least the square of the norm of the mean.",
    ),
)
