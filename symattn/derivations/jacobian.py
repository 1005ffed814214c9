"""``jacobian``: how the weights answer a change of the scores."""

from __future__ import annotations

from symattn.attention.notation import N
from symattn.derivations import softmax_facts as facts
from symattn.derivations.letters import HALF, ONES, E, J, P, X, Z, p, s
from symattn.derivations.parameters import whole
from symattn.derivations.proving import ALL, shown
from symattn.derivations.steps import defined, proved, together
from symattn.document import notation as nt
from symattn.document.model import Block, Caveat, Document, Heading, Paragraph, Result, Step, Steps
from symattn.document.notation import (
    Big,
    Fence,
    Node,
    Partial,
    Relation,
    Row,
    Transposed,
    equals,
    name,
    relation,
    total,
)

_MOST_SHOWN = 5
_PI, _PJ = p("i"), p("j")


def derivation(tokens: int = 3) -> Document:
    """J = diag(p) − p pᵀ, and what follows: symmetric, rows sum to 0, positive semidefinite, ‖J‖∞ ≤ 1/2."""
    whole("tokens", tokens, _MOST_SHOWN, 2)
    return Document(
        "derivation",
        "jacobian",
        ("The Jacobian of softmax",),
        (
            Heading(("The derivative",)),
            *derivative(tokens),
            Heading(("What follows",)),
            *properties("Result"),
            _caveat(),
        ),
        subtitle=("written out for ", equals(N, tokens)),
        command=f"symattn derive jacobian --tokens {tokens}",
        parameters={"tokens": tokens},
        hints=("symattn derive scaling    why large scores make it small",),
    )


def derivative(written: int) -> tuple[Block, ...]:
    """∂p_i/∂s_j, and the matrix written out for ``written`` keys."""
    e_i, e_j, delta = E ** s("i"), E ** s("j"), name("δ", "i", "j")
    entry = shown(equals(Partial(_PI, s("j")), delta * _PI - _PI * _PJ), ("definition of ", P), *facts.outer_product())
    return (
        Paragraph(("Let ", equals(P, nt.call("softmax", s())), ", the weights of one query over ", N, " keys.")),
        together(
            defined(equals(_PI, e_i / Z), ("with ", equals(Z, total("ℓ", 1, N, E ** s("ℓ"))))),
            shown(
                equals(Partial(_PI, s("j")), (delta * e_i * Z - e_i * e_j) / Z**2),
                "quotient rule",
                *facts.quotient_rule(),
            ),
            entry,
            Step(equals(J, nt.call("diag", P) - P * Transposed(P)), ("as a matrix",), entry.evidence),
            shown(equals(J, _matrix(written)), (equals(N, written),), *facts.entries()),
        ),
    )


def _matrix(n: int) -> nt.Matrix:
    """p_i(1 − p_i) on the diagonal, −p_i p_j elsewhere."""
    indices = range(1, n + 1)
    return nt.matrix(
        [[p(i) * (1 - p(i)) if i == j else -(p(min(i, j)) * p(max(i, j))) for j in indices] for i in indices]
    )


def properties(title: str) -> tuple[Block, ...]:
    """Symmetric, rows sum to 0, a variance, and the norm."""
    result = Row(
        (
            equals(J, Transposed(J)),
            equals(J * ONES, 0),
            Relation(_form(), (("=", _variance()), ("≥", nt.node(0)))),
            Relation(Fence("norm", J, nt.Name("∞")), (("=", _largest(2 * _PI * (1 - _PI))), ("≤", HALF))),
        )
    )
    return _steps(), Result(title, (result,), (proved(ALL),))


def _steps() -> Steps:
    x_i, x_j = name("x", "i"), name("x", "j")
    spread = total("i", 1, N, _PI * x_i**2) - Fence("round", total("i", 1, N, _PI * x_i)) ** 2
    squares = Big("sum", relation("i", "<", "j"), None, None, _PI * _PJ * Fence("round", x_i - x_j) ** 2)
    norm = Fence("norm", J, nt.Name("∞"))
    half = equals(HALF - 2 * P * (1 - P), 2 * Fence("round", P - HALF) ** 2)
    return together(
        shown(equals(J, Transposed(J)), "entry by entry", *facts.symmetric()),
        shown(
            equals(J * ONES, P - P * Fence("round", total("j", 1, N, _PJ)), 0),
            "the weights sum to 1",
            *facts.rows_sum_to_zero(),
        ),
        shown(equals(_form(), spread, _variance()), ("the variance of ", x_i, " under ", P), *facts.variance()),
        shown(Relation(_form(), (("=", squares), ("≥", nt.node(0)))), "no term is negative", *facts.squares()),
        shown(
            equals(norm, _largest(total("j", 1, N, Fence("abs", name("J", "i", "j")))), _largest(2 * _PI * (1 - _PI))),
            "only the diagonal is positive",
            *facts.norm(),
        ),
        shown(Relation(norm, (("≤", HALF),)), (half,), *facts.half_bound()),
    )


def _largest(body: Node) -> Big:
    return Big("max", nt.node("i"), None, None, body)


def _form() -> Node:
    return Transposed(X) * J * X


def _variance() -> Node:
    return nt.Call(name("Var", relation("i", "∼", P)), (name("x", "i"),))


def _caveat() -> Caveat:
    return Caveat(
        (
            "The bound ", HALF, " is on how weights answer to scores. The scores are products of queries and keys, so",
            " it does not bound how the output answers to the tokens.",
        )
    )  # fmt: skip
