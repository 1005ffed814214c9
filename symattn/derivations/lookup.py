"""``lookup``: sharper and sharper attention looks up the value of the best key, or the mean of the best ones."""

from __future__ import annotations

from typing import Any

from symattn.attention.notation import N_K
from symattn.attention.softmax import softmax
from symattn.derivations.exactly import exact
from symattn.derivations.letters import E, p, s
from symattn.derivations.proving import known, shown
from symattn.derivations.steps import FalseStep, defined, together
from symattn.document import notation as nt
from symattn.document.model import (
    Assumption,
    Assumptions,
    Block,
    Caveat,
    Column,
    Document,
    Heading,
    Paragraph,
    Result,
    Table,
)
from symattn.document.notation import Big, Decimal, Name, Node, Relation, equals, name, relation, total
from symattn.proof.theorem import Method
from symattn.proof.together import bound, identity
from symattn.theorems import softmax_bounds as theorems
from symattn.theorems.sums import add_up, exp

BETA, R, T = Name("β"), Name("R"), Name("t")
_TIES = {"tie": "t", "u": "r", "beta": "", "top": ""}
_FAR = {"d": "r", "beta": "", "delta": ""}
_VALUES = {"top": "", "s": "r", "v": "t d", "w": "r d"}
_SCORES = ((2, 2, 1), (3, 1, 0))
_SHARPNESS = (0, 1, 4, 16, 64)


def derivation() -> Document:
    """softmax(βs) tends to equal shares of the largest scores as β → ∞, and to equal shares of all as β → 0."""
    return Document(
        "derivation",
        "lookup",
        ("Attention as a lookup",),
        _blocks(),
        subtitle=("the limit of sharp scores, ties included",),
        command="symattn derive lookup",
        hints=("symattn derive shift             only differences count", "symattn derive jacobian"),
    )


def tied(tie: Any, u: Any, beta: Any, top: Any) -> Any:
    """The weights of the tied keys, for β times the scores ``top`` and ``top`` − u."""
    xp = tie.__array_namespace__()
    every = softmax(xp.concat([beta * (top + 0 * tie), beta * (top - u)], axis=-1), stabilised=False)
    return every[: tie.shape[0]]


def rest(u: Any, beta: Any) -> Any:
    """R = Σ e^{−βu_ℓ}."""
    return add_up(exp(-(beta * u)))


def share() -> Method:
    """w = 1/(t + R) for each tied key."""
    return identity(_TIES, lambda tie, u, beta, top, t: (tied(tie, u, beta, top) * (0 * tie + t + rest(u, beta)), 1))


def miss() -> Method:
    """0 ≤ 1 − t w ≤ R/t, as 1 − t w = R/(t + R)."""

    def sides(tie: Any, u: Any, beta: Any, top: Any, t: Any) -> Any:
        lost = 1 - t * tied(tie, u, beta, top)
        return [(0 * lost, lost), (lost, (rest(u, beta) + 0 * tie) / (0 * tie + t))]

    def gap(tie: Any, u: Any, beta: Any, t: Any) -> Any:
        r = rest(u, beta) + 0 * tie
        return [r / (r + t), r * r / ((r + t) * t)]

    return bound(_TIES, sides, gap, positive=("u", "beta"))


def decay() -> Method:
    """R ≤ r e^{−βδ} where u_ℓ = δ + d_ℓ with no d_ℓ negative."""

    def sides(d: Any, beta: Any, delta: Any, r: Any) -> Any:
        return rest(delta + d, beta), r * exp(-(beta * delta))

    def gap(beta: Any, delta: Any, w: Any) -> Any:
        return add_up(exp(-(beta * (delta + w))) * (exp(beta * w) - 1))

    chosen = {"d": lambda d: d * d}
    return bound(_FAR, sides, gap, positive=("beta", "delta"), assumed={"w": ("r", lambda d: d)}, chosen=chosen)


def uniform() -> Method:
    """softmax(0 s) = (1/n, …, 1/n)."""
    return identity({"s": "n"}, lambda s, n: (n * softmax(0 * s), 0 * s + 1))


def distance() -> Method:
    """o − v̄ = Σ_ℓ p_ℓ (v_ℓ − v̄) over the keys that are not tied, for the mean v̄ of the values of the tied ones."""

    def sides(top: Any, s: Any, v: Any, w: Any) -> Any:
        xp = s.__array_namespace__()
        weights = softmax(xp.concat([top + 0 * v.sum(axis=-1), s]))[None, :]
        mean = v.mean(axis=0, keepdims=True)
        return weights @ xp.concat([v, w], axis=-2) - mean, weights[:, v.shape[0] :] @ (w - mean)

    return identity(_VALUES, sides)


def _blocks() -> tuple[Block, ...]:
    limits, dispersion = known(theorems.softmax_limits), known(theorems.softmax_dispersion)
    w, infinity = name("p", "max", role="weight"), Name("∞")
    lost, sum_ = 1 - T * w, Big("sum", Name("ℓ"), None, None, E ** (-(BETA * name("u", "ℓ"))))
    output, mean = name("o", role="output"), Name("v̄", role="value")
    others = Big("sum", Name("ℓ"), None, None, p("ℓ") * nt.Fence("round", name("v", "ℓ", role="value") - mean))
    tied_mean = total("j", 1, T, name("v", "j", role="value")) / T
    shares = nt.Fence("round", nt.commas(1 / N_K, "…", 1 / N_K))
    limit = Result(
        "Result",
        (
            nt.Row((Relation(w, (("→", 1 / T),)), nt.Words("as"), relation(BETA, "→", infinity))),
            nt.Row((Relation(p("j"), (("→", 1 / N_K),)), nt.Words("as"), relation(BETA, "→", 0))),
        ),
        (limits.evidence,),
    )
    return (
        _assumptions(),
        Heading(("The weight of the best keys",)),
        together(
            defined(equals(R, sum_), "over all other keys"),
            shown(equals(w, 1 / (T + R)), "each tied key has the same weight", share()),
            shown(Relation(lost, (("=", R / (T + R)), ("≤", R / T))), "what is left for the others", miss()),
            shown(relation(R, "≤", (N_K - T) * E ** (-(BETA * name("u", "min")))), "none is closer", decay()),
            limits.step(relation(lost, "→", 0), (relation(BETA, "→", infinity),)),
        ),
        limit,
        limits.wrong(),
        Heading(("What is looked up",)),
        together(
            shown(equals(output - mean, others), ("over the other keys; ", equals(mean, tied_mean)), distance()),
            shown(equals(nt.call("softmax", 0 * s()), shares), (equals(BETA, 0), ": all keys alike"), uniform()),
        ),
        Paragraph(
            (
                "The weights on the right sum to ", lost, ", so the output tends to ", mean,
                ": the value of one best key is looked up, those of tied ones are averaged.",
            )
        ),
        Heading(("No lookup without large scores",)),
        Paragraph(
            (
                "Scores within a band of width ", Name("w"),
                " cannot single out one of many keys: the more there are, the smaller is every weight.",
            )
        ),
        together(dispersion.step()),
        dispersion.wrong(),
        *_example(),
        Caveat(
            (
                "The limit is for scores that stay in place while β grows. In floating point, scores that round to one",
                " number are ties.",
            )
        ),
    )  # fmt: skip


def _assumptions() -> Assumptions:
    below = relation(name("u", "ℓ"), ">", 0)
    ties = (T, " keys have the largest score; the others, at least one, are below it by ", below, ".")
    weights = ("The weights are ", nt.call("softmax", BETA * s()), " with ", relation(BETA, ">", 0), ".")
    return Assumptions((Assumption("A1", ties), Assumption("A2", weights)))


def _example() -> tuple[Block, ...]:
    """Weights at growing β, with and without a tie: exact numbers, correctly rounded."""
    columns = [Column((BETA,))]
    for scores in _SCORES:
        group = ("s = ", nt.Fence("round", nt.commas(*scores)))
        columns += [Column((p(j),), group=group) for j in range(1, len(scores) + 1)]
    rows = tuple(((nt.node(beta),), *_row(beta)) for beta in _SHARPNESS)
    caption = (
        "The weights softmax(β s): with a tie for the largest score, and without. Exact, then correctly rounded.",
    )
    return Heading(("In numbers",)), Table(tuple(columns), rows, caption=caption)


def _row(beta: int) -> list[tuple[Node, ...]]:
    found: list[tuple[Node, ...]] = []
    for scores in _SCORES:
        weights = softmax(exact([beta * x for x in scores])).tolist()
        if sum(weights[1:], weights[0]) != 1:
            raise FalseStep("the weights of the example do not sum to 1")
        found += [(Decimal(w.decimal(3)),) for w in weights]
    return found
