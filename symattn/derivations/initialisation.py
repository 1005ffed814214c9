"""``initialisation``: how large queries, scores and outputs are when the projections are drawn at random."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from symattn.arrays.field.quotient import Quotient
from symattn.attention.notation import D_K, D_MODEL
from symattn.attention.scores import scale_by_root
from symattn.derivations.letters import SIGMA, cov, dot, k, mean, q, s, var
from symattn.derivations.parameters import LIMITS, whole
from symattn.derivations.proving import known, shown
from symattn.derivations.steps import defined, together
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
from symattn.document.notation import Decimal, Fence, Node, Root, equals, name, total
from symattn.proof.expectation import averaged, law_with
from symattn.proof.statement import Sides
from symattn.proof.theorem import Method
from symattn.proof.together import identity
from symattn.theorems import scaling as theorems

_X, _Y = name("x", role="input"), name("y", role="input")
_W_Q, _W_K = name("W", "Q", role="query"), name("W", "K", role="key")
_NORM_X, _NORM_Y = Fence("norm", _X), Fence("norm", _Y)
_ARRAYS = {"x": "1 m", "y": "1 m", "z": "1 m", "w_q": "m d", "w_k": "m d", "s": ""}
_LAWS = {"w_q": law_with("s"), "w_k": law_with("s")}
_ONE = {"x": "m", "w": "m", "u": "m", "s": ""}
_ONE_LAWS = {"w": law_with("s"), "u": law_with("s")}
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
        command=f"symattn derive initialisation --dk {dk} --dmodel {dmodel}",
        parameters={"dk": dk, "dmodel": dmodel},
        hints=("symattn derive scaling           the score of random queries and keys",),
    )


def _drawn(sides: Sides) -> Method:
    """An identity between expectations over W_Q and W_K."""
    return identity(_ARRAYS, averaged(sides, _LAWS), top=2)


def _component(x: Any, w: Any) -> Any:
    """A component of a query, Σ_i x_i w_i."""
    return (x * w).sum(axis=-1)


def components() -> Method:
    """E[q_l] = 0, Var(q_l) = σ²‖x‖², and Cov(q_l, q_m) = 0 for two columns w, u of W_Q."""

    def sides(E: Any, x: Any, s: Any) -> Any:
        def one(w: Any) -> Any:
            return _component(x, w)

        both = E(lambda w, u: _component(x, w) * _component(x, u))
        return [(E(one), 0), (E.variance(one), s**2 * _component(x, x)), (both, 0)]

    return identity(_ONE, averaged(sides, _ONE_LAWS), top=2)


def _dot(x: Any, y: Any) -> Any:
    return (x * y).sum(axis=-1)[0]


def _score(x: Any, y: Any, w_q: Any, w_k: Any) -> Any:
    return _dot(x @ w_q, y @ w_k)


def mean_score() -> Method:
    """E[q·k] = 0."""
    return _drawn(lambda E, x, y: (E(lambda w_q, w_k: _score(x, y, w_q, w_k)), 0))


def scaled_variance() -> Method:
    """Var(q·k/√d_k) = σ⁴‖x‖²‖y‖²."""

    def sides(E: Any, x: Any, y: Any, s: Any) -> Any:
        def scaled(w_q: Any, w_k: Any) -> Any:
            return scale_by_root(_score(x, y, w_q, w_k), x @ w_q)

        return E.variance(scaled), s**4 * _dot(x, x) * _dot(y, y)

    return _drawn(sides)


def covariance() -> Method:
    """Cov(s_1, s_2) = d_k σ⁴‖x‖² y·z for two keys, those of the tokens y and z."""

    def sides(E: Any, x: Any, y: Any, z: Any, s: Any, d: Any) -> Any:
        both = E(lambda w_q, w_k: _score(x, y, w_q, w_k) * _score(x, z, w_q, w_k))
        return both, d * s**4 * _dot(x, x) * _dot(y, z)

    return _drawn(sides)


def _assumptions() -> Assumptions:
    fixed: Text = ("The tokens ", _X, " and ", _Y, " are fixed.")
    law: Text = (
        "All entries of ", _W_Q, " and ", _W_K, " are independent, with mean 0 and variance ", SIGMA**2,
    )  # fmt: skip
    return Assumptions((Assumption("A1", fixed), Assumption("A2", (*law, "."), ("any law",))))


def _blocks(dk: int, dmodel: int) -> tuple[Block, ...]:
    variance, output = known(theorems.projected_score_variance), known(theorems.output_variance_participation)
    whole_variance = D_K * SIGMA**4 * _NORM_X**2 * _NORM_Y**2
    per_root = SIGMA**4 * _NORM_X**2 * _NORM_Y**2
    z = name("z", role="input")
    weight = name("w", "i", "l", role="query")
    value = name("v", "j", role="value")
    ones = Root(D_MODEL)
    return (
        _assumptions(),
        Heading(("One component of a query",)),
        together(
            defined(equals(q("l"), total("i", 1, D_MODEL, name("x", "i", role="input") * weight))),
            shown(equals(mean(q("l")), 0), "A2", components()),
            shown(equals(var(q("l")), SIGMA**2 * _NORM_X**2), "the variances of the terms add up", components()),
            shown(equals(cov(q("l"), q("m")), 0), "other columns are independent", components()),
        ),
        Heading(("The score",)),
        together(
            defined(equals(s(), dot(q(), k()), nt.Product((_X * _W_Q, Fence("round", _Y * _W_K)), "·"))),
            shown(equals(mean(s()), 0), "A2", mean_score()),
            variance.step(equals(var(s()), whole_variance), "each product of two weights occurs once"),
            shown(equals(var(s() / Root(D_K)), per_root), (Root(D_K), " removes the factor"), scaled_variance()),
            shown(
                equals(cov(s(1), s(2)), D_K * SIGMA**4 * _NORM_X**2 * dot(_Y, z)),
                ("two keys, of the tokens ", _Y, " and ", z),
                covariance(),
            ),
        ),
        variance.result(),
        variance.wrong(),
        Paragraph(
            (
                "Scores of tokens that are alike are alike: softmax sees their difference, which is the score of ",
                _Y - z, ".",
            )
        ),
        Heading(("The output",)),
        together(output.step(None, ("for independent values ", value, " with variance ", SIGMA**2))),
        output.wrong(),
        Heading(("In numbers",)),
        Paragraph(
            (
                "After a normalisation of the tokens, ", equals(_NORM_X, _NORM_Y, ones),
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


def _choices(dk: int, dmodel: int) -> tuple[tuple[str, Node, Fraction], ...]:
    """Usual choices: a name, σ as it is written, and σ²."""
    glorot = Root(nt.Over(nt.node(2), D_MODEL + D_K))
    return (
        ("unit queries", 1 / Root(D_MODEL), Fraction(1, dmodel)),
        ("Glorot", glorot, Fraction(2, dmodel + dk)),
        ("fixed", nt.Number(_FIFTIETH), _FIFTIETH**2),
    )


def _table(dk: int, dmodel: int) -> Table:
    columns = (
        Column(("choice",), "left"),
        Column((SIGMA,)),
        Column(("value of ", SIGMA)),
        Column(("deviation of ", q("l"))),
        Column(("deviation of ", s() / Root(D_K))),
    )
    rows = tuple(
        ((words,), (symbol,), (_rooted(square),), (_rooted(square * dmodel),), (_rooted((square * dmodel) ** 2),))
        for words, symbol, square in _choices(dk, dmodel)
    )
    caption = ("By the formulas above, correctly rounded. Glorot's law is that of one matrix of these sizes.",)
    return Table(columns, rows, caption=caption)


def _rooted(square: Fraction) -> Decimal:
    return Decimal(Quotient.of(square).sqrt().decimal(4))
