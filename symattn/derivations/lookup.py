"""``lookup``: sharper and sharper attention looks up the value of the best key, or the mean of the best ones."""

from __future__ import annotations

from typing import Any

from symattn.attention.notation import N_K
from symattn.attention.softmax import softmax
from symattn.derivations.exactly import exact
from symattn.derivations.letters import E, p, s
from symattn.derivations.proving import known
from symattn.derivations.steps import FalseStep, together
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
from symattn.document.notation import Big, Decimal, Name, Node, Relation, equals, name, relation
from symattn.statement.glossary import Glossary
from symattn.statement.reader import Reader
from symattn.statement.section import Section
from symattn.statement.values import Value
from symattn.theorems import softmax_bounds as theorems

BETA, R, T = Name("β"), Name("R"), Name("t")
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


def _tied(reader: Reader) -> Value:
    """The weight of each tied key, for β times the scores of t keys and of others that are lower by u."""
    arrays, xp = reader.arrays, reader.xp
    top, beta = arrays["top"], arrays["β"]
    ties = xp.zeros((reader.length("t"),)) + beta * top
    weights = softmax(xp.concat([ties, beta * (top - arrays["u"])], axis=0), stabilised=False)
    return Value(weights[: reader.length("t")], ("τ",))


def _ties() -> Section:
    """t keys with the largest score, r others below them by u > 0."""
    given, sizes = {"tie": "t", "u": "r", "β": "", "top": ""}, {"n_k": "t+r", "t": "t"}
    positive = ("u", "β")
    return Section(Glossary(given, sizes, {"ℓ": "r"}, defined={"p_max": _tied}, positive=positive))


def _far() -> Section:
    """The others are below the largest score by u = u_min + d, and no d is negative."""

    def u(reader: Reader) -> Any:
        return reader.arrays["u_min"] + reader.arrays["d"]

    given, sizes = {"tie": "t", "d": "r", "β": "", "u_min": ""}, {"n_k": "t+r", "t": "t"}
    return Section(Glossary(given, sizes, {"ℓ": "r"}, {"u": u}, positive=("β", "u_min"), nonnegative=("d",)))


def _values() -> Section:
    """Weights and values of tied keys and of others, and the output."""

    def weights(reader: Reader) -> Any:
        tied = reader.xp.zeros((reader.length("t"),)) + reader.arrays["top"]
        return softmax(reader.xp.concat([tied, reader.arrays["s"]], axis=0))

    defined = {
        "o": lambda reader: (
            weights(reader)[None, :] @ reader.xp.concat([reader.arrays["held"], reader.arrays["V"]], axis=0)
        )[0, :],
        "v̄": lambda reader: reader.xp.mean(reader.arrays["held"], axis=0),
        "p": lambda reader: weights(reader)[reader.length("t") :],
    }
    given = {"top": "", "s": "r", "held": "t d_v", "V": "r d_v"}
    return Section(Glossary(given, {"t": "t"}, {"ℓ": "r"}, defined, rows=True))


def _blocks() -> tuple[Block, ...]:
    limits, dispersion = known(theorems.softmax_limits), known(theorems.softmax_dispersion)
    w, infinity = name("p", "max", role="weight"), Name("∞")
    lost, sum_ = 1 - T * w, Big("sum", Name("ℓ"), None, None, E ** (-(BETA * name("u", "ℓ"))))
    output, mean = name("o", role="output"), Name("v̄", role="value")
    others = Big("sum", Name("ℓ"), None, None, p("ℓ") * nt.Fence("round", name("v", "ℓ", role="value") - mean))
    least, u = name("u", "min"), name("u", "ℓ")
    most = (N_K - T) * E ** (-(BETA * least))
    above = Big("sum", Name("ℓ"), None, None, E ** -(BETA * u) * nt.Fence("round", E ** (BETA * name("d", "ℓ")) - 1))
    ties, far, values, shares = _ties(), _far(), _values(), Section(Glossary({"s": "n_k"}, index={"j": "n_k"}))
    far.let((equals(R, sum_),))
    share = nt.Call(name("softmax", "j"), (0 * s(),))
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
            ties.define(equals(R, sum_), "over all other keys"),
            ties.claim(equals(w, 1 / (T + R)), "each tied key has the same weight"),
            ties.claim(
                Relation(lost, (("=", R / (T + R)), ("≤", R / T))),
                "what is left for the others",
                gaps={R / T: R**2 / ((T + R) * T)},
            ),
            far.claim(relation(R, "≤", most), "none is closer", gaps={R: above}),
            limits.step(relation(lost, "→", 0), (relation(BETA, "→", infinity),)),
        ),
        limit,
        limits.wrong(),
        Heading(("What is looked up",)),
        together(
            values.claim(
                equals(output - mean, others),
                ("over the other keys; ", mean, " is the mean value of the tied ones"),
            ),
            shares.claim(equals(share, 1 / N_K), (equals(BETA, 0), ": all keys alike")),
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
