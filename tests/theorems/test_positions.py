"""The theorems on positions. What each is worth is listed, so that a proof that is lost shows."""

from __future__ import annotations

import pytest

from symattn.proof.theorem import Theorem
from symattn.theorems.positions import THEOREMS
from tests.lanes import one_in
from tests.theorems.deciding import holds

GRADES = {
    "sinusoidal-shift-is-linear": "proved",
    "sinusoidal-dot": "proved",
    "rope-relative": "proved",
    "rope-group": "proved",
    "rope-layouts": "proved",
    "rope-key-bias-not-redundant": "proved",
    "alibi-key-bias": "proved",
    "alibi-tail": "argued",
    "absolute-position-four-terms": "proved",
    "nope-causal-counts": "proved",
}


def test_every_theorem_is_listed():
    assert [t.name for t in THEOREMS] == list(GRADES)


@pytest.mark.parametrize("theorem", one_in(6, THEOREMS), ids=lambda t: t.name)
def test_theorem(theorem: Theorem):
    holds(theorem, "positions", GRADES[theorem.name])
