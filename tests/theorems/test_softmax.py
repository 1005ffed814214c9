"""The theorems on softmax. What each is worth is listed, so that a proof that is lost shows."""

from __future__ import annotations

import pytest

from symattn.proof.theorem import Theorem
from symattn.theorems.softmax import THEOREMS
from tests.lanes import one_in
from tests.theorems.deciding import holds

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
    holds(theorem, "softmax", GRADES[theorem.name])
