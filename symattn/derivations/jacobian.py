"""``jacobian``: how the weights answer a change of the scores."""

from __future__ import annotations

from symattn.attention.notation import N
from symattn.derivations.letters import HALF, ONES, E, J, P, X, Z, p, s
from symattn.derivations.parameters import WRITTEN_OUT, whole
from symattn.derivations.steps import together
from symattn.document import notation as nt
from symattn.document.model import Block, Caveat, Document, Heading, Paragraph
from symattn.document.notation import (
    Big,
    Fence,
    Node,
    Partial,
    Relation,
    Transposed,
    equals,
    name,
    relation,
    total,
)
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.section import Section

_PI, _PJ = p("i"), p("j")


def derivation(tokens: int = 3) -> Document:
    """J = diag(p) − p pᵀ, and what follows: symmetric, rows sum to 0, positive semidefinite, ‖J‖∞ ≤ 1/2."""
    least, most = WRITTEN_OUT["jacobian"]["tokens"]
    whole("tokens", tokens, most, least)
    section = softmax_section()
    return Document(
        "derivation",
        "jacobian",
        ("The Jacobian of softmax",),
        (
            Heading(("The derivative",)),
            *derivative(section, tokens),
            Heading(("What follows",)),
            *properties(section, "Result"),
            _caveat(),
        ),
        subtitle=("written out for ", equals(N, tokens)),
        parameters={"tokens": tokens},
        hints=("symattn derive scaling    why large scores make it small",),
    )


def softmax_section() -> Section:
    """Scores s of any length, a vector x as long, the weights p = softmax(s), and their derivative J."""
    return Section(
        Glossary(
            given={"s": "n", "x": "n"},
            index={"i": "n", "j": "n", "ℓ": "n"},
            defined={"J": lambda reader: reader.derivative(P, "s").array},
        )
    )


def derivative(section: Section, written: int) -> tuple[Block, ...]:
    """∂p_i/∂s_j, and the matrix written out for ``written`` keys."""
    e_i, e_j, delta = E ** s("i"), E ** s("j"), name("δ", "i", "j")
    weights = equals(P, nt.call("softmax", s()))
    return (
        Paragraph(section.let(("Let ", weights, ", the weights of one query over ", N, " keys."))),
        together(
            section.claim(equals(_PI, e_i / Z), ("with ", equals(Z, total("ℓ", 1, N, E ** s("ℓ"))))),
            section.claim(equals(Partial(_PI, s("j")), (delta * e_i * Z - e_i * e_j) / Z**2), "quotient rule"),
            section.claim(equals(Partial(_PI, s("j")), delta * _PI - _PI * _PJ), ("definition of ", P)),
            section.claim(equals(J, nt.call("diag", P) - P * Transposed(P)), "as a matrix"),
            section.claim(equals(J, _matrix(written)), (equals(N, written),)),
        ),
    )


def _matrix(n: int) -> nt.Matrix:
    """p_i(1 − p_i) on the diagonal, −p_i p_j elsewhere."""
    indices = range(1, n + 1)
    return nt.matrix(
        [[p(i) * (1 - p(i)) if i == j else -(p(min(i, j)) * p(max(i, j))) for j in indices] for i in indices]
    )


def properties(section: Section, title: str) -> tuple[Block, ...]:
    """Symmetric, rows sum to 0, a variance, and the norm."""
    x_i, x_j = name("x", "i"), name("x", "j")
    spread = total("i", 1, N, _PI * x_i**2) - Fence("round", total("i", 1, N, _PI * x_i)) ** 2
    squares = Big("sum", relation("i", "<", "j"), None, None, _PI * _PJ * Fence("round", x_i - x_j) ** 2)
    norm, signs = Fence("norm", J, nt.Name("∞")), sizes_of_entries()
    sums, largest = largest_entries()
    gap = 2 * Fence("round", _PI - HALF) ** 2
    steps = together(
        section.claim(equals(J, Transposed(J)), "entry by entry"),
        section.claim(equals(J * ONES, P - P * Fence("round", total("j", 1, N, _PJ)), 0), "the weights sum to one"),
        section.claim(equals(_form(), spread, _variance()), ("the variance of ", x_i, " under ", P)),
        section.claim(Relation(_form(), (("=", squares), ("≥", nt.node(0)))), "no term is negative"),
        section.claim(equals(norm, sums, largest), "only the diagonal is positive", signs=signs),
        section.claim(relation(largest, "≤", HALF), (equals(HALF - 2 * _PI * (1 - _PI), gap),), gaps={largest: gap}),
    )
    in_short = section.result(
        title,
        (equals(J, Transposed(J)), equals(J * ONES, 0), Relation(_form(), (("=", _variance()), ("≥", nt.node(0))))),
        Relation(norm, (("=", sums), ("=", largest), ("≤", HALF))),
        gaps={_variance(): squares, largest: gap},
        signs=signs,
    )
    return steps, in_short


def largest_entries() -> tuple[Node, Node]:
    """max_i Σ_j |J_ij| and max_i 2p_i(1 − p_i)."""
    sums = total("j", 1, N, Fence("abs", name("J", "i", "j")))
    return _largest(sums), _largest(2 * _PI * (1 - _PI))


def sizes_of_entries() -> dict[Node, Node]:
    """|J_ij|: p_i Σ_{ℓ≠i} p_ℓ on the diagonal, p_i p_j elsewhere."""
    rest = Big("sum", relation("ℓ", "≠", "i"), None, None, p("ℓ"))
    return {name("J", "i", "j"): name("δ", "i", "j") * _PI * rest + name("δ̄", "i", "j") * _PI * _PJ}


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
