"""By what each printed relation that is proved is certified: an equation, a gap, or a rule that the checker applies.

    python -m tests.proof.statement.certified [NAME…]

NAME is a derivation, a topic or a theorem. Every relation is decided anew; what counts is what the checker accepts
meanwhile.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from symattn import Grade, kinds, printing, theorems
from symattn.proof import certificate, inequality, theorem
from symattn.proof.certificate import Concluded
from symattn.proof.relations import concluding, section
from symattn.proof.relations.comparing import FalseStep
from symattn.proof.relations.judging import DecidedRelation
from tests.proof.statement.falsify import DOCUMENTS, printed, questions

NONE, REFUSED = "no certificate", "refused, such as a false variant"
_ROOMS: tuple[Any, ...] = (concluding, section, theorem, inequality)


@contextmanager
def listening() -> Iterator[set[str]]:
    """By what the checker accepts inside the block that something is proved."""
    found: set[str] = set()

    def accepted(evidence: Any, proofs: Any, premises: Any = ()) -> Any:
        answer = certificate.accepted(evidence, proofs, premises)
        if answer is evidence:
            found.update(_kind(x) for x in premises)
            found.update("a mean" if _has_mean(p) else "an equation" for p in proofs)
        return answer

    for room in _ROOMS:
        room.accepted = accepted
    try:
        yield found
    finally:
        for room in _ROOMS:
            room.accepted = certificate.accepted


def _kind(x: Any) -> str:
    if isinstance(x, certificate.Sign):
        return "the form of a gap"
    return f"the rule {x.rule!r}" if isinstance(x, Concluded) else type(x).__name__


def _has_mean(proof: Any) -> bool:
    open_, seen = [side for case in proof.cases for side in case.written], set[int]()
    while open_:
        x = open_.pop()
        if isinstance(x, kinds.Opaque) and x.name == "mean":
            return True
        open_ += [y for y in x.children if id(y) not in seen]
        seen |= {id(y) for y in x.children}
    return False


_RULES = ("limit", "instance", "induction", "chain", "equals", "squares", "logarithm", "largest")
_ORDER = (*(f"the rule {rule!r}" for rule in _RULES), "a mean", "the form of a gap", "an equation")


def by(asked: DecidedRelation) -> str:
    """The last step to a relation, or its grade where it is not proved."""
    with listening() as found:
        try:
            grade = asked.decide(asked.relation).grade
        except FalseStep:
            return REFUSED
    if grade is not Grade.PROVED:
        return grade.value
    return next((kind for kind in _ORDER if kind in found), NONE)


def counted(every: Iterable[DecidedRelation]) -> tuple[Counter[str], list[str]]:
    """How many relations are proved by what, and those without a certificate."""
    found = [(kind, asked) for asked in every for kind in [by(asked)] if kind != REFUSED]
    return Counter(kind for kind, _ in found), [printing.text(asked.relation) for kind, asked in found if kind == NONE]


def main(names: list[str]) -> int:
    """Print a line for the derivations, and one for the statements of theorems."""
    bare: list[str] = []
    documents = [q for name, more in DOCUMENTS if not names or name in names for q in questions(name, more)]
    topics = [(topic, t) for topic in theorems.TOPICS for t in theorems.of_topic(topic)]
    said = [q for topic, t in topics if not names or {topic, t.name} & {*names} for q in printed(t)]
    for title, every in (("derivations", documents), ("statements of theorems", said)):
        found, without = counted(every)
        bare += without
        print(f"{title}: {found.total()} relations")
        print(*(f"    {n:4} {kind}" for kind, n in found.most_common()), sep="\n")
    print(*(f"without a certificate: {x}" for x in bare), sep="\n")
    return bool(bare)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
