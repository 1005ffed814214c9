"""The theorems on streaming. What each is worth is listed, so that a proof that is lost shows."""

from __future__ import annotations

import pytest

from symattn.proof.theorem import Theorem
from symattn.theorems.streaming import THEOREMS
from tests.lanes import one_in
from tests.theorems.deciding import holds

GRADES = {
    "two-block-merge": "proved",
    "online-softmax": "proved",
    "merge-monoid": "proved",
    "lse-merge": "proved",
    "kv-cache-step": "proved",
    "causal-prefix-unchanged": "proved",
    "chunked-prefill-bottom-right": "proved",
}


def test_every_theorem_is_listed():
    assert [t.name for t in THEOREMS] == list(GRADES)


@pytest.mark.parametrize("theorem", one_in(6, THEOREMS), ids=lambda t: t.name)
def test_theorem(theorem: Theorem):
    holds(theorem, "streaming", GRADES[theorem.name])
