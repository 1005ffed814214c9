"""Steps that stand on a proof for all sizes, found anew whenever they are told."""

from __future__ import annotations

from collections.abc import Sequence

from symattn.derivations.steps import FalseStep, proved, words
from symattn.document.model import Step, Text
from symattn.document.notation import Node, Relation
from symattn.document.text import text
from symattn.evidence import Evidence, Grade
from symattn.proof.theorem import Decision, Method, Theorem, decide

ALL = "all sizes"


def shown(formula: Node, reason: Text | str, *parts: Method, where: str = ALL) -> Step:
    """A step of which every part is decided. Raises FalseStep unless all of them are proved."""
    found = [part.decide() for part in parts]
    wanting = next((d.evidence for d in found if d.evidence.grade is not Grade.PROVED), None)
    if wanting or not found:
        raise FalseStep(f"{text(formula)} is not shown ({wanting})")
    return Step(formula, words(reason), proved("; ".join((where, *_hypotheses(found)))))


def cited(formula: Node, reason: Text | str, *theorems: Theorem) -> Step:
    """A step that is what theorems of the catalogue say. Raises FalseStep unless they are proved."""
    return Step(formula, words(reason), resting_on(*theorems))


def said(theorem: Theorem, reason: Text | str = "") -> Step:
    """A step in the words of the theorem, whose statement begins with a formula."""
    formula = theorem.says[0]
    assert isinstance(formula, Relation)
    return cited(formula, reason or theorem.why, theorem)


def resting_on(*theorems: Theorem) -> Evidence:
    """The evidence that they are: decided now, their false variants refuted. Raises FalseStep unless proved."""
    hypotheses: list[str] = []
    for theorem in theorems:
        outcome = decide(theorem)
        if outcome.grade is not Grade.PROVED:
            raise FalseStep(f"{theorem.name} is not shown ({outcome.decision.evidence})")
        hypotheses += _hypotheses([outcome.decision])
    names = ", ".join(theorem.name for theorem in theorems)
    return proved("; ".join((f"{ALL} ({names})", *dict.fromkeys(hypotheses))))


def _hypotheses(found: Sequence[Decision]) -> tuple[str, ...]:
    """What the proofs needed, in words."""
    every = ["".join(text(w) if isinstance(w, Node) else str(w) for w in h) for d in found for h in d.hypotheses]
    return tuple(dict.fromkeys(every))
