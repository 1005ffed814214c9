"""The theorems on scaling and statistics. What each is worth is listed, so that a proof that is lost shows."""

from __future__ import annotations

import pytest

from symattn.proof.theorem import Theorem
from symattn.theorems.scaling import THEOREMS
from tests.lanes import one_in
from tests.theorems.deciding import holds

GRADES = {
    "score-variance": "proved",
    "score-variance-with-means": "proved",
    "scale-gives-unit-variance": "proved",
    "row-scores-uncorrelated-not-independent": "proved",
    "score-kurtosis": "proved",
    "projected-score-variance": "proved",
    "output-variance-participation": "proved",
    "unscaled-mean-gradient-decays-slowly": "argued",
}


def test_every_theorem_is_listed():
    assert [t.name for t in THEOREMS] == list(GRADES)


@pytest.mark.parametrize("theorem", one_in(6, THEOREMS), ids=lambda t: t.name)
def test_theorem(theorem: Theorem):
    holds(theorem, "scaling", GRADES[theorem.name])
