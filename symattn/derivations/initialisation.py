"""``initialisation``: how large queries, scores and outputs are when the projections are drawn at random."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from symattn.attention.notation import D_K, D_MODEL, N_K
from symattn.attention.softmax import softmax
from symattn.derivations.exactly import value
from symattn.derivations.letters import SIGMA, cov, dot, mean, q, s, var
from symattn.derivations.parameters import LIMITS, whole
from symattn.derivations.proving import known
from symattn.derivations.steps import together
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
    Table,
    Text,
)
from symattn.document.notation import Big, Decimal, Fence, Name, Node, Relation, Root, equals, name, total
from symattn.proof.expectation import law_with
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.section import Section
from symattn.theorems import scaling as theorems

_X, _Y = name("x", role="input"), name("y", role="input")
_W_Q, _W_K = name("W", "Q", role="query"), name("W", "K", role="key")
_NORM_X, _NORM_Y = Fence("norm", _X), Fence("norm", _Y)
_Z = name("z", role="input")
_GIVEN = {"x": "m", "y": "m", "z": "m", "W_Q": "m d_k", "W_K": "m d_k", "σ": ""}
_LAWS = {"W_Q": law_with("σ"), "W_K": law_with("σ")}
_LABELS = {"x": "A1", "y": "A1", "z": "A1", "W_Q": "A2", "W_K": "A2"}
_COMPONENT = nt.Product((SIGMA**2, _NORM_X**2))  # the variance of q_l
_SCORE = SIGMA**4 * _NORM_X**2 * _NORM_Y**2  # the variance of s/√d_k
_FIFTIETH = Fraction(1, 50)


def derivation(dk: int = 64, dmodel: int = 512) -> Document:
    """Var(q·k) = d_k σ⁴‖x‖²‖y‖² over random W_Q and W_K, and what it is for usual choices of σ."""
    whole("dk", dk, LIMITS["dk"])
    whole("dmodel", dmodel, LIMITS["dmodel"])
    return Document(
        "derivation",
        "initialisation",
        ("How large scores are at the start",),
        _blocks(dk, dmodel),
        subtitle=("the table is for ", equals(D_K, dk), ", ", equals(D_MODEL, dmodel)),
        parameters={"dk": dk, "dmodel": dmodel},
        hints=("symattn derive scaling           the score of random queries and keys",),
    )


def _section() -> Section:
    """Tokens, and projections of which every entry is drawn."""
    sizes, index = {"d_model": "m", "d_k": "d_k"}, {"i": "m", "l": "d_k", "r": "d_k"}
    return Section(Glossary(_GIVEN, sizes, index, laws=_LAWS, labels=_LABELS, rows=True))


def _mixed() -> tuple[Section, Section]:
    """Fixed weights, those of scores t, of values that are drawn with any mean; and the weights alone."""
    index, weights = {"j": "n_k", "l": "n_k"}, {"p": lambda reader: softmax(reader.arrays["t"], stabilised=False)}
    drawn = Glossary({"t": "n_k", "v": "n_k", "σ": "", "μ": ""}, index=index, defined=weights)
    fixed = replace(drawn, given={"t": "n_k", "σ": ""})
    return Section(replace(drawn, laws={"v": law_with("σ", "μ")})), Section(fixed)


def _assumptions() -> Assumptions:
    fixed: Text = ("The tokens ", _X, ", ", _Y, " and ", _Z, " are fixed.")
    law: Text = (
        "All entries of ", _W_Q, " and ", _W_K, " are independent, with mean 0 and variance ", SIGMA**2,
    )  # fmt: skip
    return Assumptions((Assumption("A1", fixed), Assumption("A2", (*law, "."), ("any law",))))


def _blocks(dk: int, dmodel: int) -> tuple[Block, ...]:
    section = _section()
    return (
        _assumptions(),
        *_component(section),
        *_score(section),
        *_output(),
        Heading(("In numbers",)),
        Paragraph(
            (
                "After a normalisation of the tokens, ", equals(_NORM_X, _NORM_Y, Root(D_MODEL)),
                ". The standard deviation of a component of the query, and that of the scaled score, are then:",
            )
        ),
        _table(dk, dmodel),
        Caveat(
            (
                "A2 is about the start of training, not about trained projections. The mean is over the draw of the",
                " weights: within one network all tokens share one draw, and their scores are not independent.",
            )
        ),
    )  # fmt: skip


def _component(section: Section) -> tuple[Block, ...]:
    entry = Fence("round", _W_Q, nt.Product((Name("i"), Name("l"))))
    other = nt.Product((name("δ", "l", "r"), *_COMPONENT.factors))
    return (
        Heading(("One component of a query",)),
        together(
            section.define(equals(q("l"), total("i", 1, D_MODEL, name("x", "i", role="input") * entry))),
            section.claim(equals(mean(q("l")), 0), "the weights have no mean"),
            section.claim(equals(var(q("l")), _COMPONENT), "the variances of the terms add up"),
            section.claim(equals(cov(q("l"), q("r")), other), "other columns are independent"),
        ),
    )


def _score(section: Section) -> tuple[Block, ...]:
    variance = known(theorems.projected_score_variance)
    query, key, other = (Fence("round", x * w) for x, w in ((_X, _W_Q), (_Y, _W_K), (_Z, _W_K)))
    score, beside = dot(query, key), dot(query, other)
    formula = equals(var(s()), D_K * SIGMA**4 * _NORM_X**2 * _NORM_Y**2)
    return (
        Heading(("The score",)),
        together(
            section.define(equals(s(), score), ("of the query of ", _X, " and the key of ", _Y)),
            section.claim(equals(mean(s()), 0), "nor do their products"),
            section.claim(formula, "each product of two weights occurs once"),
            section.claim(equals(var(s() / Root(D_K)), _SCORE), (Root(D_K), " removes the factor")),
            section.claim(
                equals(cov(s(), beside), D_K * SIGMA**4 * _NORM_X**2 * dot(_Y, _Z)),
                ("two keys, of the tokens ", _Y, " and ", _Z),
            ),
            section.claim(equals(s() - beside, dot(query, Fence("round", Fence("round", _Y - _Z) * _W_K))),
                          "what softmax sees of them"),
        ),
        section.result("Result", formula),
        variance.wrong(),
    )  # fmt: skip


def _output() -> tuple[Block, ...]:
    drawn, fixed = _mixed()
    weight, value = name("p", "j", role="weight"), name("v", "j", role="value")
    squares, apart = total("j", 1, N_K, weight**2), Fence("round", N_K * weight - 1)
    spread, least = SIGMA**2 * squares, SIGMA**2 / N_K
    pairs = total("j", 1, N_K, Big("sum", nt.relation("l", "≠", "j"), None, None, weight * name("p", "l")))
    gaps = {least: SIGMA**2 * total("j", 1, N_K, apart**2) / N_K**2, SIGMA**2: SIGMA**2 * pairs}
    return (
        Heading(("The output",)),
        Paragraph(
            (
                "The weights ", weight, " are fixed, positive, and sum to 1; the values ", value,
                " are independent, with one mean and the variance ", SIGMA**2, ":",
            )
        ),
        together(
            drawn.claim(equals(var(total("j", 1, N_K, weight * value)), spread), "variances add up"),
            fixed.claim(
                Relation(least, (("≤", spread), ("≤", SIGMA**2))), "of equal weights, and of one key alone", gaps=gaps
            ),
        ),
        known(theorems.output_variance_participation).wrong(),
    )  # fmt: skip


def _choices() -> tuple[tuple[str, Node], ...]:
    """Usual choices: a name, and σ as it is written."""
    return (
        ("unit queries", 1 / Root(D_MODEL)),
        ("Glorot", Root(nt.Over(nt.node(2), D_MODEL + D_K))),
        ("fixed", nt.Number(_FIFTIETH)),
    )


def _table(dk: int, dmodel: int) -> Table:
    columns = (
        Column(("choice",), "left"),
        Column((SIGMA,)),
        Column(("value of ", SIGMA)),
        Column(("deviation of ", q("l"))),
        Column(("deviation of ", s() / Root(D_K))),
    )
    numbers = {"d_k": dk, "d_model": dmodel}
    rows: tuple[tuple[Text, ...], ...] = tuple(
        ((words,), (symbol,), *((_digits(Root(x), symbol, numbers),) for x in (SIGMA**2, _COMPONENT, _SCORE)))
        for words, symbol in _choices()
    )
    caption = ("By the formulas above, correctly rounded. Glorot's law is that of one matrix of these sizes.",)
    return Table(columns, rows, caption=caption)


def _digits(formula: Node, deviation: Node, numbers: dict[str, int]) -> Decimal:
    """A formula above, for σ as it is written and tokens of the length √d_model."""
    letters: dict[Node, Node] = {SIGMA: Fence("round", deviation), **dict.fromkeys((_NORM_X, _NORM_Y), Root(D_MODEL))}
    return Decimal(value(nt.replaced(formula, letters), numbers).decimal(4))
