"""Every theorem of the catalogue: what each is worth is listed, so that a proof that is lost shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from symattn.proof.theorem import Theorem, decide
from symattn.theorems import TOPICS, catalogue, of_topic
from symattn.theorems.reading import AsPrinted
from tests.golden.freeze import stored
from tests.lanes import one_in

#: The theorems that are not proved.
GRADES = {
    "argued": (
        "unscaled-mean-gradient-decays-slowly",
        "softmax-half-lipschitz",
        "softmax-cocoercive",
        "not-globally-lipschitz",
        "window-receptive-field",
        "alibi-tail",
        "softcap",
        "sparsemax",
        "layernorm-invariance",
        "layernorm-jacobian",
        "power-kernel-features",
        "dot-product-error",
        "one-hot-saturation",
        "shifted-softmax-error",
    ),
    "checked": (
        "score-rank",
        "exp-kernel-full-rank",
        "exp-overflow-threshold",
        "underflow-threshold",
        "power-of-two-scale-exact",
        "low-precision-sum-stagnates",
        "fp16-mask-constant",
        "masked-row-nan",
    ),
}
LONG = ("backward-norms", "backward-shared-heads", "backward-causal")


def test_every_theorem_is_listed():
    assert list(catalogue()) == list(stored("theorems"))


def test_the_page_on_trust_counts_those_without_code():
    printed = [t for t in catalogue().values() if isinstance(t.method, AsPrinted)]
    page = (Path(__file__).parents[2] / "docs/trust.md").read_text(encoding="utf-8")
    assert f"Of the {len(catalogue())} theorems {len(printed)} have no code beside their print" in page
    assert {name for names in GRADES.values() for name in names} < set(catalogue())


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_holds_its_theorems(topic: str):
    assert {t.topic for t in of_topic(topic)} == {topic}


@pytest.mark.parametrize(
    "theorem", one_in(6, [t for t in catalogue().values() if t.name not in LONG]), ids=lambda t: t.name
)
def test_theorem(theorem: Theorem):
    holds(theorem)


@pytest.mark.deep
@pytest.mark.parametrize("name", LONG)
def test_a_theorem_that_takes_long(name: str):
    holds(catalogue()[name])


def holds(theorem: Theorem) -> None:
    """The theorem has its grade, its false variants are refuted, and numbers meet its hypotheses."""
    outcome = decide(theorem)
    assert outcome.refutation.refuted, "a false variant was not refuted"
    assert not outcome.refutation.accepted, "the prover accepts a false variant"
    assert outcome.witness, "no numbers were found that meet the hypotheses"
    grade = next((grade for grade, names in GRADES.items() if theorem.name in names), "proved")
    assert outcome.grade.value == grade, outcome.decision
