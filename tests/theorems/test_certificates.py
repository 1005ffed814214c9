"""The certificates of every theorem are accepted by the checker, which shares no code with the prover."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from symattn.proof.checker import check
from symattn.proof.theorem import decide
from symattn.theorems import TOPICS, of_topic
from symattn.theorems.explaining import certificates

EVERY = [pytest.param(t, marks=() if t == "softmax" else pytest.mark.deep) for t in TOPICS]

# Equations of which both sides are one expression before anything is simplified: they hold by definition, as is printed
# of them, and here is by which one. No step of algebra is left to look at. They stand in docs/trust.md as well.
SAME = {
    "heads-concat-is-sum": (1, "a row of blocks times a column of blocks is the sum of the products"),
    "query-rows-independent": (2, "a row of the output is written with its own query alone"),
}


@pytest.mark.deep
@pytest.mark.parametrize("topic", EVERY)
def test_the_checker_accepts_what_was_proved_as_it_is_written(topic: str):
    for theorem in of_topic(topic):
        made = certificates(decide(theorem))
        for certificate in made:
            verdict = check(certificate, Random(0))
            assert verdict.accepted, f"{theorem.name}: {verdict.why}"
        found = Counter(e["left"] == e["right"] for c in made for e in c.get("equations", ()))
        assert found[True] == SAME.get(theorem.name, (0,))[0], theorem.name
