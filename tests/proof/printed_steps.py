"""The certificates of last steps to printed relations: one of each rule, and those that a document is made with."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from symattn import printing as pr
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


def steps(relation: pr.Relation, glossary: Glossary, **more: Any) -> list[Record]:
    """The certificates of the steps by which a relation is proved."""
    with listening() as found:
        decided(RelationQuestion(relation, glossary, **more))
    return found


def limit(relation: pr.Relation, condition: pr.Relation, form: pr.Node, glossary: Glossary) -> list[Record]:
    """The same of a limit."""
    with listening() as found:
        section.limit(relation, condition, form, glossary, lambda r: decided(RelationQuestion(r, glossary)))
    return found


_SCORE = letters_of(4, "μ")
X, Y, T, N_, P = (pr.name(x) for x in "xytnp")
XI, PI, UI, SI = (pr.name(x, "i") for x in ("x", "p", "u", "s"))
BETA, E, D_K = pr.name("β"), pr.Name("e"), pr.name("d", "k")


def over(operator: str, body: pr.Node) -> pr.Node:
    return pr.Big(operator, pr.Name("i"), None, None, body)


def norm(x: pr.Node) -> pr.Node:
    return pr.Fence("norm", x)


def bars(x: pr.Node) -> pr.Node:
    return pr.Fence("abs", x)


_ROW = Glossary({"x": "n", "y": "n"}, {"n": "n"}, {"i": "n"})
_SQUARE = PI * pr.Fence("round", XI + 1) ** 2
_SHARE = pr.equals(over("max", bars(_SQUARE)), over("max", PI * XI**2 + 2 * PI * XI + PI))
_GROWS = pr.relation(BETA, "→", pr.Name("∞"))
_TIES = Glossary({"u": "r", "β": ""}, {}, {"i": "r"}, positive=("u", "β"))
_SUM = 1 / pr.Fence("round", 2 + over("sum", E ** (-(BETA * UI))))

_FOR_ONE_ENTRY = SIGMA**2 * (SIGMA**2 + 2 * MU**2)
RULES: dict[str, Callable[[], list[Record]]] = {
    "squares": lambda: steps(pr.equals(norm(X - Y), norm(Y - X)), _ROW),
    "logarithm": lambda: steps(pr.equals(T, pr.call("log", E**T * 1)), Glossary({"t": ""})),
    "equals": lambda: steps(
        _SHARE, Glossary({"x": "n", "p": "n"}, {}, {"i": "n"}, nonnegative=("p",)), signs={_SQUARE: _SQUARE}
    ),
    "induction": lambda: steps(
        pr.equals(pr.Big("sum", T, pr.node(1), N_, T), N_ * (N_ + 1) / 2), Glossary({"x": "n"}, {"n": "n"})
    ),
    "largest": lambda: steps(
        pr.relation(over("max", PI * (1 - PI)), "≤", pr.node(1) / 4),
        Glossary({"p": "n"}, {}, {"i": "n"}),
        gaps={over("max", PI * (1 - PI)): pr.Fence("round", PI - pr.node(1) / 2) ** 2},
    ),
    "a limit at ∞": lambda: limit(pr.relation(_SUM, "→", pr.node(1) / 2), _GROWS, _SUM, _TIES),
    "a limit at 0": lambda: limit(
        pr.relation(_SUM, "→", 1 / pr.Fence("round", 2 + pr.name("r"))),
        pr.relation(BETA, "→", 0),
        _SUM,
        Glossary({"u": "r", "β": ""}, {"r": "r"}, {"i": "r"}, positive=("u", "β")),
    ),
    "a size that grows": lambda: limit(
        pr.relation(var(s() / D_K), "→", 0),
        pr.relation(D_K, "→", pr.Name("∞")),
        SIGMA**2 * (SIGMA**2 + 2 * MU**2) / D_K,
        _SCORE,
    ),
    # A product of sums: its form, multiplied out, is no normal form of it, so that a premise is needed.
    "a value at a size": lambda: steps(
        pr.equals(
            pr.At(var(s()) * pr.Fence("round", 1 + var(s())), pr.equals(D_K, 9)),
            9 * _FOR_ONE_ENTRY * pr.Fence("round", 1 + 9 * _FOR_ONE_ENTRY),
        ),
        _SCORE,
    ),
    "roots of sizes": lambda: steps(pr.equals(D_K * MU**2 / pr.Root(D_K), pr.Root(D_K) * MU**2), _SCORE),
}
"""For each rule, relations that are shown by it."""
