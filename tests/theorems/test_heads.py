"""The theorems on heads. What each is worth is listed, so that a proof that is lost shows."""

from __future__ import annotations

import pytest

from symattn.proof.theorem import Theorem
from symattn.theorems.heads import THEOREMS
from tests.lanes import one_in
from tests.theorems.deciding import holds

GRADES = {
    "heads-concat-is-sum": "proved",
    "head-permutation": "proved",
    "gqa-is-mha": "proved",
    "gqa-tile-is-a-relabelling": "proved",
    "mqa-is-gqa-one": "proved",
    "equal-patterns-merge": "proved",
    "mla-absorb": "proved",
}


def test_every_theorem_is_listed():
    assert [t.name for t in THEOREMS] == list(GRADES)


@pytest.mark.parametrize("theorem", one_in(6, THEOREMS), ids=lambda t: t.name)
def test_theorem(theorem: Theorem):
    holds(theorem, "heads", GRADES[theorem.name])
