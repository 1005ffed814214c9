"""The certificates of last steps to printed relations: one of each rule, and those that a document is made with."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from symattn.attention.letters_of_attention import D_K
from symattn.document import notation as nt
from symattn.document.notation import Node, Relation
from symattn.proof import certificate
from symattn.proof.certificate import Concluded, premise
from symattn.proof.relations import concluding, section
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.judging import RelationQuestion, decided
from tests.letters import MU, SIGMA, letters_of, s, var

Record = dict[str, Any]


@contextmanager
def listening() -> Iterator[list[Record]]:
    """The certificates of steps that the checker is asked for inside the block, and accepts."""
    found: list[Record] = []
    plain = certificate.accepted

    def accepted(evidence: Any, proofs: Any, premises: Any = ()) -> Any:
        steps = [p for p in premises if isinstance(p, Concluded)]
        answer = plain(evidence, proofs, premises)
        if answer is evidence:
            found.extend(json.loads(json.dumps(premise(p))) for p in steps)
        return answer

    rooms: tuple[Any, ...] = (concluding, section)
    for room in rooms:
        room.accepted = accepted
    try:
        yield found
    finally:
        for room in rooms:
            room.accepted = plain


def steps(relation: Relation, glossary: Glossary, **more: Any) -> list[Record]:
    """The certificates of the steps by which a relation is proved."""
    with listening() as found:
        decided(RelationQuestion(relation, glossary, **more))
    return found


def limit(relation: Relation, condition: Relation, form: Node, glossary: Glossary) -> list[Record]:
    """The same of a limit."""
    with listening() as found:
        section.limit(relation, condition, form, glossary, lambda r: decided(RelationQuestion(r, glossary)))
    return found


_SCORE = letters_of(4, "μ")
X, Y, T, N_, P = (nt.name(x) for x in "xytnp")
XI, PI, UI, SI = (nt.name(x, "i") for x in ("x", "p", "u", "s"))
BETA, E = nt.name("β"), nt.Name("e")


def over(operator: str, body: Node) -> Node:
    return nt.Big(operator, nt.Name("i"), None, None, body)


def norm(x: Node) -> Node:
    return nt.Fence("norm", x)


def bars(x: Node) -> Node:
    return nt.Fence("abs", x)


_ROW = Glossary({"x": "n", "y": "n"}, {"n": "n"}, {"i": "n"})
_SQUARE = PI * nt.Fence("round", XI + 1) ** 2
_SHARE = nt.equals(over("max", bars(_SQUARE)), over("max", PI * XI**2 + 2 * PI * XI + PI))
_GROWS = nt.relation(BETA, "→", nt.Name("∞"))
_TIES = Glossary({"u": "r", "β": ""}, {}, {"i": "r"}, positive=("u", "β"))
_SUM = 1 / nt.Fence("round", 2 + over("sum", E ** (-(BETA * UI))))

RULES: dict[str, Callable[[], list[Record]]] = {
    "squares": lambda: steps(nt.equals(norm(X - Y), norm(Y - X)), _ROW),
    "logarithm": lambda: steps(nt.equals(T, nt.call("log", E**T * 1)), Glossary({"t": ""})),
    "equals": lambda: steps(
        _SHARE, Glossary({"x": "n", "p": "n"}, {}, {"i": "n"}, nonnegative=("p",)), signs={_SQUARE: _SQUARE}
    ),
    "induction": lambda: steps(
        nt.equals(nt.Big("sum", T, nt.node(1), N_, T), N_ * (N_ + 1) / 2), Glossary({"x": "n"}, {"n": "n"})
    ),
    "largest": lambda: steps(
        nt.relation(over("max", PI * (1 - PI)), "≤", nt.node(1) / 4),
        Glossary({"p": "n"}, {}, {"i": "n"}),
        gaps={over("max", PI * (1 - PI)): nt.Fence("round", PI - nt.node(1) / 2) ** 2},
    ),
    "a limit at ∞": lambda: limit(nt.relation(_SUM, "→", nt.node(1) / 2), _GROWS, _SUM, _TIES),
    "a limit at 0": lambda: limit(
        nt.relation(_SUM, "→", 1 / nt.Fence("round", 2 + nt.name("r"))),
        nt.relation(BETA, "→", 0),
        _SUM,
        Glossary({"u": "r", "β": ""}, {"r": "r"}, {"i": "r"}, positive=("u", "β")),
    ),
    "a size that grows": lambda: limit(
        nt.relation(var(s() / D_K), "→", 0),
        nt.relation(D_K, "→", nt.Name("∞")),
        SIGMA**2 * (SIGMA**2 + 2 * MU**2) / D_K,
        _SCORE,
    ),
    "a value at a size": lambda: steps(
        nt.equals(nt.At(var(s()), nt.equals(D_K, 9)), 9 * (SIGMA**2 * (SIGMA**2 + 2 * MU**2))), _SCORE
    ),
    "roots of sizes": lambda: steps(nt.equals(D_K * MU**2 / nt.Root(D_K), nt.Root(D_K) * MU**2), _SCORE),
}
"""For each rule, relations that are shown by it."""
