"""The theorems on softmax. What each is worth is listed, so that a proof that is lost shows."""

from __future__ import annotations

import pytest

from symattn.proof.theorem import Theorem, decide
from symattn.theorems.softmax import THEOREMS
from tests.lanes import one_in

pytestmark = pytest.mark.smoke

GRADES = {
    "softmax-shift": "proved",
    "softmax-simplex": "proved",
    "softmax-log-ratio": "proved",
    "softmax-two-is-sigmoid": "proved",
    "gibbs-variational": "proved",
    "lse-bounds": "proved",
    "lse-hessian": "proved",
    "softmax-half-lipschitz": "argued",
    "softmax-cocoercive": "argued",
    "softmax-limits": "proved",
    "softmax-dispersion": "proved",
    "softmax-gap": "proved",
    "softmax-tv-perturbation": "proved",
    "softmax-bregman": "proved",
}


def test_every_theorem_is_listed():
    assert [t.name for t in THEOREMS] == list(GRADES)


@pytest.mark.parametrize("theorem", one_in(6, THEOREMS), ids=lambda t: t.name)
def test_theorem(theorem: Theorem):
    outcome = decide(theorem)
    assert outcome.refutation.refuted, "a false variant was not refuted"
    assert not outcome.refutation.accepted, "the prover accepts a false variant"
    assert outcome.witness, "no numbers were found that meet the hypotheses"
    assert outcome.grade.value == GRADES[theorem.name], outcome.decision
    assert theorem.topic == "softmax"
