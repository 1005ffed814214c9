"""Means in certificates: the checker takes them anew, and refuses what is false or not assumed."""

import copy
from random import Random
from typing import Any

import pytest

from symattn.proof.certified import certificates
from symattn.proof.checker import check
from symattn.proof.coq.inferences import lemmas
from symattn.proof.theorem import decide
from symattn.theorems import catalogue

Parts = list[Any]
ANY = ["function", "any", ["number", "0"]]
NOUGHT, ONE, TWO = (["number", n] for n in "012")


def letter(name: str, *indices: str) -> Parts:
    return ["letter", name, [[i] for i in indices]]


S = letter("s")
VARIANCE = ["product", S, S]
LAW = ["function", "law of x", NOUGHT, VARIANCE]
XI, XJ, X0, Y = letter("x", "i"), letter("x", "j"), letter("x[0]"), letter("y")
SAME = ["is", "=", ["i"], ["j"]]


def mean(of: Parts, *laws: Parts) -> Parts:
    return ["function", "mean", of, *(laws or (LAW,))]


def equation(left: Parts, right: Parts = NOUGHT, free: tuple[str, ...] = ("i", "j"), **more: Any) -> dict[str, Any]:
    """A certificate of left = right by their normal forms."""
    e = {"free": [[i, "n"] for i in free], "left": left, "right": right, "how": "normal form"}
    lists: dict[str, Any] = {"rules": [], "positive": [], "assumed": [], "hypotheses": []}
    return {"schema": 1, "kind": "certificate", **lists, "equations": [e], **more}


def accepted(record: dict[str, Any]) -> bool:
    return check(record, Random(0)).accepted


def total(name: str, body: Parts) -> Parts:
    return ["total", name, "n", body]


def permuted(x: Parts) -> Parts:
    return ["letter", x[1], [[*x[2][0], "π"]]]


PRODUCT, CUBE = ["product", XI, XJ], ["product", XI, XI, XI]
TRUE = {
    "a mean": equation(mean(XI), NOUGHT),
    "a product": equation(mean(PRODUCT), ["product", VARIANCE, SAME]),
    "a sum": equation(mean(total("k", ["product", letter("x", "k"), XJ])), VARIANCE),
    "what is fixed": equation(mean(["ratio", ["product", letter("a", "i"), XI, XI], S]),
                              ["product", letter("a", "i"), VARIANCE, ["ratio", ONE, S]],
                              hypotheses=[{"relation": "≠", "free": [], "expression": S}]),
    "two entries": equation(mean(["product", X0, letter("x[1]")])),
    "entries of two columns": equation(mean(["product", letter("x[·,0]", "i"), letter("x[·,1]", "j")])),
    "a cube": equation(mean(CUBE, ["function", "law of x", NOUGHT, ANY, TWO]), TWO),
}  # fmt: skip
FALSE = {
    "another value": equation(mean(XI), ONE),
    "entries that are one": equation(mean(PRODUCT), VARIANCE),
    "entries that are two": equation(mean(PRODUCT), NOUGHT),
    "a cumulant that is not there": equation(mean(CUBE), NOUGHT),
    "a cumulant that is unknown": equation(mean(CUBE, [*LAW, ANY]), NOUGHT),
    "an unknown one for itself": equation(mean(CUBE, [*LAW, ANY]), ANY),
    "no law": equation(["function", "mean", XI], NOUGHT),
    "the law of another array": equation(mean(XI, ["function", "law of y", NOUGHT]), NOUGHT),
    "two laws in one mean": equation(mean(XI, LAW, ["function", "law of x", ONE]), ONE),
    "two laws in two means": equation(["sum", mean(XI), mean(XI, ["function", "law of x", ONE])], ONE),
    "a law that is random": equation(mean(XI, ["function", "law of x", S], ["function", "law of s", ONE]), S),
    "a law of places": equation(mean(XI, ["function", "law of x", letter("a", "i")]), letter("a", "i")),
    "no polynomial": equation(mean(["exp", XI]), ["exp", NOUGHT]),
    "below a fraction": equation(mean(["ratio", ONE, XI]), NOUGHT),
    "in a function": equation(mean(["function", "tanh", XI]), NOUGHT),
    "in a permutation": equation(mean(["product", permuted(XI), XI]), VARIANCE),
    "a mean of a mean": equation(mean(["product", mean(XI), XI]), NOUGHT),
    "a positive letter": equation(mean(XI), NOUGHT, positive=["x"]),
    "a letter on a circle": equation(mean(XI), NOUGHT, rules=[["x", "y"]]),
    "the name of an index": equation(mean(total("in a mean 0", letter("x", "in a mean 0"))), NOUGHT),
    "a division that is kept": equation(mean(["ratio", XI, S]), NOUGHT),
    "a law of one entry": equation(
        mean(["product", X0, X0], ["function", "law of x[0]", NOUGHT, ONE]), ["product", X0, X0], ()
    ),
    "an entry and all": equation(mean(["product", X0, XI])),
    "entries of a row and a column": equation(mean(["product", letter("x[·,1]", "i"), letter("x[1,·]", "i")])),
    "what is random elsewhere": equation(
        ["sum", mean(["product", XI, Y], ["function", "law of x", ONE]), mean(Y, ["function", "law of y", ONE])],
        ["sum", Y, ONE],
    ),
}


@pytest.mark.parametrize("name", TRUE)
def test_true_means_are_accepted(name: str) -> None:
    assert accepted(TRUE[name])


@pytest.mark.parametrize("name", FALSE)
def test_false_means_are_refused(name: str) -> None:
    assert not accepted(FALSE[name])


def test_moments_are_in_certificates_as_they_are_written() -> None:
    (record,) = certificates(decide(catalogue()["score-variance"]).decision.proofs)
    (e,) = record["equations"]
    assert [x[1] for x in e["left"][1:2]] == ["mean"]
    assert accepted(dict(record))
    law = e["left"][1][3]
    assert law[:2] == ["function", "law of q"] or law[:2] == ["function", "law of k"]
    for cumulant in (ONE, ANY):
        wrong = copy.deepcopy(record)
        wrong["equations"][0]["left"][1][3][2] = cumulant
        assert not accepted(wrong)


def test_what_coq_is_given_says_that_means_were_taken_before() -> None:
    (taken,) = lemmas("so", [equation(mean(XI, ["function", "law of x", S]), S, ("i",))])
    (plain,) = lemmas("so", [equation(["sum", S, S], ["product", TWO, S], ())])
    assert taken.readable
    assert taken.readable.words[0].startswith("Coq sees no mean")
    assert plain.readable
    assert not plain.readable.words
