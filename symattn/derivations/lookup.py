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
    Step,
    Table,
)
from symattn.document.notation import Big, Decimal, Fence, Name, Node, Relation, equals, name, relation
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.judging import relations
from symattn.proof.relations.reader import Reader
from symattn.proof.relations.section import Section
from symattn.proof.relations.values import Value
from symattn.theorems import softmax_bounds as theorems

BETA, R, T, W = Name("β"), Name("R"), Name("t"), Name("w")
_BEST, _U, _LEAST = name("p", "max", role="weight"), name("u", "ℓ"), name("u", "min")
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
        hints=("symattn derive shift             only differences count", "symattn derive jacobian"),
    )


def _weights(reader: Reader) -> Any:
    """The weights of t keys with the largest score and of others that are lower by u, all times β."""
    arrays, xp = reader.arrays, reader.xp
    ties = xp.zeros((reader.length("t"),)) + arrays["β"] * arrays["top"]
    return softmax(xp.concat([ties, arrays["β"] * (arrays["top"] - arrays["u"])], axis=0), stabilised=False)


def _output(reader: Reader) -> Any:
    values = reader.xp.concat([reader.arrays["Y"], reader.arrays["V"]], axis=0)
    return (_weights(reader)[None, :] @ values)[0, :]


def _ties() -> Section:
    """t keys with the largest score and values y_τ, r others below them by u > 0 with values v_ℓ, and the output."""
    given = {"Y": "t d_v", "V": "r d_v", "u": "r", "β": "", "top": ""}
    defined: dict[str, Any] = {
        "p_max": lambda reader: Value(_weights(reader)[: reader.length("t")], ("τ",)),
        "p": lambda reader: _weights(reader)[reader.length("t") :],
        "o": _output,
    }
    index, sizes = {"ℓ": "r", "l": "r", "τ": "t"}, {"n_k": "t+r", "t": "t"}
    return Section(Glossary(given, sizes, index, defined, positive=("u", "β"), rows=True))


def _far() -> Section:
    """The others are below the largest score by u = u_min + d, and no d is negative."""

    def u(reader: Reader) -> Any:
        return reader.arrays["u_min"] + reader.arrays["d"]

    given, sizes = {"tie": "t", "d": "r", "β": "", "u_min": ""}, {"n_k": "t+r", "t": "t"}
    section = Section(Glossary(given, sizes, {"ℓ": "r"}, {"u": u}, positive=("β", "u_min"), nonnegative=("d",)))
    section.let((equals(R, _others(E ** (-(BETA * _U)))),))
    return section


def _band(sign: int) -> Section:
    """The weight p_j of a key of score s, all others having s + sign · (w − u), with no u negative."""

    def weights(reader: Reader) -> Any:
        s, w, u = (reader.arrays[x] for x in ("s", "w", "u"))
        return softmax(reader.xp.concat([s[None], s + sign * (w - u)], axis=0), stabilised=False)

    given, sizes = {"s": "", "w": "", "u": "r"}, {"n_k": "1+r"}
    glossary = Glossary(given, sizes, {"ℓ": "r"}, {"p": weights}, places={"j": 0}, nonnegative=("w", "u"))
    return Section(glossary)


def _others(body: Node, letter: str = "ℓ") -> Node:
    return Big("sum", Name(letter), None, None, body)


def _blocks() -> tuple[Block, ...]:
    limits, ties = known(theorems.softmax_limits), _ties()
    shares = Section(Glossary({"s": "n_k", "β": ""}, index={"j": "n_k"}))
    shares.let((equals(p(), nt.call("softmax", BETA * s())),))
    share, sharp = nt.Call(name("softmax", "j"), (BETA * s(),)), relation(BETA, "→", Name("∞"))
    form, flat = 1 / Fence("round", T + _others(E ** (-(BETA * _U)))), relation(BETA, "→", 0)
    largest, even = (
        ties.tends(relation(_BEST, "→", 1 / T), sharp, form),
        shares.tends(relation(p("j"), "→", 1 / N_K), flat, share),
    )
    rows = tuple(nt.Row((step.formula, nt.Words("as"), when)) for step, when in ((largest, sharp), (even, flat)))
    evidence = tuple(dict.fromkeys(step.evidence for step in (largest, even) if step.evidence))
    return (
        _assumptions(),
        *_best(ties),
        Result("Result", rows, evidence),
        limits.wrong(),
        Heading(("What is looked up",)),
        together(
            *_looked_up(ties),
            shares.claim(equals(nt.Call(name("softmax", "j"), (0 * s(),)), 1 / N_K), "all keys alike"),
        ),
        Paragraph(("The value of one best key is looked up, those of tied ones are averaged.",)),
        *_spread(),
        *_example(),
        Caveat(
            (
                "The limit is for scores that stay in place while β grows. In floating point, scores that round to one",
                " number are ties.",
            )
        ),
    )


def _best(ties: Section) -> tuple[Block, ...]:
    """The weight of the best keys, and of what is left."""
    far, sum_ = _far(), _others(E ** (-(BETA * _U)))
    most, lost = (N_K - T) * E ** (-(BETA * _LEAST)), 1 - T * _BEST
    above = _others(E ** -(BETA * _U) * Fence("round", E ** (BETA * name("d", "ℓ")) - 1))
    return (
        Heading(("The weight of the best keys",)),
        together(
            ties.define(equals(R, sum_), "over all other keys"),
            ties.claim(equals(_BEST, 1 / (T + R)), "each tied key has the same weight"),
            ties.claim(
                Relation(lost, (("=", R / (T + R)), ("≤", R / T))),
                "what is left for the others",
                gaps={R / T: R**2 / ((T + R) * T)},
            ),
            far.claim(relation(R, "≤", most), (_LEAST, " is the least of the ", _U), gaps={R: above}),
            ties.tends(relation(lost, "→", 0), relation(BETA, "→", Name("∞")), sum_ / Fence("round", T + sum_)),
        ),
    )


def _looked_up(ties: Section) -> tuple[Step, ...]:
    """The output less the mean value of the tied keys, and its limit."""
    output, mean, tied = name("o", role="output"), Name("v̄", role="value"), name("y", "τ", role="value")
    away = Fence("round", name("v", "ℓ", role="value") - mean)
    total_ = Fence("round", T + _others(E ** (-(BETA * name("u", "l"))), "l"))
    said = ("over the other keys, with ", equals(mean, _others(tied, "τ") / T), ", the mean value of the tied ones")
    return (
        ties.claim(equals(output - mean, _others(p("ℓ") * away)), said),
        ties.tends(relation(output - mean, "→", 0), relation(BETA, "→", Name("∞")),
                   _others(E ** (-(BETA * _U)) * away / total_)),
    )  # fmt: skip


def _spread() -> tuple[Block, ...]:
    """Bounds of the weights of scores that lie within a band."""
    dispersion, low, high = known(theorems.softmax_dispersion), _band(1), _band(-1)
    width, others = E**W, Fence("round", N_K - 1)
    least, most = 1 / (1 + others * width), width / (width + N_K - 1)
    below = _others(E ** (W - _U) * Fence("round", E**_U - 1)) / (
        Fence("round", 1 + _others(E ** (W - _U))) * Fence("round", 1 + others * width)
    )
    above = _others(E**_U * E ** (-_U) * Fence("round", E**_U - 1)) / (
        Fence("round", 1 + _others(E ** (_U - W))) * Fence("round", width + N_K - 1)
    )
    entropy = [r for f in dispersion.statement[0] for r in relations(f)][-1]
    return (
        Heading(("No lookup without large scores",)),
        Paragraph(
            (
                "Scores within a band of width ", W, " cannot single out one of many keys: the more there are, the",
                " smaller is every weight.",
            )
        ),
        together(
            low.claim(relation(least, "≤", p("j")), ("none is more than ", W, " above"), gaps={p("j"): below}),
            high.claim(relation(p("j"), "≤", most), ("nor more than ", W, " below"), gaps={p("j"): above}),
            dispersion.step(entropy, ("the entropy, the mean of ", -nt.call("log", p("j")), "; by the step before")),
        ),
        dispersion.wrong(),
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
        group = (equals("s", nt.Fence("round", nt.commas(*scores))),)
        columns += [Column((p(j),), group=group) for j in range(1, len(scores) + 1)]
    rows = tuple(((nt.node(beta),), *_row(beta)) for beta in _SHARPNESS)
    said = ": with a tie for the largest score, and without. Exact, then correctly rounded."
    caption = ("The weights ", nt.call("softmax", BETA * s()), said)
    return Heading(("In numbers",)), Table(tuple(columns), rows, caption=caption)


def _row(beta: int) -> list[tuple[Node, ...]]:
    found: list[tuple[Node, ...]] = []
    for scores in _SCORES:
        weights = softmax(exact([beta * x for x in scores])).tolist()
        if sum(weights[1:], weights[0]) != 1:
            raise FalseStep("the weights of the example do not sum to 1")
        found += [(Decimal(w.decimal(3)),) for w in weights]
    return found
