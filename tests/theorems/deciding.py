"""What is asked of every theorem of the catalogue."""

from __future__ import annotations

from symattn.proof.theorem import Theorem, decide


def holds(theorem: Theorem, topic: str, grade: str) -> None:
    """The theorem has this grade, its false variants are refuted, and numbers meet its hypotheses."""
    outcome = decide(theorem)
    assert outcome.refutation.refuted, "a false variant was not refuted"
    assert not outcome.refutation.accepted, "the prover accepts a false variant"
    assert outcome.witness, "no numbers were found that meet the hypotheses"
    assert outcome.grade.value == grade, outcome.decision
    assert theorem.topic == topic
