"""Certificates of the newer kinds with one thing wrong in each: folds with maxima, means, norms, sides that differ."""

from collections.abc import Iterator
from typing import Any

import pytest

from symattn.proof.coq.coq_judges import judged
from symattn.proof.coq.inferences import lemmas
from symattn.proof.coq.writing import Lemma
from tests.proof.test_coq import records, wrong_side
from tests.proof.test_coq_inferences import of_kind, same, small_mean, with_text

SEVENTH: Any = ["number", "1/7"]


def more(part: Any) -> Any:
    return {**part, "expression": ["sum", part["expression"], SEVENTH]}


def twice(part: Any) -> Any:
    return {**part, "expression": ["product", ["number", "2"], part["expression"]]}


def of_equations(theorem: str) -> Iterator[Any]:
    """Each equation of a theorem with another right side."""
    for record in records(theorem):
        for e in record.get("equations", ()):
            yield {**record, "equations": [{**e, "right": ["sum", e["right"], SEVENTH]}]}


def of_fold(theorem: str) -> Iterator[Any]:
    """A fold with another last part of its state, of its merge, of what it makes, or of its result."""
    record = of_kind(theorem, "fold")
    for key in ("state", "merge", "made", "result"):
        if record[key]:
            *first, last = record[key]
            yield {**record, key: [*first, more(last)]}


def of_mean() -> Iterator[Any]:
    record = small_mean(same, same, same)
    for key, change in (("through", more), ("left", more), ("right", more), ("left", twice), ("right", twice)):
        yield {**record, key: change(record[key])}
    yield {**record, "to": [twice(part) for part in record["to"]]}


def of_norm() -> Iterator[Any]:
    record = next(c for c in records("output-in-hull") if "triangle" in dict(c.get("laws", ())).values())
    (said,) = record["conclusions"]
    turned = {**said, "smaller": said["larger"], "larger": said["smaller"]}
    for wrong in (turned, wrong_side(said, "larger", "-1/7"), wrong_side(said, "smaller", "1/7")):
        yield {**record, "conclusions": [wrong]}


def of_differing() -> Iterator[Lemma]:
    for n, name in enumerate(("rope-key-bias-not-redundant", "nope-causal-counts")):
        record = of_kind(name, "differing")
        yield from with_text(lemmas(f"zeros {n}", [record]), "=> 1)", "=> 0)")
        yield from with_text(lemmas(f"equal {n}", [record]), "  <> ", "  = ")


@pytest.mark.coq
def test_no_mutant_of_the_newer_kinds_is_accepted() -> None:
    wrong = [
        *of_equations("lse-merge"),
        *of_equations("duplicate-all-keys"),
        *of_equations("merge-monoid"),
        *of_equations("two-block-merge"),
        *of_equations("kv-cache-step"),
        *of_fold("lse-merge"),
        *of_fold("two-block-merge"),
        *of_mean(),
        *of_norm(),
    ]
    asked = [x for n, record in enumerate(wrong) for x in lemmas(f"wrong {n}", [record])]
    asked = [*(x for x in asked if x.text), *of_differing()]
    assert len(asked) >= 40
    (so,) = lemmas("so", [of_kind("lse-merge", "fold")])
    assert judged([*asked, so]).accepted == {"so"}
