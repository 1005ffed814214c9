"""Softmax: what it is invariant under, its log-sum-exp, its derivatives; its bounds are in ``softmax_bounds``."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.notation import N_K, N_Q
from symattn.attention.softmax import softmax as soft
from symattn.document.notation import Fence, Partial, commas, equals, name, relation, total
from symattn.proof.gradients import gradient
from symattn.proof.relations.glossary import Definition, Glossary
from symattn.proof.rules import OfTheLargest
from symattn.proof.statement import Declared, Pair
from symattn.proof.theorem import Theorem, theorem
from symattn.proof.together import Positive, Together, bound, identity
from symattn.theorems import softmax_bounds
from symattn.theorems.letters import (
    I_,
    J_,
    ONES,
    T_,
    P,
    norm,
    over_keys,
    power_of_e,
    said,
    same,
    softmax,
    t,
    told,
)
from symattn.theorems.softmax_bounds import (
    FORMS,
    JACOBIAN,
    LETTERS,
    P_I,
    P_J,
    P_ROW,
    S_,
    S_I,
    S_J,
    TOPIC,
    TWO_ROWS,
    VECTORS,
    X_,
    inner,
    jacobian_times,
    kl,
    largest,
    lse,
)
from symattn.theorems.sums import add_up, exp, form, greatest, log, log_sum_exp, others, squares, weights

P_IJ = name("p", I_, J_, role="weight")
ROW = {"s": "n m"}
ROWS = Glossary({"S": "n_q n_k"}, index={"i": "n_q", "j": "n_k"}, defined={"P": Definition((), softmax("S"))})


# -- invariance and sums ----------------------------------------------------------------------------------------------
@theorem(
    "softmax-shift",
    TOPIC,
    same(softmax(S_ + T_ * ONES), softmax(S_)),
    arrays={"s": "n m", "t": "n 1"},
    why="Numerator and denominator both get the factor e^t.",
    letters=LETTERS.also({"t": ""}),
    false=lambda s, t: (soft(t * s), soft(s)),
    false_says=same(softmax(T_ * S_), softmax(S_)),
)
def softmax_shift(s: Array, t: Array) -> Pair:
    return soft(s + t), soft(s)


def _sums(s: Array, n: Any) -> Any:
    xp = s.__array_namespace__()
    return [(xp.sum(soft(s), axis=-1), 1), (xp.sum(soft(s)), xp.asarray(n))]


softmax_simplex = Theorem(
    "softmax-simplex",
    TOPIC,
    (
        relation(P_IJ, ">", 0),
        ", ",
        equals(over_keys(P_IJ), 1),
        "; so ",
        equals(P * ONES, ONES),
        ", and ",
        equals(total(I_, 1, N_Q, over_keys(P_IJ)), N_Q),
    ),
    Together(
        (
            identity(ROW, _sums, lambda s: (s.__array_namespace__().sum(soft(s), axis=-2), 1)),
            Positive(Declared(ROW), weights),
        )
    ),
    "folklore",
    ("the columns sum to 1: ", equals(t(P) * ONES, ONES)),
    ("Each row is divided by its own sum, and exponentials are positive.",),
    letters=ROWS,
)


def _order(s: Array, u: Array) -> Any:
    xp = s.__array_namespace__()
    return weights(xp.concat([s, s + u], axis=-1))


def _gaps(s: Array) -> Array:
    """s_i − s_j."""
    return s[..., :, None] - s[..., None, :]


def _log_of_ratio(s: Array) -> Any:
    """log (p_i / p_j)."""
    return log(weights(s)[..., :, None] / weights(s)[..., None, :])


softmax_log_ratio = Theorem(
    "softmax-log-ratio",
    TOPIC,
    (equals(said("log", P_I / P_J), S_I - S_J), ", hence the weights are ordered as the scores are"),
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
    same(P_I / P_J, S_I / S_J),
    ("The normaliser is the same in both weights.",),
    letters=LETTERS,
)


@theorem(
    "softmax-two-is-sigmoid",
    TOPIC,
    same(name("p", 1, role="weight"), 1 / (1 + power_of_e(-(name("s", 1, role="score") - name("s", 2, role="score"))))),
    arrays={"s": "n 2"},
    hypotheses=(("there are two keys, ", equals(N_K, 2)),),
    why=told("Divide numerator and denominator by {}.", power_of_e(name("s", 1, role="score"))),
    letters=LETTERS,
    false=lambda s: (soft(s)[:, 0], 1 / (1 + exp(-s[:, 0]))),
    false_says=same(name("p", 1, role="weight"), 1 / (1 + power_of_e(-name("s", 1, role="score")))),
)
def softmax_two(s: Array) -> Pair:
    return soft(s)[:, 0], 1 / (1 + exp(s[:, 1] - s[:, 0]))


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
    every = log_sum_exp(b.__array_namespace__().concat([b, r], axis=-1))
    return _divergence(a, b, log_sum_exp(a), every)


NO_WEIGHT = bound(
    {**TWO_ROWS, "r": "n l"},
    lambda a, b, r: (0, _with_zeros(a, b, r)),
    lambda a, b, r, x: add_up(weights(a) * (exp(x) - 1 - x)) + add_up(exp(r)) / (add_up(exp(b)) + add_up(exp(r))),
    named={
        "x": (
            "n m",
            lambda a, b, r: b - log_sum_exp(b.__array_namespace__().concat([b, r], axis=-1)) - (a - log_sum_exp(a)),
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


def _under(top: Any, u: Array) -> Any:
    """Scores with the maximum ``top`` at one key, the others lower by u."""
    return top.__array_namespace__().concat([top, top - u], axis=-1)


UNDER = {"top": "n 1", "u": "n m"}
gibbs_variational = Theorem(
    "gibbs-variational",
    TOPIC,
    (
        equals(lse(S_) - inner(P_ROW, S_) - said("H", P_ROW), kl(P_ROW, softmax(S_))),
        ", and ",
        relation(kl(P_ROW, softmax(S_)), "≥", 0),
        ", so lse(s) is the maximum over all positive weights p, attained at softmax(s) alone: ",
        equals(lse(S_), inner(softmax(S_), S_) + said("H", softmax(S_))),
    ),
    Together(
        (
            identity(
                {**LOGS, **UNDER},
                lambda a, b, of_a, of_b: (of_b - _free_energy(a, b, of_a), _divergence(a, b, of_a, of_b)),
                lambda top, u: (add_up(exp(_under(top, u))), exp(top)),
                positive=("u",),
            ),
            NOT_NEGATIVE,
            NO_WEIGHT,
            identity(ROW, lambda s: (_free_energy(s, s, log_sum_exp(s)), log_sum_exp(s))),
        ),
    ),
    "folklore",
    ("the maximum is attained with all weight on the largest score: ", equals(lse(S_), largest(S_))),
    ("The gap is a relative entropy, which is never negative.",),
    (
        told(
            "weights that are not 0 are written as {}; {} and {} are letters in the equation of the gap",
            softmax(name("a")),
            lse(name("a")),
            lse(S_),
        ),
    ),
    LETTERS.also({"a": "n_k"}, defined={"p": softmax(name("a"))}),
)


lse_bounds = Theorem(
    "lse-bounds",
    TOPIC,
    (
        relation(largest(S_), "≤", lse(S_)),
        ", ",
        relation(lse(S_), "≤", largest(S_) + said("log", N_K)),
        ", with equality on the right iff all scores are equal",
    ),
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
    (relation(lse(S_), "≤", largest(S_) + 1),),
    ("The largest term is one of n_k, and none is larger.",),
    letters=LETTERS.also(sharp="far"),
)

NABLA = name("∇")
SPREAD_ = P_J * name("p", "l", role="weight") * (name("x", J_) - name("x", "l")) ** 2
HESSIAN = said("diag", P_ROW) - P_ROW * t(P_ROW)


def _scalar_lse(s: Array) -> Array:
    xp = s.__array_namespace__()
    return xp.log(xp.sum(xp.exp(s)))


lse_hessian = Theorem(
    "lse-hessian",
    TOPIC,
    (
        equals(NABLA * lse(S_), P_ROW),
        ", ",
        equals(Partial(P_I, S_J), Fence("round", HESSIAN, commas(I_, J_))),
        "; this matrix has no negative eigenvalue, ",
        relation(t(X_) * HESSIAN * X_, "≥", 0),
        ", the trace ",
        1 - norm(P_ROW) ** 2,
        ", and a kernel spanned by the ones: ",
        equals(HESSIAN * ONES, 0 * ONES),
    ),
    Together(
        (
            Positive(Declared(FORMS), weights, lambda s: form(weights(s), s * 0 + 1)),
            JACOBIAN,
            identity(
                VECTORS,
                lambda s: [
                    (gradient(_scalar_lse, "s", s=s), weights(s)),
                    (jacobian_times(s, s * 0 + 1), 0),
                    (add_up(weights(s) * (1 - weights(s))), 1 - squares(weights(s))),
                ],
            ),
            bound(
                FORMS,
                lambda s, x: (0, form(weights(s), x)),
                lambda s, d: (
                    add_up(add_up(weights(s)[..., :, None] * weights(s)[..., None, :] * d * d)[..., 0]) * Fraction(1, 2)
                ),
                named={"d": ("n m m", lambda x: x[..., :, None] - x[..., None, :])},
                only=("d",),
            ),
        ),
    ),
    "folklore",
    (
        "the Hessian is invertible, so that ",
        relation(t(X_) * HESSIAN * X_, ">", 0),
        " also for equal entries of x",
    ),
    ("The Hessian is the covariance of one-hot vectors drawn with the weights p.",),
    letters=LETTERS.also(gaps={t(X_) * HESSIAN * X_: over_keys(total("l", 1, N_K, SPREAD_)) / 2}),
)


softmax_bregman = Theorem(
    "softmax-bregman",
    TOPIC,
    same(kl(softmax(S_), softmax(T_)), lse(T_) - lse(S_) - t(softmax(S_)) * (T_ - S_)),
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
    ("it is symmetric: ", equals(kl(softmax(S_), softmax(T_)), kl(softmax(T_), softmax(S_)))),
    ("It is the distance of lse(t) from the tangent of lse at s.",),
    (told("in the equation {} and {} are letters, for it holds for any two numbers", lse(S_), lse(T_)),),
    LETTERS,
)

THEOREMS = (
    softmax_shift,
    softmax_simplex,
    softmax_log_ratio,
    softmax_two,
    gibbs_variational,
    lse_bounds,
    lse_hessian,
    *softmax_bounds.THEOREMS,
    softmax_bregman,
)
