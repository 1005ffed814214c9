"""A large gap between scores makes the Jacobian of softmax small."""

from __future__ import annotations

from typing import Any

from symattn.attention.notation import N
from symattn.derivations.jacobian import largest_entries
from symattn.derivations.letters import DELTA, EPSILON, E, J, P, p, s
from symattn.derivations.steps import together
from symattn.document.model import Block, Heading, Paragraph
from symattn.document.notation import Big, Fence, Name, Node, Relation, call, equals, name, relation
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader
from symattn.proof.relations.section import Section

R = Name("R")


def _section() -> Section:
    """The score s_m, which stands first, and others that are below it by Δ + d, where no d is negative."""

    def scores(reader: Reader) -> Any:
        top, delta, d = (reader.arrays[x] for x in ("top", "Δ", "d"))
        return reader.xp.concat([top[None], top - delta - d], axis=0)

    given, index = {"top": "", "Δ": "", "d": "r"}, {**dict.fromkeys("ijℓ", "1+r"), "l": "r"}
    section = Section(
        Glossary(given, {"n": "1+r"}, index, {"s": scores}, places={"m": 0}, positive=("Δ",), nonnegative=("d",))
    )
    section.let((equals(P, call("softmax", s())),))
    return section


def gap() -> tuple[Block, ...]:
    """ε = R/(1 + R) ≤ (n − 1)e^{−Δ}, and ‖J‖∞ ≤ 2ε."""
    section = _section()
    introduced = section.let(
        ("Let the largest score ", s("m"), " lead all others by at least ", relation(DELTA, ">", 0),
         ", and put ", equals(EPSILON, 1 - p("m")), ".")
    )  # fmt: skip
    rest = Big("sum", relation("ℓ", "≠", "m"), None, None, E ** (s("ℓ") - s("m")))
    bound = Fence("round", N - 1) * E ** (-DELTA)
    most = bound / (1 + bound)
    d = name("d", "l")
    below = Big("sum", Name("l"), None, None, E ** (-DELTA - d) * Fence("round", E**d - 1))
    lost = below / (Fence("round", 1 + R) * Fence("round", 1 + bound))
    (_, largest), norm = largest_entries(), Fence("norm", J, Name("∞"))
    steps = together(
        section.claim(equals(EPSILON, R / (1 + R)), (equals(R, rest),)),
        section.claim(
            Relation(EPSILON, (("≤", most), ("≤", bound))),
            (relation(R, "≤", bound), "; ", Name("x") / (1 + Name("x")), " grows"),
            gaps={most: lost, bound: bound * bound / (1 + bound)},
        ),
        section.claim(
            relation(largest, "≤", 2 * EPSILON),
            ("the left side is ", norm, "; ", relation(p("i") * (1 - p("i")), "≤", EPSILON), " for each ", Name("i")),
            gaps={2 * EPSILON: 2 * _slack()},
        ),
    )
    return (
        Heading(
            (
                "A large gap makes every entry of ",
                J,
                " small",
            )
        ),
        Paragraph(introduced),
        steps,
    )


def _slack() -> Node:
    """ε − p_i(1 − p_i): ε² for i = m, else p_i² and the weights of all keys but m and i."""
    others = Big("sum", relation("ℓ", "≠", "m"), None, None, name("δ̄", "ℓ", "i") * p("ℓ"))
    every = Big("sum", relation("ℓ", "≠", "m"), None, None, p("ℓ"))
    elsewhere = name("δ̄", "i", "m") * Fence("round", others + p("i") ** 2)
    return Fence("round", name("δ", "i", "m") * every * every + elsewhere)
