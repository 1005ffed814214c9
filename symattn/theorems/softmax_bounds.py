"""Softmax: how its weights move when scores do, and how far they can be from equal or from one-hot."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.notation import N_K
from symattn.document.notation import Call, Node, Over, equals, name, node, relation, total
from symattn.proof.gradients import gradient
from symattn.proof.relations.glossary import Definition, Glossary
from symattn.proof.rules import Limit, OfTheLargest
from symattn.proof.theorem import Theorem
from symattn.proof.together import Together, bound, identity
from symattn.theorems.letters import (
    I_,
    J_,
    ONES,
    T_,
    beside,
    norm,
    power_of_e,
    said,
    softmax,
    t,
    told,
)
from symattn.theorems.rounding_bounds import tanh_of_half
from symattn.theorems.sums import add_up, exp, form, greatest, log, log_sum_exp, others, outer, squares, weights

TOPIC = "softmax"
LETTERS = Glossary(
    given={"s": "n_k", "t": "n_k", "S": "n_q n_k", "x": "n_k"},
    sharp="attained",
    index={"i": "n_k", "j": "n_k", "l": "n_k"},
    defined={
        "p": Definition((), softmax("s")),
        "P": Definition((), softmax("S")),
        "p_max": Definition((), said("max", "p")),
        "J": Definition((), said("diag", "p") - name("p") * t(name("p"))),
    },
)
TWO_ROWS = {"a": "n m", "b": "n m"}
S_, X_, ETA, W_, DELTA = (name(x) for x in ("s", "x", "η", "w", "Δ"))
P_I, P_J = name("p", I_, role="weight"), name("p", J_, role="weight")
S_I, S_J = name("s", I_, role="score"), name("s", J_, role="score")
P_ROW, P_MAX = name("p", role="weight"), name("p", "max", role="weight")


def lse(x: Node) -> Node:
    """lse(x) = log Σ e^{x_j}."""
    return said("lse", x)


def kl(p: Node, q: Node) -> Node:
    """KL(p ‖ q)."""
    return Call(name("KL"), (p, q))


def largest(x: Node) -> Node:
    """max x."""
    return said("max", x)


def inner(x: Node, y: Node) -> Node:
    """⟨x, y⟩, written as xᵀy."""
    return t(x) * y


def _along(s: Array, x: Array) -> Array:
    """⟨x, softmax(s)⟩, whose gradient by s is J x, J being symmetric."""
    xp = s.__array_namespace__()
    return xp.sum(weights(s) * x)


def jacobian_times(s: Array, x: Array) -> Any:
    """(diag(p) − p pᵀ) x."""
    p = weights(s)
    return p * x - p * add_up(p * x)


VECTORS = {"s": "m", "x": "m"}
JACOBIAN = identity(VECTORS, lambda s, x: (gradient(_along, "s", s=s, x=x), jacobian_times(s, x)))
FORMS = {"s": "n m", "x": "n m"}
AT_LEAST_ZERO = bound(
    FORMS, lambda s, x: (0, form(weights(s), x)), lambda s, x: outer(weights(s), x, x) * Fraction(1, 2)
)


def _half_minus(s: Array, x: Array, m: Array) -> Any:
    """½‖x‖² − xᵀJx, written as a sum of squares."""
    xp, p = s.__array_namespace__(), weights(s)
    both = x[..., :, None] + x[..., None, :]
    mixed = p[..., :, None] * p[..., None, :] * others(m, s) * both * both
    return (squares((1 - 2 * p) * x) + xp.sum(mixed, axis=(-2, -1))[..., None]) * Fraction(1, 2)


AT_MOST_HALF = bound(FORMS, lambda s, x: (form(weights(s), x), squares(x) * Fraction(1, 2)), _half_minus)


# -- Lipschitz ---------------------------------------------------------------------------------------------------------
def _sharp(s: Array) -> Any:
    """J x = x / 2 for two equal scores and x = (1, −1)."""
    xp = s.__array_namespace__()
    x = xp.concat([s * 0 + 1, s * 0 - 1], axis=-1)
    return jacobian_times(xp.concat([s, s], axis=-1), x), x * Fraction(1, 2)


def _row_sums(s: Array, m: Array) -> tuple[Any, Any]:
    """Σ_l |J_jl| = p_j (1 − p_j) + Σ_{l ≠ j} p_j p_l."""
    p = weights(s)
    return p * (1 - p) + add_up(p[..., :, None] * p[..., None, :] * others(m, s))[..., 0], 2 * p * (1 - p)


softmax_half_lipschitz = Theorem(
    "softmax-half-lipschitz",
    TOPIC,
    (
        relation(norm(softmax(S_) - softmax(T_)), "≤", Over(node(1), node(2)) * norm(S_ - T_)),
        ", also in the largest entry; no constant below ½ will do",
    ),
    Together(
        (
            bound(
                TWO_ROWS,
                lambda a: (2 * weights(a) * (1 - weights(a)), 0 * a + Fraction(1, 2)),
                lambda a: (1 - 2 * weights(a)) ** 2 * Fraction(1, 2),
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
    ),
    "Nair, Softmax is 1/2-Lipschitz (2025)",
    (relation(norm(softmax(S_) - softmax(T_)), "≤", Over(node(1), node(4)) * norm(S_ - T_)),),
    ("The Jacobian diag(p) − p pᵀ is small because the weights sum to 1.",),
    letters=LETTERS.also(sharp="approached"),
)


def _symmetric(a: Array, x: Array) -> Any:
    """xᵀJx − 2‖Jx‖² = 4 (zᵀJz + yᵀ(½ − J)y) with y = Jx and z = x/2 − y, for every symmetric J = a + aᵀ."""
    j = a + a.mT
    y = j @ x
    z = x * Fraction(1, 2) - y
    return x.mT @ y - 2 * (y.mT @ y), 4 * (z.mT @ (j @ z) + y.mT @ (y * Fraction(1, 2) - j @ y))


softmax_cocoercive = Theorem(
    "softmax-cocoercive",
    TOPIC,
    (relation(t(softmax(S_) - softmax(T_)) * (S_ - T_), "≥", 2 * norm(softmax(S_) - softmax(T_)) ** 2),),
    Together(
        (
            JACOBIAN,
            # s and t = s + 1 have the same weights, so the left side is 0: no μ will do, c is any.
            bound(
                {**FORMS, "c": ""},
                lambda s, x: (0, form(weights(s), x)),
                lambda s, x: outer(weights(s), x, x) * Fraction(1, 2),
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
    ),
    "folklore",
    (
        "strong monotonicity: ",
        relation(t(softmax(S_) - softmax(T_)) * (S_ - T_), "≥", name("μ") * norm(S_ - T_) ** 2),
        " with some ",
        relation(name("μ"), ">", 0),
    ),
    ("J − 2J² has no negative eigenvalue, since those of J lie between 0 and ½.",),
    letters=LETTERS.also({"μ": ""}, positive=("μ",), sharp="approached"),
)


# -- limits, dispersion, gaps ------------------------------------------------------------------------------------------
BETA = name("β")
LOST = total(J_, 1, "m", power_of_e(-(BETA * name("u", J_))))
TIES = {"tie": "n a", "u": "n b", "beta": "", "s": "n m"}


def _below_ties(tie: Any, u: Array, beta: Any) -> Any:
    """Weights of β s, for the largest score 0 at the keys of ``tie`` and −u elsewhere."""
    xp = tie.__array_namespace__()
    return weights(xp.concat([0 * tie, -(beta * u)], axis=-1))


def _tied(tie: Array, u: Array, beta: Any) -> Any:
    """Their part of the keys of ``tie``."""
    return _below_ties(tie, u, beta)[..., : tie.shape[-1]]


def _rest(u: Array, beta: Any) -> Array:
    return add_up(exp(-(beta * u)))


softmax_limits = Theorem(
    "softmax-limits",
    TOPIC,
    (
        equals(name("w", I_), 1 / (name("n") + LOST)),
        " for the weights w of the n keys with the largest score; ",
        relation(1 / (name("n") + LOST), "→", 1 / name("n")),
        " as ",
        relation(BETA, "→", name("∞")),
        "; and ",
        relation(softmax(BETA * S_), "→", 1 / N_K * ONES),
        " as ",
        relation(BETA, "→", 0),
    ),
    Together(
        (
            Limit(
                bound(
                    TIES,
                    lambda tie, u, beta, a: [
                        (_below_ties(tie, u, beta)[..., :a] * a, 1),
                        (1 - _below_ties(tie, u, beta)[..., :a] * a, _rest(u, beta) / (0 * beta + a)),
                    ],
                    lambda tie, u, beta, a: [
                        _rest(u, beta) / (_rest(u, beta) + a),
                        _rest(u, beta) ** 2 / ((_rest(u, beta) + a) * a),
                    ],
                    lambda tie, u, beta, a: (1 - _below_ties(tie, u, beta)[..., :a], _rest(u, beta)),
                    positive=("u", "beta"),
                ),
                "beta",
                lambda s, beta: weights(beta * s),
                lambda s, m: (0 * s + 1) / m,
            ),
            identity(
                TIES,
                lambda tie, u, beta, a: (_below_ties(tie, u, beta)[..., :a] * (a + _rest(u, beta)), 1),
            ),
        ),
    ),
    "folklore",
    ("the limit is one-hot, also with ties",),
    ("All keys but the largest lose weight exponentially in β.",),
    (
        told(
            "the n largest scores are 0, as a shift makes them, and w are their weights; those of the other m keys, "
            "one at least, are −u with {}",
            relation(name("u"), ">", 0),
        ),
    ),
    LETTERS.also(
        {"β": "", "u": "m", "tie": "n"},
        sizes={"n": "n", "m": "m"},
        index={"i": "n", "j": "m"},
        defined={"w": lambda reader: _tied(reader.array("tie"), reader.array("u"), reader.array("β"))},
    ),
)

SPREAD = {"s": "n 1", "u": "n m", "w": ""}
TWO_KEYS = ("there are two keys or more",)


def _one_key(s: Array, others_: Any) -> Any:
    """The weight of the key with the score s among others."""
    xp = s.__array_namespace__()
    return weights(xp.concat([s, others_], axis=-1))[..., :1]


DISPERSION = bound(
    SPREAD,
    lambda s, u, w, m: [
        (_one_key(s, s - w + u), exp(w) / (exp(w) + m)),
        (exp(w) / (exp(w) + m) * (1 + m), exp(w)),
    ],
    lambda s, u, w, m: [
        add_up(exp(u) * exp(-u) * (exp(u) - 1)) / ((1 + add_up(exp(u - w))) * (exp(w) + m)),
        exp(w) * (exp(w) - 1) / (exp(w) + m),
    ],
    nonnegative=("u", "w"),
)
"""No weight is above e^w / (e^w + n_k − 1), if the scores lie within a band of width w."""


def _entropy(s: Array) -> Array:
    """H(softmax(s)), the mean of −log p_j."""
    return add_up(weights(s) * (log_sum_exp(s) - s))


softmax_dispersion = Theorem(
    "softmax-dispersion",
    TOPIC,
    (
        relation(1 / (1 + (N_K - 1) * power_of_e(W_)), "≤", P_J),
        ", ",
        relation(P_J, "≤", power_of_e(W_) / (power_of_e(W_) + N_K - 1)),
        ", ",
        relation(said("H", P_ROW), "≥", said("log", N_K) - W_),
    ),
    Together(
        (
            bound(
                SPREAD,
                lambda s, u, w, m: (1 / (1 + m * exp(w)), _one_key(s, s + w - u)),
                lambda s, u, w, m: add_up(exp(w - u) * (exp(u) - 1)) / ((1 + add_up(exp(w - u))) * (1 + m * exp(w))),
                lambda s, u, w: (1 / (1 + exp(w)), _one_key(s, s + w - u)),
                nonnegative=("u", "w"),
            ),
            DISPERSION,
            bound(
                {"s": "n m", "w": ""},
                lambda s, w, m: (log(0 * add_up(s) + m) - w, _entropy(s)),
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
    ),
    "folklore",
    ("bounded scores can stay sharp: ", relation(P_J, "≥", 1 / (1 + power_of_e(W_))), " for every ", N_K),
    told("Every other key has at least {} and at most {} times the weight of a key.", power_of_e(-W_), power_of_e(W_)),
    ((relation(largest(S_) - said("min", S_), "≤", W_),), TWO_KEYS),
    LETTERS.also({"u": ""}, defined={"w": largest(S_) - said("min", S_) + name("u")}, nonnegative=("u",)),
)

TOP = {"top": "n 1", "t": "n m"}


def _not_the_top(top: Any, t: Array) -> Any:
    """1 − p_max."""
    return 1 - _one_key(top, t)


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

softmax_gap = Theorem(
    "softmax-gap",
    TOPIC,
    (
        relation(power_of_e(-DELTA) / (1 + power_of_e(-DELTA)), "≤", 1 - P_MAX),
        ", ",
        relation(1 - P_MAX, "≤", (N_K - 1) * power_of_e(-DELTA) / (1 + (N_K - 1) * power_of_e(-DELTA))),
    ),
    Together((SECOND_AT_LEAST, SECOND_AT_MOST)),
    "folklore",
    (relation(1 - P_MAX, "≤", power_of_e(-DELTA)), " for every ", N_K),
    ("Between one and all of the other n_k − 1 keys have the second largest score.",),
    (("Δ is the gap of the two largest scores",), TWO_KEYS),
    LETTERS.also(
        {"top": "", "Δ": "", "u": "r"},
        nonnegative=("Δ", "u"),
        sharp="apart",
        defined={"s": beside(name("top"), name("top") - DELTA, (name("top") - DELTA) * ONES - name("u"))},
        sizes={"n_k": "2+r"},
        index={"j": "2+r"},
    ),
)


# -- perturbation ----------------------------------------------------------------------------------------------------
MOVED = {"s_j": "n 1", "s": "n m", "u": "n 1", "v": "n m", "eta": ""}


def _moved(s_j: Any, s: Array, u: Array, v: Array, eta: Any) -> Any:
    """The weight of a key whose score grows by η − u ≤ η, while all others change by −η + v ≥ −η."""
    return _one_key(s_j + eta - u, s - eta + v)


def _ratio_gap(s_j: Any, s: Array, u: Array, v: Array, eta: Any) -> Any:
    before = exp(s_j) + add_up(exp(s))
    after = exp(s_j + eta - u) + add_up(exp(s - eta + v))
    bracket = exp(s_j + eta - u) * (exp(2 * eta) - 1) + add_up(exp(s + eta - u) * (exp(u + v) - 1))
    return exp(s_j) * bracket / (before * after)


def _moved_down(s_j: Any, s: Array, u: Array, v: Array, eta: Any) -> Any:
    """The weight of a key whose score falls by η − u ≤ η, while all others change by η − v ≤ η."""
    return _one_key(s_j - eta + u, s + eta - v)


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


TV = said("TV", softmax(S_), softmax(T_))
softmax_tv = Theorem(
    "softmax-tv-perturbation",
    TOPIC,
    (
        relation(power_of_e(-(2 * ETA)), "≤", Over(name("q", J_, role="weight"), P_J)),
        ", ",
        relation(Over(name("q", J_, role="weight"), P_J), "≤", power_of_e(2 * ETA)),
        ", ",
        relation(TV, "≤", said("tanh", ETA / 2)),
        ", the last sharp for two keys",
    ),
    Together(
        (
            bound(
                MOVED,
                lambda s_j, s, u, v, eta: [
                    (_moved(s_j, s, u, v, eta), exp(2 * eta) * _one_key(s_j, s)),
                    (exp(-2 * eta) * _one_key(s_j, s), _moved_down(s_j, s, u, v, eta)),
                ],
                lambda s_j, s, u, v, eta: [_ratio_gap(s_j, s, u, v, eta), _ratio_gap_down(s_j, s, u, v, eta)],
                lambda s_j, s, u, v, eta: (_one_key(s_j + eta, s - eta), exp(eta) * _one_key(s_j, s)),
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
    ),
    "folklore",
    ("the ratio is at most ", power_of_e(ETA), "; ", relation(TV, "≤", ETA / 4)),
    told(
        "Score and normaliser can each move by a factor {}; the mass of a set moves most when it is split evenly.",
        power_of_e(ETA),
    ),
    (
        told(
            "the weights are {} and {}, and no score changes by more than {}",
            equals(P_ROW, softmax(S_)),
            equals(name("q", role="weight"), softmax(T_)),
            ETA,
        ),
        ("TV is the largest difference of the masses of a set of keys",),
        TWO_KEYS,
    ),
    LETTERS.also(
        {"η": "", "x": "n_k"},
        defined={
            "t": Definition(("j",), name("s", J_, role="score") + ETA * said("min", 1, said("max", -1, name("x", J_))))
        },
        nonnegative=("η",),
        sharp="apart whole",
    ),
)


THEOREMS = (
    softmax_half_lipschitz,
    softmax_cocoercive,
    softmax_limits,
    softmax_dispersion,
    softmax_gap,
    softmax_tv,
)
