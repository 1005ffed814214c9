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

# Equations of which both sides are one expression before anything is simplified, and why that is so: arrays are laid
# out in two ways, and what is compared is which entries stand at a place. No step of algebra is left to look at.
SAME = {
    "query-rows-independent": (2, "rows of queries computed together, and apart"),
    "chunked-prefill-bottom-right": (2, "rows of queries computed together, and in two chunks"),
    "heads-concat-is-sum": (3, "columns side by side times rows below each other are the sum over heads"),
    "gqa-is-mha": (1, "groups of queries beside keys that are repeated"),
    "gqa-tile-is-a-relabelling": (1, "heads in another order"),
    "mqa-is-gqa-one": (2, "one group, and no groups"),
    "rope-layouts": (3, "pairs side by side, and in two halves"),
    "alibi-key-bias": (2, "the first columns left out before and after the bias"),
    "linear-recurrence": (2, "one more key, beside all keys"),
    "online-softmax": (1, "both states are told the same maximum"),
    "sinusoidal-shift-is-linear": (2, "the columns of an embedding, of sines and of cosines"),
    "fully-masked-row": (1, "0 / 0 is undefined, which is looked at in numbers: 1 = 1 says that it is so"),
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
