"""What the theorems say of themselves: hypotheses are what must hold, and steps of the proof are not among them."""

import pytest

from symattn.document.text import plain_text
from symattn.proof.theorem import Theorem
from symattn.theorems import catalogue

EVERY = pytest.mark.parametrize("theorem", catalogue().values(), ids=lambda t: t.name)


@EVERY
def test_no_step_of_a_proof_is_a_hypothesis(theorem: Theorem):
    said = [plain_text(h) for h in theorem.hypotheses]
    assert not [h for h in said if "shown" in h.lower()]


@EVERY
def test_every_theorem_says_why_and_has_a_source(theorem: Theorem):
    assert plain_text(theorem.says)
    assert plain_text(theorem.why)
    assert plain_text(theorem.false_says)
    assert theorem.source
