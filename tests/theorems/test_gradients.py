"""The theorems on gradients. What each is worth is listed, so that a proof that is lost shows."""

from __future__ import annotations

import pytest

from symattn.proof.theorem import Theorem
from symattn.theorems.gradients import THEOREMS
from tests.theorems.deciding import holds

GRADES = {
    "softmax-jacobian": "proved",
    "softmax-vjp": "proved",
    "backward-dV": "proved",
    "backward-dQ": "proved",
    "backward-dK": "proved",
    "flash-rowsum": "proved",
    "score-gradient-rows-sum-zero": "proved",
    "value-gradient-conserved": "proved",
    "score-gradient-saturates": "proved",
    "cross-entropy-gradient": "proved",
    "backward-sink": "proved",
    "backward-sigmoid": "proved",
    "log-sum-exp-gradient": "proved",
    "backward-softcap": "proved",
    "backward-general-scores": "proved",
    "backward-additive-scores": "proved",
    "backward-distance-scores": "proved",
    "backward-norms": "proved",
    "backward-rotary": "proved",
    "backward-projection": "proved",
    "backward-shared-heads": "proved",
    "backward-causal": "proved",
    "backward-bias": "proved",
}
LONG = ("backward-norms", "backward-shared-heads", "backward-causal")


def test_every_theorem_is_listed():
    assert [t.name for t in THEOREMS] == list(GRADES)


@pytest.mark.parametrize(
    "theorem", [pytest.param(t, id=t.name, marks=pytest.mark.deep if t.name in LONG else ()) for t in THEOREMS]
)
def test_theorem(theorem: Theorem):
    holds(theorem, "gradients", GRADES[theorem.name])
