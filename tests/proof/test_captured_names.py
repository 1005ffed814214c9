"""Certificates in which one name stands for two things, or what is written has no value: all are refused.

Beside each stands a true one that is written alike, which is accepted.
"""

from random import Random
from typing import Any

import pytest

from symattn import proving
from symattn.proof.checker_reading import in_place
from symattn.proof.coq.inferences import lemmas
from tests.proof.test_expectation import NOUGHT, ONE, TWO, equation, letter
from tests.proof.test_steps_checked import Parts, Record, minus, step

B, C, S, D, X = map(letter, "bcsdx")
NOTHING = equation(NOUGHT, NOUGHT, ())
DECAY = ["exp", minus(B)]


def tending(of: Parts, letter_: str = "b", free: tuple[str, ...] = (), **more: Any) -> Record:
    """A certificate that ``of`` tends to 0 as b grows."""
    conclusion = {"free": [[i, "n"] for i in free], "of": of, "form": of, "value": NOUGHT}
    told = {"letter": letter_, "to": "∞", "size": False, "premises": [NOTHING], **more}
    return {"schema": 1, "kind": "step", "rule": "limit", **told, "conclusions": [conclusion]}


def instance(left: Parts, right: Parts, *premises: Record, form: Parts | None = None) -> Record:
    """A certificate that ``left`` is ``right`` where n = 3."""
    conclusion = {"free": [], "left": left, "form": form or left, "right": right}
    told = {"sort": "n", "length": "3", "premises": list(premises)}
    return {"schema": 1, "kind": "step", "rule": "instance", **told, "conclusions": [conclusion]}


def induction(term: Parts, summed: Parts) -> Record:
    """A certificate that Σ_t ``summed`` is 0, which is ``term`` in the number x."""
    conclusion = {"free": [], "left": ["total", "t", "n", summed], "right": NOUGHT}
    told = {"letter": "x", "sort": "n", "term": term, "closed": NOUGHT, "premises": [NOTHING]}
    return {"schema": 1, "kind": "step", "rule": "induction", **told, "conclusions": [conclusion]}


def nested(outer: str, permutation: str) -> Parts:
    """Σ_size Σ_number a(π(outer)) y(size), where "size" and "number" are indices."""
    moved = ["letter", "a", [[outer, permutation]]]
    return ["total", "size", "m", ["total", "number", "m", ["product", moved, letter("y", "size")]]]


def fold(of: Parts, merge: Parts) -> Record:
    parts = {k: [{"letter": "s", "free": [], "expression": e}] for k, e in (("state", of), ("merge", merge))}
    told = {"sort": "n", "arrays": ["x"], "numbers": [], "made": [], "result": []}
    return {"schema": 1, "kind": "step", "rule": "fold", "premises": [], "conclusions": [], **told, **parts}


def differing(left: Parts, right: Parts, *rules: Parts) -> Record:
    told = {"free": [], "left": left, "right": right, "sizes": {"n": 3}, "rules": list(rules)}
    return {"schema": 1, "kind": "differing", **told}


def of_largest(index: str, term: Any, larger: Any, difference: Parts) -> Record:
    """A certificate that the maximum over j of a term is at most ``larger`` of an index, from the same of each i."""

    def said(i: str, smaller: Parts) -> Record:
        return {"free": [[i, "n"]], "smaller": smaller, "larger": larger(i)}

    lists = {name: [] for name in ("positive", "not negative", "only", "rules", "laws", "meant", "hypotheses")}
    premise = {"schema": 1, "kind": "sign", "relation": "≥", "free": [["i", "n"]], **lists}
    premise |= {"expression": difference, "equal": difference, "conclusions": [said("i", term("i"))]}
    top = ["function", "max", ["bound", "j", "n", term("j")]]
    rule = {"schema": 1, "kind": "step", "rule": "largest", "premises": [premise]}
    return {**rule, "conclusions": [said(index, top)]}


def nought_over(x: Parts) -> Parts:
    return ["product", NOUGHT, ["ratio", ONE, x]]


def mean_of(value: str) -> Parts:
    """E y, where that is a number."""
    return ["function", "mean", letter("y"), ["function", "law of y", ["number", value]]]


THREE = ["number", "3"]
BELOW_ONE = [{"relation": ">", "free": [], "expression": ["sum", ONE, minus(letter("\n"))]}]
BEFORE = ["total", "s", "n", ["is", "≤", ["s"], ["t"]]]
SAME = ["is", "=", ["i"], ["j"]]
MASKED = ["product", SAME, ["exp", X]]
BOTH = ["sum", letter("first s"), letter("second s")]
STATE = ["total", "c", "n", ["product", letter("x", "c"), C]]  # where c is an index, and a number
TWO_CS = ["sum", *[["product", letter(f"{n} c"), letter(f"{n} s")] for n in ("first", "second")]]
SQUARES = ["sum", ["product", C, C], ["product", S, S]]
MOVED = ["total", "j", "n", ["letter", "x", [["j", "π"]]]]
PLAIN = ["total", "j", "n", letter("x", "j")]
PAIR, NEXT = ["c", "s"], ["s", "d"]
UNDER = [{"relation": ">", "free": [], "expression": X}]


def entry(i: str) -> Parts:
    return letter("x", i)


def below_nought(i: str) -> Parts:
    return minus(["exp", letter("x", i)])


FALSE_AND_TRUE: dict[str, tuple[Record, Record]] = {
    "a function named as the letter": (tending(["exp", minus(["function", "b", B])]), tending(DECAY)),
    "an entry named as the letter": (tending(["exp", minus(letter("b", "i"))], free=("i",)), tending(DECAY)),
    "a limit of what is divided by x": (
        tending(["product", DECAY, ["ratio", ONE, X]]),
        tending(["product", DECAY, ["ratio", ONE, X]], premises=[equation(NOUGHT, NOUGHT, (), hypotheses=UNDER)]),
    ),
    "a limit of what has a logarithm": (
        tending(["product", DECAY, ["function", "log", X]]),
        tending(["product", DECAY, ["function", "log", X]], premises=[equation(NOUGHT, NOUGHT, (), hypotheses=UNDER)]),
    ),
    "an index that is written as a size": (
        instance(nested("size", "n"), nested("number", "3"), *[equation(x, x, ()) for x in
                 (nested("size", "n"), nested("number", "3"))]),
        instance(nested("size", "n"), nested("size", "n"), equation(nested("size", "n"), nested("size", "n"), ())),
    ),
    "a number at a size, over nought": (
        instance(nought_over(X), NOUGHT, NOTHING),
        instance(nought_over(["size", "m"]), NOUGHT, NOTHING),
    ),
    "a sum of what is over nought once": (
        induction(nought_over(["sum", X, minus(ONE)]), nought_over(["sum", BEFORE, minus(ONE)])),
        induction(["product", NOUGHT, X], ["product", NOUGHT, BEFORE]),
    ),
    "two laws of one array at a size": (
        instance(["sum", mean_of("1"), mean_of("2")], THREE, equation(THREE, THREE, ()), form=THREE),
        instance(["sum", mean_of("1"), mean_of("1")], TWO, equation(TWO, TWO, ()), form=TWO),
    ),
    "a mean of what is positive, at a size": (
        instance(mean_of("0"), NOUGHT, {**NOTHING, "positive": ["y"]}, form=NOUGHT),
        instance(mean_of("0"), NOUGHT, NOTHING, form=NOUGHT),
    ),
    "a hypothesis on a letter that no text shows as it is": (
        tending(["exp", minus(letter("\n"))], "\n", premises=[{**NOTHING, "hypotheses": BELOW_ONE}]),
        tending(["exp", minus(letter("\n"))], "\n"),
    ),
    "a logarithm of nought": (
        step("logarithm", [equation(MASKED, MASKED)], ["masked", SAME, X], ["function", "log", MASKED], ("i", "j")),
        step("logarithm", [equation(["exp", X], ["exp", X])], X, ["function", "log", ["exp", X]], ("i", "j")),
    ),
    "a number named as an index": (fold(STATE, ["product", ["ratio", ONE, C], TWO_CS]), fold(STATE, BOTH)),
    "sums under a permutation differ": (differing(MOVED, PLAIN), differing(["sum", PLAIN, ONE], PLAIN)),
    "powers on a circle differ": (
        differing(["exp", SQUARES], ["exp", ONE], PAIR),
        differing(["sum", SQUARES, ["exp", X]], ONE, PAIR),
    ),
    "an index with a name that the checker invents": (
        of_largest("place 0", entry, entry, NOUGHT),
        of_largest("place 0", below_nought, lambda i: NOUGHT, ["exp", letter("x", "i")])
    ),
    "the next such index": (
        of_largest("place 1", entry, entry, NOUGHT),
        of_largest("place 1", below_nought, lambda i: NOUGHT, ["exp", letter("x", "i")])
    ),
    "two circles with one letter": (differing(SQUARES, ONE, PAIR, NEXT), differing(SQUARES, ONE, NEXT)),
}  # fmt: skip


@pytest.mark.parametrize("name", FALSE_AND_TRUE)
def test_what_is_captured_or_has_no_value_is_refused(name: str) -> None:
    false, true = FALSE_AND_TRUE[name]
    verdict = proving.check(true, Random(0))
    assert verdict.accepted, verdict.why
    assert not proving.check(false, Random(0)).accepted


def test_coq_is_not_asked_whether_sides_differ_under_a_permutation() -> None:
    beside = ["total", "j", "n", ["product", ["letter", "x", [["j", "π"]]], letter("x", "j")]]
    (said,) = lemmas("so", [differing(beside, PLAIN)])
    assert not said.text
    assert "under a permutation" in said.why
    (said,) = lemmas("so", [differing(["sum", PLAIN, ONE], PLAIN)])
    assert said.readable


def test_what_is_no_size_is_refused_with_the_reason() -> None:
    verdict = proving.check({**differing(C, D), "sizes": {"n": float("inf")}}, Random(0))
    assert "OverflowError" in verdict.why


@pytest.mark.deep
def test_a_mean_of_too_many_products_is_refused() -> None:
    every = ["sum", *[letter("x", f"i{n}") for n in range(8)]]
    law = ["function", "law of x", *[ONE] * 5]
    few, many = (equation(["function", "mean", ["product", *[every] * n], law], ONE) for n in (1, 5))
    for record in (few, many):
        record["equations"][0]["free"] = [[f"i{n}", "n"] for n in range(8)]
    assert proving.check(few, Random(0)).why == "the normal forms differ"
    assert proving.check(many, Random(0)).why == "it asks for more than the checker takes on"


@pytest.mark.parametrize("index", ["in place 0", "in place 1"])
def test_a_meaning_does_not_bind_the_index_that_it_is_of(index: str) -> None:
    summed = ["total", "j", "n", ["product", letter("x", "j"), ["total", "l", "n", letter("x", "l")], letter("x", "i")]]
    placed = in_place(letter("y", index), {"y": (["i"], summed)})
    assert placed[3][3] == letter("x", index)
    assert placed[1] != index
    assert placed[3][2][1] not in (index, placed[1])
