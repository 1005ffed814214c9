"""The theorems on structure and symmetry. What each is worth is listed, so that a proof that is lost shows."""

from __future__ import annotations

import pytest

from symattn.proof.theorem import Theorem
from symattn.theorems.structure import THEOREMS
from tests.lanes import one_in
from tests.theorems.deciding import holds

GRADES = {
    "per-token-equals-matrix": "proved",
    "output-in-hull": "proved",
    "permutation-equivariance": "proved",
    "key-permutation-invariance": "proved",
    "query-rows-independent": "proved",
    "linear-in-values": "proved",
    "key-bias-redundant": "proved",
    "value-bias-passes": "proved",
    "dropout-unbiased": "proved",
    "qk-gauge": "proved",
    "duplicate-all-keys": "proved",
    "equal-scores-average": "proved",
    "score-rank": "checked",
    "symmetric-scores-reversible": "proved",
    "not-globally-lipschitz": "argued",
    "nonexpansive-in-values": "proved",
}


def test_every_theorem_is_listed():
    assert [t.name for t in THEOREMS] == list(GRADES)


@pytest.mark.parametrize("theorem", one_in(6, THEOREMS), ids=lambda t: t.name)
def test_theorem(theorem: Theorem):
    holds(theorem, "structure", GRADES[theorem.name])
