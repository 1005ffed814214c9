"""The certificates of every theorem are accepted by the checker, which shares no code with the prover."""

from __future__ import annotations

from random import Random

import pytest

from symattn.proof.checker import check
from symattn.proof.theorem import decide
from symattn.theorems import TOPICS, of_topic
from symattn.theorems.explaining import certificates

EVERY = [pytest.param(t, marks=() if t == "softmax" else pytest.mark.deep) for t in TOPICS]


@pytest.mark.deep
@pytest.mark.parametrize("topic", EVERY)
def test_the_checker_accepts_what_was_proved(topic: str):
    for theorem in of_topic(topic):
        for certificate in certificates(decide(theorem)):
            verdict = check(certificate, Random(0))
            assert verdict.accepted, f"{theorem.name}: {verdict.why}"
