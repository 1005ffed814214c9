"""Scaling and statistics: how scores, outputs and gradients are spread when their inputs are random."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from symattn.arrays.array import Array, Functions
from symattn.attention.notation import D_K, N_K
from symattn.attention.scores import dot_scores, scale_by_root
from symattn.attention.softmax import softmax as soft
from symattn.document.notation import Call, Fence, Node, Over, Power, Product, Root, equals, name, node, relation
from symattn.proof.enclosure import EnclosedOverBox
from symattn.proof.expectation import NORMAL, Law, averaged, law_with
from symattn.proof.gradients import gradient
from symattn.proof.moment_theorems import moment_theorem
from symattn.proof.relations.glossary import Definition, Glossary
from symattn.proof.theorem import Theorem
from symattn.proof.together import Together, bound, identity
from symattn.theorems.letters import J_, over_keys, power_of_e, same, told

TOPIC = "scaling"
VASWANI = "Vaswani et al., Attention Is All You Need (2017), §3.2.1"
SMALL_Q, SMALL_K = name("q", role="query"), name("k", role="key")
X_ROW, Y_ROW = name("x", role="input"), name("y", role="input")
DOT = Product((SMALL_Q, SMALL_K), "·")
SIGMA, TAU, MU_Q, MU_K = name("σ"), name("τ"), name("μ", "q"), name("μ", "k")
VAR_Q, VAR_K = Power(name("σ", "q"), node(2)), Power(name("σ", "k"), node(2))


def var(x: Node) -> Node:
    """Var(x)."""
    return Call(name("Var"), (x,))


def mean(x: Node) -> Node:
    """E[x]."""
    return Call(name("E"), (x,), square=True)


def cov(x: Node, y: Node) -> Node:
    """Cov(x, y)."""
    return Call(name("Cov"), (x, y))


def squared(x: Node) -> Node:
    """x²."""
    return Power(x, node(2))


def score(q: Array, k: Array) -> Array:
    """q · k of two rows, as a number."""
    return dot_scores(q, k)[0, 0]


ROWS = {"q": "1 d", "k": "1 d"}


def _drawn(laws: Mapping[str, Law], **more: Any) -> Glossary:
    """Letters of rows that are drawn, and of what their laws take."""
    parameters = {key: "" for law in laws.values() for key in law.parameters}
    return Glossary({**dict.fromkeys(laws, "d_k"), **parameters}, laws=laws, rows=True, **more)


DEVIATIONS = {"sigma_q": "", "sigma_k": ""}


@moment_theorem(
    "score-variance",
    TOPIC,
    same(var(DOT), D_K * VAR_Q * VAR_K),
    letters=_drawn({"q": law_with("σ_q"), "k": law_with("σ_k")}),
    arrays={**ROWS, **DEVIATIONS},
    laws={"q": law_with("sigma_q"), "k": law_with("sigma_k")},
    source=VASWANI,
    why="The products of different coordinates are uncorrelated, so their variances add up.",
    false=lambda E, d, sigma_q, sigma_k: (E.variance(score), d * d * sigma_q**2 * sigma_k**2),
    false_says=same(var(DOT), squared(D_K) * VAR_Q * VAR_K),
)
def score_variance(E: Any, d: Array, sigma_q: Any, sigma_k: Any) -> Any:
    return E.variance(score), d * sigma_q**2 * sigma_k**2


def _same_law(x: Array, y: Array) -> Any:
    return score(x, y)


@moment_theorem(
    "score-variance-with-means",
    TOPIC,
    (
        equals(var(DOT), D_K * (VAR_Q * VAR_K + VAR_Q * squared(MU_K) + VAR_K * squared(MU_Q))),
        "; for x and y of one law ",
        equals(
            var(Product((X_ROW, Y_ROW), "·")),
            D_K * (squared(squared(SIGMA) + squared(name("μ"))) - Power(name("μ"), node(4))),
        ),
    ),
    letters=_drawn(
        {"q": law_with("σ_q", "μ_q"), "k": law_with("σ_k", "μ_k"), "x": law_with("σ", "μ"), "y": law_with("σ", "μ")}
    ),
    arrays={**ROWS, **DEVIATIONS, "mu_q": "", "mu_k": "", "x": "1 d", "y": "1 d", "m": "", "s": ""},
    laws={
        "q": law_with("sigma_q", "mu_q"),
        "k": law_with("sigma_k", "mu_k"),
        "x": law_with("s", "m"),
        "y": law_with("s", "m"),
    },
    why="Within one coordinate the square of the mean of one factor meets the variance of the other.",
    false=lambda E, d, sigma_q, sigma_k: (E.variance(score), d * sigma_q**2 * sigma_k**2),
    false_says=same(var(DOT), D_K * VAR_Q * VAR_K),
)
def score_variance_with_means(
    E: Any, d: Array, sigma_q: Any, sigma_k: Any, mu_q: Any, mu_k: Any, m: Array, s: Array
) -> Any:
    return [
        (E.variance(score), d * (sigma_q**2 * sigma_k**2 + sigma_q**2 * mu_k**2 + sigma_k**2 * mu_q**2)),
        (E.variance(_same_law), d * ((s**2 + m**2) ** 2 - m**4)),
    ]


UNIT = Law((), lambda: (0, 1), lambda: [(-1, Fraction(1, 2)), (1, Fraction(1, 2))])


@moment_theorem(
    "scale-gives-unit-variance",
    TOPIC,
    same(var(Over(DOT, Root(D_K))), 1),
    letters=_drawn({"q": UNIT, "k": UNIT}),
    arrays=ROWS,
    laws={"q": UNIT, "k": UNIT},
    source=VASWANI,
    why="The variance of the unscaled score is d_k, and scaling by c multiplies it by c².",
    false=lambda E, d: (E.variance(lambda q, k: score(q, k) / d), 1),
    false_says=same(var(Over(DOT, D_K)), 1),
)
def scale_gives_unit_variance(E: Any) -> Any:
    return E.variance(lambda q, k: scale_by_root(dot_scores(q, k), q)[0, 0]), 1


# The values −a, 0 and a have any variance and fourth moment of a law whose squares are not constant. No third moment
# is assumed.
THREE_VALUES = Law(
    ("a", "b"),
    lambda a, b: (0, a**2 / (1 + b), None, a**4 / (1 + b) - 3 * (a**2 / (1 + b)) ** 2),
    lambda a, b: [(-a, 1 / (2 + 2 * b)), (0 * a, b / (1 + b)), (a, 1 / (2 + 2 * b))],
)
S_1, S_2 = name("s", 1, role="score"), name("s", 2, role="score")


def _first(q: Array, k_1: Any) -> Any:
    return score(q, k_1)


def _second(q: Array, k_2: Any) -> Any:
    return score(q, k_2)


def _pair(E: Any, power: int) -> Any:
    """Cov(s₁^power, s₂^power)."""
    both = E(lambda q, k_1, k_2: _first(q, k_1) ** power * _second(q, k_2) ** power)
    return both - E(lambda q, k_1: _first(q, k_1) ** power) * E(lambda q, k_2: _second(q, k_2) ** power)


@moment_theorem(
    "row-scores-uncorrelated-not-independent",
    TOPIC,
    (
        equals(cov(S_1, S_2), 0),
        ", but ",
        equals(
            cov(squared(S_1), squared(S_2)),
            D_K
            * (mean(Power(name("q", "i", role="query"), node(4))) - Power(name("σ", "q"), node(4)))
            * Power(name("σ", "k"), node(4)),
        ),
    ),
    letters=_drawn(
        {"q": THREE_VALUES, "k₁": law_with("σ_k"), "k₂": law_with("σ_k")},
        defined={
            "s₁": Definition((), Product((SMALL_Q, name("k", 1)), "·")),
            "s₂": Definition((), Product((SMALL_Q, name("k", 2)), "·")),
            "σ_q": Definition((), Root(squared(name("a")) / (1 + name("b")))),
        },
        positive=("a", "b"),
        index={"i": "d_k"},
    ),
    arrays={"q": "1 d", "k_1": "1 d", "k_2": "1 d", "a": "", "b": "", "sigma_k": ""},
    laws={"q": THREE_VALUES, "k_1": law_with("sigma_k"), "k_2": law_with("sigma_k")},
    positive=("a", "b"),
    hypotheses=(
        "all entries of the query and of the two keys are independent with mean 0, the keys' of one law",
        "the query's entries have the variance a²/(1 + b) and the fourth moment a⁴/(1 + b) with a, b > 0, as every law"
        " has whose squares are not constant",
    ),
    why="Given q, both scores have the variance σ_k²‖q‖²; that common factor is random, unless q² is constant.",
    false=lambda E: (_pair(E, 2), 0),
    false_says="the scores of one row are independent",
)
def row_scores(E: Any, d: Array, a: Array, b: Array, sigma_k: Any) -> Any:
    variance, fourth = a**2 / (1 + b), a**4 / (1 + b)
    return [(_pair(E, 1), 0), (_pair(E, 2), d * (fourth - variance**2) * sigma_k**4)]


EXCESS = equals(mean(Power(DOT, node(4))) / squared(var(DOT)) - 3, node(6) / D_K)


@moment_theorem(
    "score-kurtosis",
    TOPIC,
    (equals(mean(Power(DOT, node(4))), 3 * D_K * (D_K + 2)), "; so the excess kurtosis is ", EXCESS),
    letters=_drawn({"q": NORMAL, "k": NORMAL}),
    arrays=ROWS,
    laws={"q": NORMAL, "k": NORMAL},
    why="E[x⁴] = 3, so a coordinate that coincides with itself counts 9 and two pairs of coordinates count 1.",
    false=lambda E, d: (E(lambda q, k: score(q, k) ** 4), 3 * d * d),
    false_says=(equals(mean(Power(DOT, node(4))), 3 * squared(D_K)), ", as of a normal law"),
)
def score_kurtosis(E: Any, d: Array) -> Any:
    fourth = E(lambda q, k: score(q, k) ** 4)
    return [(fourth, 3 * d * (d + 2)), (fourth / E.variance(score) ** 2 - 3, 6 / (d * (fourth * 0 + 1)))]


PROJECTED = Product((X_ROW * name("W", "Q", role="query"), Fence("round", Y_ROW * name("W", "K", role="key"))), "·")


def _projected(x: Array, y: Array, w_q: Array, w_k: Array) -> Any:
    return score(x @ w_q, y @ w_k)


@moment_theorem(
    "projected-score-variance",
    TOPIC,
    same(var(PROJECTED), D_K * Power(SIGMA, node(4)) * squared(Fence("norm", X_ROW)) * squared(Fence("norm", Y_ROW))),
    letters=Glossary(
        {"x": "m", "y": "m", "W_Q": "m d_k", "W_K": "m d_k", "σ": ""},
        laws={"W_Q": law_with("σ"), "W_K": law_with("σ")},
        rows=True,
    ),
    arrays={"x": "1 m", "y": "1 m", "w_q": "m d", "w_k": "m d", "sigma": ""},
    laws={"w_q": law_with("sigma"), "w_k": law_with("sigma")},
    hypotheses=("x and y are fixed",),
    why=told("Each product of two weights occurs once, with its own factor {}.", name("x", "i") * name("y", "l")),
    false=lambda E, x, y, d, sigma: (
        E.variance(lambda w_q: _projected(x, y, w_q, w_q)),
        d * sigma**4 * score(x, x) * score(y, y),
    ),
    false_says=("the same with ", equals(name("W", "Q", role="query"), name("W", "K", role="key"))),
)
def projected_score_variance(E: Any, x: Array, y: Array, d: Array, sigma: Any) -> Any:
    return E.variance(lambda w_q, w_k: _projected(x, y, w_q, w_k)), d * sigma**4 * score(x, x) * score(y, y)


# -- output-variance-participation -----------------------------------------------------------------------------------
P_J, V_J = name("p", J_, role="weight"), name("v", J_, role="value")
MIXED = over_keys(P_J * V_J)
WEIGHTS = {"t": "m", "v": "m", "sigma": "", "mu": ""}
DRAWN = {"v": law_with("sigma", "mu")}


def _total(x: Array) -> Array:
    return x.__array_namespace__().sum(x, axis=-1)


def _mixed(t: Array, v: Array) -> Array:
    """Σ p v of the weights p of scores t."""
    return _total(soft(t, stabilised=False) * v)


def _spread(t: Array, sigma: Any) -> Any:
    """σ² Σ p² of the weights p of scores t."""
    p = soft(t, stabilised=False)
    return sigma**2 * _total(p * p)


def _pairs_of_others(t: Array, m: Array, sigma: Any) -> Any:
    """σ² Σ_{j ≠ l} p_j p_l."""
    xp, p = t.__array_namespace__(), soft(t, stabilised=False)
    other = xp.astype(xp.arange(m)[:, None] != xp.arange(m)[None, :], p.dtype)
    return sigma**2 * _total(_total(p[:, None] * p[None, :] * other))


output_variance_participation = Theorem(
    "output-variance-participation",
    TOPIC,
    (
        equals(var(MIXED), squared(SIGMA) * over_keys(squared(P_J))),
        ", of which ",
        relation(squared(SIGMA) / N_K, "≤", squared(SIGMA) * over_keys(squared(P_J))),
        " and ",
        relation(squared(SIGMA) * over_keys(squared(P_J)), "≤", squared(SIGMA)),
    ),
    Together(
        (
            identity(
                WEIGHTS,
                averaged(
                    lambda E, t, sigma: (E.variance(lambda v: _total(soft(t, False) * v)), _spread(t, sigma)), DRAWN
                ),
                averaged(lambda E, t, sigma: (E.variance(lambda v: _mixed(t, v)), sigma**2), DRAWN),
                top=2,
            ),
            bound(
                WEIGHTS,
                lambda t, m, sigma: (sigma**2 / m, _spread(t, sigma)),
                lambda t, m, sigma: sigma**2 * _total((soft(t, False) * m - 1) ** 2) / (m * m),
            ),
            bound(WEIGHTS, lambda t, sigma: (_spread(t, sigma), sigma**2), _pairs_of_others),
        )
    ),
    "folklore",
    same(var(MIXED), squared(SIGMA)),
    ("The values' variances add up with the squares of the weights, which lie between those of equal weights and 1.",),
    (("the weights p are fixed, positive, and sum to 1",),),
    Glossary(
        {"t": "n_k", "v": "n_k", "σ": "", "μ": ""},
        index={"j": "n_k"},
        defined={"p": lambda reader: soft(reader.array("t"), stabilised=False)},
        laws={"v": law_with("σ", "μ")},
        sharp="attained far",
    ),
)


# -- unscaled-mean-gradient-decays-slowly ----------------------------------------------------------------------------
GAP = {"x": "", "h": ""}


def _slope(x: Array) -> Array:
    """p₁p₂ for the gap x of two scores."""
    e = x.__array_namespace__().exp(x)
    return e / ((1 + e) * (1 + e))


def _logistic(x: Array) -> Array:
    e = x.__array_namespace__().exp(x)
    return e / (1 + e)


def _power(x: Array, h: Any) -> Any:
    """x² / (4τ²) for h = 1 / (2τ)."""
    return (h * x) * (h * x)


def _bell(x: Array, h: Any) -> Array:
    return x.__array_namespace__().exp(-_power(x, h))


def _falling(x: Array) -> Array:
    """−(x² + 2x + 2) e^{−x}, whose derivative is x² e^{−x}."""
    return -(x * x + 2 * x + 2) * x.__array_namespace__().exp(-x)


def _below(x: Array) -> Array:
    """e^{−x} − p₁p₂."""
    e = x.__array_namespace__().exp(x)
    return (1 + 2 * e) / (e * (1 + e) * (1 + e))


def _median_misses_half(xp: Functions) -> Array:
    """1/2 − P(|Δ| ≤ 0.95 τ) for Δ ∼ N(0, 2τ²)."""
    return Fraction(1, 2) - xp.erf(xp.asarray(Fraction(19, 40)))


def _mean_is_as_small_as_the_median(_: Any) -> Any:
    """e^{−0.95 τ} less a part of E[p₁p₂], that of |Δ| ≤ 20, at τ = 8."""
    import flint

    def inside(x: Any, _: Any) -> Any:
        e = x.exp()
        return e / (1 + e) ** 2 * (-(x * x) / 256).exp()

    part = flint.acb.integral(inside, -20, 20).real / (2 * flint.arb.pi().sqrt() * 8)
    return (-flint.arb(38) / 5).exp() - part


DELTA = name("Δ")
PRODUCT_OF_TWO = name("p", 1, role="weight") * name("p", 2, role="weight")
slow_mean_gradient = Theorem(
    "unscaled-mean-gradient-decays-slowly",
    TOPIC,
    (
        relation(mean(PRODUCT_OF_TWO), "≤", 1 / (2 * Root(name("π")) * TAU)),
        ", and at least ",
        1 - 1 / squared(TAU),
        " times that, so the ratio of both sides tends to 1 as ",
        relation(TAU, "→", name("∞")),
        "; but the median of ",
        PRODUCT_OF_TWO,
        " is at most ",
        power_of_e(-(Fraction(19, 20) * TAU)),
    ),
    Together(
        (
            EnclosedOverBox(_median_misses_half, {}, _mean_is_as_small_as_the_median),
            identity(GAP, lambda x: (gradient(_logistic, "x", x=x), _slope(x))),
            bound(
                GAP,
                lambda x, h: (_slope(x) * _bell(x, h), _slope(x)),
                lambda x, h: _slope(x) * _bell(x, h) * (x.__array_namespace__().exp(_power(x, h)) - 1),
            ),
            bound(
                GAP,
                lambda x, h: (_slope(x) * (1 - _power(x, h)), _slope(x) * _bell(x, h)),
                lambda x, h: _slope(x) * (_bell(x, h) - 1 + _power(x, h)),
            ),
            bound(GAP, lambda x: (_slope(x), x.__array_namespace__().exp(-x)), _below),
            identity(GAP, lambda x: (gradient(_falling, "x", x=x), x * x * x.__array_namespace__().exp(-x))),
        ),
        told(
            "The gap {} of the scores is N(0, 2τ²), and {} is the derivative of its logistic function, which grows "
            "from 0 to 1, so the integral is 1. Times the greatest density {}, the first inequality gives the bound, "
            "and the second the lower bound {} of the ratio, with {}. By the third, {} for the gap in either order, so "
            "c is at most 4, twice the integral of {} from 0 on, which the last equation gives. And {} with a "
            "probability over 1/2.",
            DELTA,
            PRODUCT_OF_TWO,
            1 / (2 * Root(name("π")) * TAU),
            1 - name("c") / (4 * squared(TAU)),
            equals(name("c"), name("∫") * squared(DELTA) * PRODUCT_OF_TWO),
            relation(PRODUCT_OF_TWO, "≤", power_of_e(-Fence("abs", DELTA))),
            squared(name("x")) * power_of_e(-name("x")),
            relation(Fence("abs", DELTA), ">", Fraction(19, 20) * TAU),
        ),
    ),
    "folklore",
    ("the mean of ", PRODUCT_OF_TWO, " is as small as its median, ", power_of_e(-(Fraction(19, 20) * TAU))),
    ("The mean is carried by the few rows whose two scores are close, and those become rare only as 1/τ.",),
    ((name("s", 1, role="score"), " and ", name("s", 2, role="score"), " are independent and N(0, τ²)"),),
)

THEOREMS = (
    score_variance,
    score_variance_with_means,
    scale_gives_unit_variance,
    row_scores,
    score_kurtosis,
    projected_score_variance,
    output_variance_participation,
    slow_mean_gradient,
)
