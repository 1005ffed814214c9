"""Softmax: what it is invariant under, its log-sum-exp, its derivatives; its bounds are in ``softmax_bounds``."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.attention.softmax import softmax as soft
from symattn.document.formulas import ARRAY_ROLES, formula
from symattn.proof.gradients import gradient
from symattn.proof.relations.glossary import Glossary
from symattn.proof.rules import OfTheLargest
from symattn.proof.statement import Declared, Pair
from symattn.proof.theorem import state, theorem
from symattn.proof.together import Positive, Together, bound, identity
from symattn.theorems.reading import printed
from symattn.theorems.softmax_bounds import FORMS, JACOBIAN, LETTERS, TOPIC, TWO_ROWS, VECTORS, jacobian_times
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
    squares,
    total,
    weights,
)

ROW = {"s": "n m"}
ROWS = Glossary({"S": "n_q n_k"}, index={"i": "n_q", "j": "n_k"}).where("P = softmax(S)")


# -- invariance and sums ----------------------------------------------------------------------------------------------
@theorem(
    "softmax-shift",
    TOPIC,
    "$softmax(s + t 𝟏) = softmax(s)$",
    arrays={"s": "n m", "t": "n 1"},
    why="Numerator and denominator both get the factor e^t.",
    letters=LETTERS.also({"t": ""}),
    false=lambda s, t: (soft(t * s), soft(s)),
    false_says="$softmax(t s) = softmax(s)$",
)
def softmax_shift(s: Array, t: Array) -> Pair:
    return soft(s + t), soft(s)


def _sums(s: Array, n: Any) -> Any:
    xp = s.__array_namespace__()
    return [(xp.sum(soft(s), axis=-1), 1), (xp.sum(soft(s)), xp.asarray(n))]


softmax_simplex = state(
    "softmax-simplex",
    TOPIC,
    "$p_ij > 0$, $Σ_{j=1}^{n_k} p_ij = 1$; so $P 𝟏 = 𝟏$, and $Σ_{i=1}^{n_q} Σ_{j=1}^{n_k} p_ij = n_q$",
    Together(
        (
            identity(ROW, _sums, lambda s: (s.__array_namespace__().sum(soft(s), axis=-2), 1)),
            Positive(Declared(ROW), weights),
        )
    ),
    "folklore",
    "the columns sum to 1: $Pᵀ 𝟏 = 𝟏$",
    "Each row is divided by its own sum, and exponentials are positive.",
    letters=ROWS,
)


def _order(s: Array, u: Array) -> Any:
    return weights(beside(s, s + u))


def _gaps(s: Array) -> Array:
    """s_i − s_j."""
    return s[..., :, None] - s[..., None, :]


def _log_of_ratio(s: Array) -> Any:
    """log (p_i / p_j)."""
    return log(weights(s)[..., :, None] / weights(s)[..., None, :])


softmax_log_ratio = state(
    "softmax-log-ratio",
    TOPIC,
    "$log(p_i/p_j) = s_i − s_j$, hence the weights are ordered as the scores are",
    Together(
        (
            identity(
                ROW,
                lambda s: (
                    weights(s)[..., :, None] + 0 * s[..., None, :],
                    exp(s[..., :, None] - s[..., None, :]) * weights(s)[..., None, :],
                ),
                lambda s: (weights(s)[..., :, None] * s[..., None, :], s[..., :, None] * weights(s)[..., None, :]),
            ),
            bound(
                ROW,
                lambda s: [(_log_of_ratio(s), _gaps(s)), (_gaps(s), _log_of_ratio(s))],
                lambda x, y: [exp(x) - 1 - x, exp(y) - 1 - y],
                named={
                    "x": ("n m m", lambda s: _log_of_ratio(s) - _gaps(s)),
                    "y": ("n m m", lambda s: _gaps(s) - _log_of_ratio(s)),
                },
            ),
            bound(
                {**ROW, "u": "n m"},
                lambda s, u, m: (_order(s, u)[..., :m], _order(s, u)[..., m:]),
                lambda s, u, m: _order(s, u)[..., :m] * (exp(u) - 1),
                positive=("u",),
            ),
        ),
    ),
    "folklore",
    "$p_i/p_j = s_i/s_j$",
    "The normaliser is the same in both weights.",
    letters=LETTERS,
)


softmax_two = printed(
    "softmax-two-is-sigmoid",
    TOPIC,
    "$p_1 = 1/(1 + e^{−(s_1 − s_2)})$",
    hypotheses=("there are two keys, $n_k = 2$",),
    why="Divide numerator and denominator by $e^{s_1}$.",
    letters=LETTERS,
    false_says="$p_1 = 1/(1 + e^{−s_1})$",
)


# -- log-sum-exp -------------------------------------------------------------------------------------------------------
def _divergence(a: Array, b: Array, of_a: Any = None, of_b: Any = None) -> Array:
    """KL(softmax(a) ‖ softmax(b)), from their log-sum-exps."""
    return add_up(weights(a) * ((a - of_a) - (b - of_b)))


def _logs(a: Array, b: Array) -> Array:
    return _divergence(a, b, log_sum_exp(a), log_sum_exp(b))


def _log_ratio(a: Array, b: Array) -> Array:
    """log softmax(b) − log softmax(a)."""
    return (b - log_sum_exp(b)) - (a - log_sum_exp(a))


NOT_NEGATIVE = bound(
    TWO_ROWS,
    lambda a, b: (0, _logs(a, b)),
    lambda a, x: add_up(weights(a) * (exp(x) - 1 - x)),
    named={"x": ("n m", _log_ratio)},
    only=("x",),
)
"""KL(softmax(a) ‖ softmax(b)) = Σ p (e^x − 1 − x) with x = log q − log p, as both p and q = e^x p sum to 1."""


def _with_zeros(a: Array, b: Array, r: Array) -> Array:
    """KL(p ‖ softmax(b)) for the weights p = softmax(a) of the first keys, and 0 of the others, whose scores are r."""
    every = log_sum_exp(beside(b, r))
    return _divergence(a, b, log_sum_exp(a), every)


NO_WEIGHT = bound(
    {**TWO_ROWS, "r": "n l"},
    lambda a, b, r: (0, _with_zeros(a, b, r)),
    lambda a, b, r, x: add_up(weights(a) * (exp(x) - 1 - x)) + add_up(exp(r)) / (add_up(exp(b)) + add_up(exp(r))),
    named={
        "x": (
            "n m",
            lambda a, b, r: b - log_sum_exp(beside(b, r)) - (a - log_sum_exp(a)),
        )
    },
    strict=True,
)
"""The same where some weights are 0: the weights softmax(b) of those keys are left over."""

LOGS = {"a": "n m", "b": "n m", "of_a": "n 1", "of_b": "n 1"}
BREGMAN = identity(
    LOGS,
    lambda a, b, of_a, of_b: (_divergence(a, b, of_a, of_b), of_b - of_a - add_up(weights(a) * (b - a))),
)
"""KL(softmax(a) ‖ softmax(b)) = lse(b) − lse(a) − ⟨softmax(a), b − a⟩, for any two numbers as the values of lse."""


def _free_energy(a: Array, b: Array, of_a: Any) -> Array:
    """⟨p, b⟩ + H(p) for p = softmax(a)."""
    return add_up(weights(a) * b) - add_up(weights(a) * (a - of_a))


UNDER = {"top": "n 1", "u": "n m"}
gibbs_variational = state(
    "gibbs-variational",
    TOPIC,
    "$lse(s) − pᵀ s − H(p) = KL(p, softmax(s))$, and $KL(p, softmax(s)) ≥ 0$, so lse(s) is the maximum"
    " over all positive weights p, attained at softmax(s) alone: $lse(s) = softmax(s)ᵀ s + H(softmax(s))$",
    Together(
        (
            identity(
                {**LOGS, **UNDER},
                lambda a, b, of_a, of_b: (of_b - _free_energy(a, b, of_a), _divergence(a, b, of_a, of_b)),
                lambda top, u: (add_up(exp(beside(top, top - u))), exp(top)),
                positive=("u",),
            ),
            NOT_NEGATIVE,
            NO_WEIGHT,
            identity(ROW, lambda s: (_free_energy(s, s, log_sum_exp(s)), log_sum_exp(s))),
        ),
    ),
    "folklore",
    "the maximum is attained with all weight on the largest score: $lse(s) = max(s)$",
    "The gap is a relative entropy, which is never negative.",
    (
        "weights that are not 0 are written as $softmax(a)$; $lse(a)$ and $lse(s)$ are letters in the"
        " equation of the gap",
    ),
    LETTERS.also({"a": "n_k"}).where("p = softmax(a)"),
)


lse_bounds = state(
    "lse-bounds",
    TOPIC,
    "$max(s) ≤ lse(s)$, $lse(s) ≤ max(s) + log(n_k)$, with equality on the right iff all scores are equal",
    Together(
        (
            OfTheLargest(
                bound(
                    ROW,
                    lambda s: (s, log_sum_exp(s)),
                    lambda s, m, x: (
                        exp(x) - 1 - x + add_up(others(m, s) * exp(s)[..., None, :])[..., 0] / add_up(exp(s))
                    ),
                    lambda s: (log_sum_exp(0 * s), greatest(0 * s, -1) + 1),
                    named={"x": ("n m", lambda s: s - log_sum_exp(s))},
                ),
                lambda s: (greatest(s, -1), log_sum_exp(s)),
            ),
            bound(
                ROW,
                lambda s, m: (log_sum_exp(s), greatest(s, -1) + log(0 * add_up(s) + m)),
                lambda s, m, x, room: exp(x) - 1 - x + add_up(exp(s) * (exp(room) - 1)) / (m * exp(greatest(s, -1))),
                named={"x": ("n 1", lambda s, m: log_sum_exp(s) - greatest(s, -1) - log(0 * add_up(s) + m))},
                laws={"room": ("n m", lambda s: greatest(s, -1) - s, "largest")},
                only=("room",),
            ),
            identity(
                {"t": "n 1", "s": "n m"},
                lambda t, s, m: (add_up(exp(t + 0 * s)), exp(t) * m),
            ),
        ),
    ),
    "folklore",
    "$lse(s) ≤ max(s) + 1$",
    "The largest term is one of n_k, and none is larger.",
    letters=LETTERS.also(sharp="far"),
)


_CURVATURE = formula("xᵀ (diag(p) − p pᵀ) x", ARRAY_ROLES)
lse_hessian = state(
    "lse-hessian",
    TOPIC,
    "$∇ lse(s) = p$, $∂p_i/∂s_j = (diag(p) − p pᵀ)_{i, j}$; this matrix has no negative eigenvalue,"
    " $xᵀ (diag(p) − p pᵀ) x ≥ 0$, the trace $1 − ‖p‖²$, and a kernel spanned by the ones: $(diag(p) − p pᵀ) 𝟏 = 0 𝟏$",
    Together(
        (
            Positive(Declared(FORMS), weights, lambda s: form(weights(s), s * 0 + 1)),
            JACOBIAN,
            identity(
                VECTORS,
                lambda s: [
                    (gradient(lambda s: log(total(exp(s))), "s", s=s), weights(s)),
                    (jacobian_times(s, s * 0 + 1), 0),
                    (add_up(weights(s) * (1 - weights(s))), 1 - squares(weights(s))),
                ],
            ),
            bound(
                FORMS,
                lambda s, x: (0, form(weights(s), x)),
                lambda s, d: add_up(add_up(weights(s)[..., :, None] * weights(s)[..., None, :] * d * d)[..., 0]) * HALF,
                named={"d": ("n m m", lambda x: x[..., :, None] - x[..., None, :])},
                only=("d",),
            ),
        ),
    ),
    "folklore",
    "the Hessian is invertible, so that $xᵀ (diag(p) − p pᵀ) x > 0$ also for equal entries of x",
    "The Hessian is the covariance of one-hot vectors drawn with the weights p.",
    letters=LETTERS.also(
        gaps={_CURVATURE: formula("(Σ_{j=1}^{n_k} Σ_{l=1}^{n_k} p_j p_l (x_j − x_l)²)/2", ARRAY_ROLES)}
    ),
)


softmax_bregman = state(
    "softmax-bregman",
    TOPIC,
    "$KL(softmax(s), softmax(t)) = lse(t) − lse(s) − softmax(s)ᵀ (t − s)$",
    Together(
        (
            BREGMAN,
            identity(
                TWO_ROWS,
                lambda a, b: (exp(a - log_sum_exp(a)), weights(a)),
            ),
            bound(
                TWO_ROWS,
                lambda a, b: (0, _logs(a, b)),
                lambda a, x: add_up(weights(a) * (exp(x) - 1 - x)),
                lambda a, b: (_logs(a, b), _logs(b, a)),
                named={"x": ("n m", _log_ratio)},
            ),
        )
    ),
    "folklore",
    "it is symmetric: $KL(softmax(s), softmax(t)) = KL(softmax(t), softmax(s))$",
    "It is the distance of lse(t) from the tangent of lse at s.",
    ("in the equation $lse(s)$ and $lse(t)$ are letters, for it holds for any two numbers",),
    LETTERS,
)
