"""A large gap between scores makes the Jacobian of softmax small."""

from __future__ import annotations

from symattn.attention.notation import N
from symattn.derivations import softmax_facts as facts
from symattn.derivations.letters import DELTA, EPSILON, E, J, X, p, s
from symattn.derivations.proving import shown
from symattn.derivations.steps import together
from symattn.document import notation as nt
from symattn.document.model import Block, Heading, Paragraph
from symattn.document.notation import Big, Fence, Name, Relation, equals, relation

R = Name("R")


def gap() -> tuple[Block, ...]:
    """ε = R/(1 + R) < (n − 1)e^{−Δ}, and ‖J‖∞ ≤ 2ε."""
    rest = Big("sum", relation("ℓ", "≠", "m"), None, None, E ** (s("ℓ") - s("m")))
    bound = Fence("round", N - 1) * E ** (-DELTA)
    largest = Big("max", nt.node("i"), None, None, p("i"))
    norm = Fence("norm", J, Name("∞"))
    steps = together(
        shown(equals(EPSILON, R / (1 + R)), (equals(R, rest),), *facts.lead()),
        shown(
            Relation(EPSILON, (("≤", bound / (1 + bound)), ("<", bound))),
            (relation(R, "≤", bound), "; ", X / (1 + X), " grows"),
            *facts.quotient_grows(),
        ),
        shown(
            Relation(norm, (("≤", 2 * EPSILON), ("<", 2 * bound))),
            (relation(p("i") * (1 - p("i")), "≤", EPSILON), " for each ", Name("i")),
            *facts.entries_small(),
        ),
    )
    return (
        Heading(("A large gap makes every entry of ", J, " small",)),
        Paragraph(
            (
                "Let the largest score ", s("m"), " lead all others by at least ", relation(DELTA, ">", 0),
                ", and put ", equals(EPSILON, 1 - largest), ".",
            )
        ),
        steps,
    )  # fmt: skip
