"""Certificates of what is false, each made to slip through one rule of the checker, and refused by it.

Beside each stands what is true by the same rule, which is accepted.
"""

import json
from collections import Counter
from random import Random
from typing import Any

import pytest

from symattn import proving, theorems
from tests.proof.certificate_mutants import accepted, certificates_of, put
from tests.proof.certificate_numbers import fails
from tests.proof.test_prover_certificates import RECORDS

Parts = list[Any]
Record = dict[str, Any]
NOUGHT, ONE, MINUS, HALF = (["number", n] for n in ("0", "1", "-1", "1/2"))
FREE = [["i", "n"]]


def letter(name: str, *indices: str) -> Parts:
    return ["letter", name, [[i] for i in indices]]


def minus(x: Parts) -> Parts:
    return ["product", MINUS, x]


def total(body: Parts, sort: str = "n") -> Parts:
    return ["total", "j", sort, body]


def relation(sign: str, i: Parts, j: Parts) -> Parts:
    return ["is", sign, i, j]


X, Y, H, B = letter("x"), letter("y"), letter("h"), letter("b")
SQUARE = ["product", X, X]


def sign(expression: Parts, *, larger: Parts | None = None, free: Parts | None = None, **more: Any) -> Record:
    """A certificate of expression ≥ 0, and so of 0 ≤ ``larger``, which is the expression if it is not given."""
    whole = larger or expression
    free = free or []
    said = {"schema": 1, "kind": "sign", "relation": "≥", "free": free, "expression": expression, "equal": whole}
    lists: Record = {
        **{"positive": [], "not negative": [], "only": [], "rules": [], "laws": [], "meant": []},
        "hypotheses": [],
    }
    return {**said, **lists, "conclusions": [{"free": free, "smaller": NOUGHT, "larger": whole}], **more}


def meaning(name: str, expression: Parts, free: Parts | None = None) -> Record:
    return {"letter": name, "free": free or [], "expression": expression}


def of_h(x: Parts, **more: Any) -> Record:
    """A certificate of 0 ≤ h, where h stands for ``x``."""
    return sign(H, larger=x, **{"not negative": ["h"], "meant": [meaning("h", x)], **more})


def equation(left: Parts, right: Parts, free: Parts | None = None, hypotheses: Parts | None = None) -> Record:
    record = {"schema": 1, "kind": "certificate", "rules": [], "positive": [], "assumed": []}
    stated = {"free": free or [], "left": left, "right": right, "how": "normal form"}
    return {**record, "hypotheses": hypotheses or [], "equations": [stated]}


def fold(state: Parts, merge: Parts) -> Record:
    """A certificate that ``merge`` makes the state of two blocks of what it makes of each."""
    record = {"schema": 1, "kind": "step", "rule": "fold", "premises": [], "conclusions": [], "sort": "n"}
    record |= {"arrays": ["x"], "numbers": [], "made": [], "result": []}
    return {**record, **{k: [meaning("s", e)] for k, e in (("state", state), ("merge", merge))}}


def repeated(measure: Parts, step: Parts, *premises: Record) -> Record:
    """A certificate that ``measure`` of z is halved as ``step`` takes the place of x."""
    parts = {"measure": measure, "step": step, "now": X, "factor": HALF}
    told = {k: {"letter": "", "free": [], "expression": e} for k, e in parts.items()}
    letters = {"letter": "z", "array": "x", "tends": False, "premises": list(premises)}
    return {"schema": 1, "kind": "step", "rule": "repeated", "conclusions": [], **told, **letters}


def difference(smaller: Parts, larger: Parts, expression: Parts) -> Record:
    conclusion = {"free": [], "smaller": smaller, "larger": larger}
    return sign(expression, equal=["sum", larger, minus(smaller)], conclusions=[conclusion])


def at_nought(of: Parts, value: Parts) -> Record:
    """A certificate that ``of`` tends to ``value`` as b tends to 0."""
    conclusion = {"free": [], "of": of, "form": of, "value": value}
    parts = {"letter": "b", "to": "0", "size": False, "conclusions": [conclusion]}
    there, divided = ["ratio", ONE, ["sum", ONE, NOUGHT]], ["ratio", ONE, ["sum", ONE, B]]
    premises = [equation(divided, divided) | {"positive": ["b"]}, equation(there, ONE)]
    return {"schema": 1, "kind": "step", "rule": "limit", **parts, "premises": premises}


def differing(left: Parts, right: Parts) -> Record:
    """A certificate that two sides are not always equal."""
    said = {"schema": 1, "kind": "differing", "free": [], "left": left, "right": right}
    return {**said, "sizes": {"n": 2}, "rules": []}


def weighted(name: str, other: str, outer: str, inner: str) -> Parts:
    """Σ Σ w_i u_j (x_i + 0 · y_j), where i and j are ``name`` and ``other``."""
    with_nought = ["sum", letter("x", name), ["product", NOUGHT, letter("y", other)]]
    body = ["product", letter("w", name), letter("u", other), with_nought]
    return ["total", outer, "n", ["total", inner, "n", body]]


def of_pairs(outer: str, inner: str, *indices: str) -> Parts:
    """Σ Σ a_(outer, inner) c_indices."""
    body = ["product", letter("a", outer, inner), letter("c", *indices)]
    return ["total", outer, "n", ["total", inner, "n", body]]


J, PJ = ["j"], ["j", "pi"]
RELATED = relation("<", ["i"], ["k"])
PLACES = [["i", "n"], ["k", "n"]]
EVERY = total(["product", letter("x", "j"), letter("x", "j")])
DIAGONAL = total(["product", letter("x", "j", "j"), letter("x", "j", "j")])
NEVER = total(relation("=", J, PJ))
NEVER_MET = ["sum", ["product", X, ["sum", X, ONE]], minus(["product", X, X]), minus(X)]
Y_SQUARE = ["product", Y, Y]
INVERSE = ["function", "rsqrt", H]
INVERSE_ROOT = ["function", "rsqrt", Y_SQUARE]
RECIPROCAL = ["function", "1/", X]
ABOVE = [{"relation": ">", "free": [], "expression": z} for z in (X, Y)]
A_BOUND = ["sum", ONE, minus(["function", "tanh", Y])]
FIRST_SUM = ["total", "first k", "first n", letter("first x", "first k")]


Z, TWICE = letter("z"), ["product", ["number", "2"], X]
TOP = ["function", "max", ONE, ONE]
HALVED = ["product", HALF, X]
LOG_TWO = ["function", "log", ["number", "2"]]


def largest(smaller: Parts, larger: Parts, premise: Record, **more: Any) -> Record:
    """A certificate of smaller ≤ larger, which is so for each entry in the place of a maximum."""
    conclusions = [{"free": [], "smaller": smaller, "larger": larger}]
    return {"schema": 1, "kind": "step", "rule": "largest", "conclusions": conclusions, "premises": [premise], **more}


def tending(factor: Parts, *premises: Record) -> Record:
    """A certificate that x tends to 0 as it is multiplied by ``factor`` again and again."""
    step = ["product", factor, X]
    record = repeated(Z, step, difference(step, step, NOUGHT), *premises)
    return {**record, "factor": {"letter": "", "free": [], "expression": factor}, "tends": True}


# name: (what is false, what is true by the same rule)
FORGED: dict[str, tuple[Record, Record]] = {
    "[i < k] − 1 is not positive": (
        sign(["sum", ["product", ONE, RELATED], MINUS], free=PLACES),
        sign(["sum", ONE, minus(RELATED)], free=PLACES),
    ),
    "[i < k] − [k < i] is not positive": (
        sign(["sum", ["product", ONE, RELATED], minus(relation("<", ["k"], ["i"]))], free=PLACES),
        sign(["sum", ["product", RELATED, RELATED], RELATED], free=PLACES),
    ),
    "a permutation may have no fixed point": (
        equation(["ratio", NEVER, NEVER], ["ratio", NEVER, NEVER]),
        equation(*[["ratio", ONE, total(relation("≤", J, ["i"]))]] * 2, free=FREE),
    ),
    "e^(−∞) is not positive": (sign(["exp", ["masked", NOUGHT, NOUGHT]], relation=">"), sign(["exp", X], relation=">")),
    "h may not stand for −∞": (
        sign(["exp", H], larger=["exp", ["masked", NOUGHT, NOUGHT]], meant=[meaning("h", ["masked", NOUGHT, NOUGHT])]),
        sign(["exp", H], larger=["exp", X], meant=[meaning("h", X)]),
    ),
    "1/|y| is not defined at 0": (
        sign(INVERSE, larger=INVERSE_ROOT, relation=">", meant=[meaning("h", Y_SQUARE)]),
        sign(
            INVERSE,
            larger=INVERSE_ROOT,
            relation=">",
            meant=[meaning("h", Y_SQUARE)],
            hypotheses=[{"relation": ">", "free": [], "expression": e} for e in (H, Y_SQUARE)],
        ),
    ),
    "a hypothesis that never holds": (
        equation(
            ["ratio", NOUGHT, NEVER_MET], NOUGHT, hypotheses=[{"relation": "≠", "free": [], "expression": NEVER_MET}]
        ),
        equation(["ratio", NOUGHT, X], NOUGHT, hypotheses=[{"relation": "≠", "free": [], "expression": X}]),
    ),
    "a reciprocal by another name": (
        equation(["product", RECIPROCAL, X], ["product", X, RECIPROCAL]),
        equation(["product", RECIPROCAL, X], ["product", X, RECIPROCAL], hypotheses=ABOVE),
    ),
    "the diagonal is 0, the matrix is not": (sign(DIAGONAL, only=["x"]), sign(EVERY, only=["x"])),
    "one entry is 0, the others are not": (
        sign(["product", letter("x[0]"), letter("x[0]")], only=["x"]),
        sign(SQUARE, only=["x"]),
    ),
    "a law of an undefined array": (
        sign(H, **{"not negative": ["h"], "laws": [["h", "bounded"]]}),
        of_h(A_BOUND, laws=[["h", "bounded"]]),
    ),
    "a law of some entries": (
        sign(
            ["sum", letter("h[0]"), letter("h[1]")],
            larger=["sum", A_BOUND, letter("h[1]")],
            **{"not negative": ["h"], "laws": [["h", "bounded"]], "meant": [meaning("h[0]", A_BOUND)]},
        ),
        sign(
            ["sum", letter("h[0]"), letter("h[1]")],
            larger=["sum", A_BOUND, A_BOUND],
            **{"not negative": ["h"], "laws": [["h", "bounded"]]},
            meant=[meaning("h[0]", A_BOUND), meaning("h[1]", A_BOUND)],
        ),
    ),
    "−y is not positive because it has a name": (
        sign(H, larger=minus(Y), positive=["h"], meant=[meaning("h", minus(Y))]),
        sign(["product", H, H], larger=["product", Y, Y], meant=[meaning("h", minus(Y))]),
    ),
    "a letter that stands for itself": (of_h(["sum", H, MINUS]), of_h(["sum", Y, MINUS])),
    "two meanings": (
        of_h(X, meant=[meaning("h", A_BOUND), meaning("h", X)], laws=[["h", "bounded"]]),
        of_h(A_BOUND, laws=[["h", "bounded"]]),
    ),
    "merging by the sum of the first block": (
        fold(["sum", total(letter("x", "j"))], ["sum", FIRST_SUM, letter("second s")]),
        fold(["sum", total(letter("x", "j"))], ["sum", letter("first s"), letter("second s")]),
    ),
    "a measure of the first step": (
        repeated(
            ["sum", ["product", letter("z"), letter("z")], SQUARE],
            NOUGHT,
            difference(
                ["sum", ["product", NOUGHT, NOUGHT], SQUARE], ["product", HALF, ["sum", SQUARE, SQUARE]], NOUGHT
            ),
            sign(HALF),
        ),
        repeated(
            ["product", letter("z"), letter("z")],
            ["product", HALF, X],
            difference(
                ["product", ["product", HALF, X], ["product", HALF, X]],
                ["product", HALF, SQUARE],
                ["product", ["number", "1/4"], SQUARE],
            ),
            sign(HALF),
        ),
    ),
    "what a number does not show": (
        repeated(
            Z,
            TWICE,
            sign(LOG_TWO, relation=">", conclusions=[{"free": [], "smaller": TWICE, "larger": HALVED}]),
            sign(HALF),
        ),
        repeated(Z, HALVED, difference(HALVED, HALVED, NOUGHT), sign(HALF)),
    ),
    "a factor of 1": (
        tending(TOP, largest(NOUGHT, TOP, sign(ONE)), largest(TOP, ONE, difference(ONE, ONE, NOUGHT), relation=">")),
        tending(HALF, sign(HALF), difference(HALF, ONE, HALF) | {"relation": ">"}),
    ),
    "a name with the separators of a form in it": (
        equation(["function", "f", X, Y], ["function", "f, letter(x, )", Y]),
        equation(["function", "f", X, Y], ["function", "f", ["product", ONE, X], Y]),
    ),
    "a name with the quotes of a form in it": (
        equation(["function", "f", X, Y], ["function", "f', letter('x', )", Y]),
        equation(["function", "f', letter('x', )", Y], ["function", "f', letter('x', )", ["product", ONE, Y]]),
    ),
    "bound indices in each other's place": (
        equation(of_pairs("j", "k", "j", "k"), of_pairs("j", "k", "k", "j")),
        equation(of_pairs("j", "k", "j", "k"), of_pairs("k", "j", "k", "j")),
    ),
    "one form at places of other indices": (
        differing(weighted("i", "a", "a", "i"), weighted("i", "z", "i", "z")),
        differing(weighted("i", "a", "a", "i"), ["product", HALF, weighted("i", "z", "i", "z")]),
    ),
    "1/b at 0": (
        at_nought(["ratio", ONE, B], ONE),
        at_nought(["ratio", ONE, ["sum", ONE, B]], ONE),
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_certificate_is_refused(name: str) -> None:
    false, true = FORGED[name]
    verdict = proving.check(true, Random(0))
    assert verdict.accepted, verdict.why
    assert not proving.check(false, Random(0)).accepted


def test_what_random_tests_risk_in_laws_and_premises_is_counted() -> None:
    """1 written as (x + 1)² − x² − 2 x asks for a random test, in which the law is looked at."""
    more = ["sum", X, ONE]
    one = ["sum", ["product", more, more], minus(SQUARE), ["product", ["number", "-2"], X]]
    of_law = of_h(["sum", one, minus(["function", "tanh", Y])], laws=[["h", "bounded"]])
    risk = proving.check(of_law, Random(0)).epsilon
    assert 0 < risk < 1e-30


SOME = ("softmax-shift", "softmax-gap")


@pytest.mark.deep
def test_false_certificates_are_refused() -> None:
    some = [t for t in theorems.of_topic("softmax") if t.name in SOME]
    records = [*RECORDS.values(), *(json.loads(json.dumps(c)) for t in some for c in certificates_of(t))]
    made, wrong = accepted(records, most=1)
    assert not wrong
    assert made["false"] > 100
    assert made["not shown"] > 100


LONG = ("structure", "gradients", "streaming", "masks")
BY_TOPIC = pytest.mark.parametrize(
    "topic", [pytest.param(t, marks=pytest.mark.exhaustive if t in LONG else pytest.mark.deep) for t in theorems.TOPICS]
)


@BY_TOPIC
def test_false_certificates_of_the_catalogue_are_refused(topic: str) -> None:
    total: Counter[str] = Counter()
    for theorem in theorems.of_topic(topic):
        made, wrong = accepted(certificates_of(theorem), most=1)
        assert not wrong, theorem.name
        total += made
    assert total or topic == "rounding"


def test_numbers_know_what_is_false() -> None:
    assert not any(fails(record, seeds=4) for record in RECORDS.values())
    assert fails(put(RECORDS["shift"], ("equations", 0, "left"), ["number", "1"]), seeds=4)


@pytest.mark.long
@BY_TOPIC
def test_what_certificates_say_holds_in_numbers(topic: str) -> None:
    for theorem in theorems.of_topic(topic):
        for n, certificate in enumerate(certificates_of(theorem)):
            if certificate["kind"] in ("certificate", "sign"):
                assert not fails(dict(certificate), seeds=4), f"{theorem.name}, certificate {n}"
