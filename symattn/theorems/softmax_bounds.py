"""Softmax: how its weights move when scores do, and how far they can be from equal or from one-hot."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from symattn.arrays.array import Array
from symattn.proof.gradients import gradient
from symattn.proof.relations.glossary import Glossary
from symattn.proof.rules import OfTheLargest
from symattn.proof.together import Together, bound, identity
from symattn.theorems.rounding_bounds import tanh_of_half
from symattn.theorems.sums import (
    HALF,
    add_up,
    beside,
    exp,
    form,
    greatest,
    log,
    log_sum_exp,
    others,
    outer,
    squares,
    total,
    weight_beside,
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


# -- limits, dispersion, gaps ------------------------------------------------------------------------------------------


SPREAD = {"s": "n 1", "u": "n m", "w": ""}


DISPERSION = bound(
    SPREAD,
    lambda s, u, w, m: [
        (weight_beside(s, s - w + u), exp(w) / (exp(w) + m)),
        (exp(w) / (exp(w) + m) * (1 + m), exp(w)),
    ],
    lambda s, u, w, m: [
        add_up(exp(u) * exp(-u) * (exp(u) - 1)) / ((1 + add_up(exp(u - w))) * (exp(w) + m)),
        exp(w) * (exp(w) - 1) / (exp(w) + m),
    ],
    nonnegative=("u", "w"),
)
"""No weight is above e^w / (e^w + n_k − 1), if the scores lie within a band of width w."""


softmax_dispersion = Together(
    (
        bound(
            SPREAD,
            lambda s, u, w, m: (1 / (1 + m * exp(w)), weight_beside(s, s + w - u)),
            lambda s, u, w, m: add_up(exp(w - u) * (exp(u) - 1)) / ((1 + add_up(exp(w - u))) * (1 + m * exp(w))),
            lambda s, u, w: (1 / (1 + exp(w)), weight_beside(s, s + w - u)),
            nonnegative=("u", "w"),
        ),
        DISPERSION,
        bound(
            {"s": "n m", "w": ""},
            lambda s, w, m: (log(0 * add_up(s) + m) - w, add_up(weights(s) * (log_sum_exp(s) - s))),
            lambda s, w, m, x, room: (
                add_up(weights(s) * (exp(x) - 1 - x))
                + add_up(
                    add_up(weights(s)[..., :, None] * exp(-w) * weights(s)[..., :, None] * (exp(room) - 1))[..., 0]
                )
            ),
            named={"x": ("n m", lambda s, w, m: s - log_sum_exp(s) + log(0 * add_up(s) + m) - w)},
            assumed={"room": ("n m m", lambda s, w: s[..., None, :] + w - s[..., :, None])},
            chosen={"w": lambda s: s.max() - s.min()},
        ),
    ),
)

TOP = {"top": "n 1", "t": "n m"}


def _not_the_top(top: Any, t: Array) -> Any:
    """1 − p_max."""
    return 1 - weight_beside(top, t)


def _beside(x: Array) -> Array:
    """x / (1 + x)."""
    return x / (1 + x)


SECOND_AT_LEAST = OfTheLargest(
    bound(
        TOP,
        lambda top, t: (_beside(exp(t - top)), _not_the_top(top, t)),
        lambda top, t, m: (
            add_up(others(m, t) * exp(t - top)[..., None, :])[..., 0]
            / ((1 + exp(t - top)) * (1 + add_up(exp(t - top))))
        ),
    ),
    lambda top, t: (_beside(exp(greatest(t, -1) - top)), _not_the_top(top, t)),
)

SECOND_AT_MOST = bound(
    TOP,
    lambda top, t, m: (_not_the_top(top, t), _beside(m * exp(greatest(t, -1) - top))),
    lambda top, t, m, room: (
        add_up(exp(t - top) * (exp(room) - 1)) / ((1 + add_up(exp(t - top))) * (1 + m * exp(greatest(t, -1) - top)))
    ),
    lambda top, t: (_not_the_top(top, 0 * t + top - 2), exp(0 * top - 2)),
    laws={"room": ("n m", lambda t: greatest(t, -1) - t, "largest")},
)

softmax_gap = Together((SECOND_AT_LEAST, SECOND_AT_MOST))


# -- perturbation ----------------------------------------------------------------------------------------------------
MOVED = {"s_j": "n 1", "s": "n m", "u": "n 1", "v": "n m", "eta": ""}


def _moved(s_j: Any, s: Array, u: Array, v: Array, eta: Any) -> Any:
    """The weight of a key whose score grows by η − u ≤ η, while all others change by −η + v ≥ −η."""
    return weight_beside(s_j + eta - u, s - eta + v)


def _ratio_gap(s_j: Any, s: Array, u: Array, v: Array, eta: Any) -> Any:
    before = exp(s_j) + add_up(exp(s))
    after = exp(s_j + eta - u) + add_up(exp(s - eta + v))
    bracket = exp(s_j + eta - u) * (exp(2 * eta) - 1) + add_up(exp(s + eta - u) * (exp(u + v) - 1))
    return exp(s_j) * bracket / (before * after)


def _moved_down(s_j: Any, s: Array, u: Array, v: Array, eta: Any) -> Any:
    """The weight of a key whose score falls by η − u ≤ η, while all others change by η − v ≤ η."""
    return weight_beside(s_j - eta + u, s + eta - v)


def _ratio_gap_down(s_j: Any, s: Array, u: Array, v: Array, eta: Any) -> Any:
    before = exp(s_j) + add_up(exp(s))
    after = exp(s_j - eta + u) + add_up(exp(s + eta - v))
    own = exp(s_j - 3 * eta + u) * (exp(2 * eta) - 1)
    bracket = own + add_up(exp(s - eta - v) * (exp(u + v) - 1))
    return exp(s_j) * bracket / (before * after)


SETS = {"s": "n a", "r": "n b", "u": "n a", "v": "n b", "eta": ""}


def _mass(s: Array, r: Array) -> Array:
    """The total weight of the keys with the scores s among those with s and r."""
    return add_up(exp(s)) / (add_up(exp(s)) + add_up(exp(r)))


def _mass_gap(s: Array, r: Array, u: Array, v: Array, eta: Any) -> Any:
    """tanh(η/2) less the mass gained, in two steps: to the largest gain that s and r allow, and from there."""
    a, b, x = add_up(exp(s)), add_up(exp(r)), exp(eta)
    c, d = add_up(exp(s + eta - u)), add_up(exp(r - eta + v))
    pairs = exp((s + eta - u)[..., :, None] + r[..., None, :]) * (exp(u[..., :, None] + v[..., None, :]) - 1)
    first = add_up(add_up(pairs)[..., 0]) / ((a * exp(2 * eta) + b) * (c + d))
    second = (exp(eta) - 1) * (a * x - b) ** 2 / ((x + 1) * (a * exp(2 * eta) + b) * (a + b))
    return first + second


def _sharp_mass(h: Any) -> Any:
    """Two keys with the scores (−h, h), then (h, −h): η = 2h, and the mass gained is tanh h."""
    return _mass(h, -h) - _mass(-h, h), tanh_of_half(2 * h)


softmax_tv = Together(
    (
        bound(
            MOVED,
            lambda s_j, s, u, v, eta: [
                (_moved(s_j, s, u, v, eta), exp(2 * eta) * weight_beside(s_j, s)),
                (exp(-2 * eta) * weight_beside(s_j, s), _moved_down(s_j, s, u, v, eta)),
            ],
            lambda s_j, s, u, v, eta: [_ratio_gap(s_j, s, u, v, eta), _ratio_gap_down(s_j, s, u, v, eta)],
            lambda s_j, s, u, v, eta: (weight_beside(s_j + eta, s - eta), exp(eta) * weight_beside(s_j, s)),
            nonnegative=("u", "v", "eta"),
        ),
        bound(
            SETS,
            lambda s, r, u, v, eta: (_mass(s + eta - u, r - eta + v) - _mass(s, r), tanh_of_half(eta)),
            _mass_gap,
            lambda s, r, eta: (_mass(s + eta, r - eta) - _mass(s, r), eta * Fraction(1, 4)),
            nonnegative=("u", "v", "eta"),
        ),
        identity({"h": "n 1"}, _sharp_mass),
    ),
)
