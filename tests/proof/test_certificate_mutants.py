"""No certificate is accepted once what it says is false, or no longer shown by what it holds."""

import json
from collections import Counter

import pytest

from symattn.proof.theorem import decide
from symattn.theorems import TOPICS, of_topic
from symattn.theorems.explaining import certificates
from tests.proof.certificate_mutants import accepted, put
from tests.proof.certificate_numbers import fails
from tests.proof.test_prover_certificates import RECORDS

SOME = ("softmax-shift", "softmax-gap")


def test_false_certificates_are_refused() -> None:
    theorems = [t for t in of_topic("softmax") if t.name in SOME]
    records = [*RECORDS.values(), *(json.loads(json.dumps(c)) for t in theorems for c in certificates(decide(t)))]
    made, wrong = accepted(records, most=1)
    assert not wrong
    assert made["false"] > 100
    assert made["not shown"] > 100


LONG = ("structure", "gradients", "streaming", "masks")
BY_TOPIC = pytest.mark.parametrize(
    "topic", [pytest.param(t, marks=pytest.mark.exhaustive if t in LONG else pytest.mark.deep) for t in TOPICS]
)


@BY_TOPIC
def test_false_certificates_of_the_catalogue_are_refused(topic: str) -> None:
    total: Counter[str] = Counter()
    for theorem in of_topic(topic):
        made, wrong = accepted(certificates(decide(theorem)), most=1)
        assert not wrong, theorem.name
        total += made
    assert total or topic == "rounding"


def test_numbers_know_what_is_false() -> None:
    assert not any(fails(record, seeds=4) for record in RECORDS.values())
    assert fails(put(RECORDS["shift"], ("equations", 0, "left"), ["number", "1"]), seeds=4)


@BY_TOPIC
def test_what_certificates_say_holds_in_numbers(topic: str) -> None:
    for theorem in of_topic(topic):
        for n, certificate in enumerate(certificates(decide(theorem))):
            if certificate["kind"] in ("certificate", "sign"):
                assert not fails(dict(certificate), seeds=4), f"{theorem.name}, certificate {n}"
