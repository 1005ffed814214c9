"""What the theorems say of themselves: hypotheses are what must hold, and steps of the proof are not among them."""

from __future__ import annotations

import pytest

from symattn.proof.theorem import Theorem
from symattn.theorems import catalogue
from symattn.theorems.documents import plain

EVERY = pytest.mark.parametrize("theorem", catalogue().values(), ids=lambda t: t.name)


@EVERY
def test_no_step_of_a_proof_is_a_hypothesis(theorem: Theorem):
    said = [plain(h) for h in theorem.hypotheses]
    assert not [h for h in said if "shown" in h.lower()]


@EVERY
def test_every_theorem_says_why_and_has_a_source(theorem: Theorem):
    assert plain(theorem.says)
    assert plain(theorem.why)
    assert plain(theorem.false_says)
    assert theorem.source
