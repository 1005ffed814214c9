"""No letter of a user takes a name that means something in what Coq is given."""

import re
from functools import cache

import pytest

from symattn.proof.certified import certificates
from symattn.proof.coq import theory
from symattn.proof.coq.coq_judges import judged
from symattn.proof.coq.inferences import lemmas
from symattn.proof.coq.printing import identifier, reserved
from symattn.proof.coq.writing import Lemma
from symattn.theorems import catalogue

SOME = (
    "softmax-gap",
    "online-softmax",
    "rope-relative",
    "sink-is-a-gate",
    "nonexpansive-in-values",
    "dropout-unbiased",
)
BOUND = re.compile(r"[a-z]|i\d+|(state|first|second)_\d+|outcomes")  # indices, and what a statement says of its own


@cache
def asked(name: str) -> tuple[Lemma, ...]:
    decision = catalogue()[name].method.decide()
    return tuple(x for x in lemmas(name, [dict(c) for c in certificates(decision.proofs, decision.premises)]) if x.text)


@pytest.mark.parametrize("name", SOME)
def test_all_words_of_a_statement_are_its_letters_or_reserved(name: str) -> None:
    for x in asked(name):
        assert x.readable
        bound = re.findall(r"\(([\w ]+) : ", x.readable.statement)
        bound += re.findall(r"\blet (\w+) :=", x.readable.statement)
        letters = {x.name, *(word for words in bound for word in words.split())}
        text = re.sub(r"[\w']*'\w*|%\w+", "", x.readable.statement)
        words = set(re.findall(r"\b[A-Za-z]\w*", text)) - {"Theorem", "Definition"}
        assert {w for w in words - letters - reserved() if not BOUND.fullmatch(w)} == set()


def test_the_names_of_the_theory_are_reserved_without_being_listed() -> None:
    assert {"folded", "of_tile", "truth", "sum", "Num", "Over", "Step", "scope", "accepts"} <= theory.declared()
    for word in ("In", "Rabs", "folded", "forall", "sum"):
        assert identifier(word) == f"{word}_"
    assert identifier("keep") == "keep"


@pytest.mark.coq
def test_letters_with_reserved_names_are_read_as_letters() -> None:
    words = ("In", "Rabs", "folded", "sum", "array")
    total, turned = (["sum", *[["letter", w, []] for w in order]] for order in (words, words[::-1]))
    record = {"kind": "certificate", "rules": [], "positive": ["In"]}
    (so,) = lemmas("In", [{**record, "equations": [{"free": [], "left": total, "right": turned}]}])
    (wrong,) = lemmas("Rabs", [{**record, "equations": [{"free": [], "left": total, "right": ["letter", "In", []]}]}])
    assert judged([so, wrong]).accepted == {"In_"}
