"""Inferences that Coq draws from equations and bounds: each is accepted, and refused with one thing wrong in it."""

from dataclasses import replace
from typing import Any

import pytest

from symattn.proof.coq.coq_judges import judged
from symattn.proof.coq.inferences import lemmas
from tests.proof.test_coq import LIBRARY, letter, records, wrong_side


def of_kind(theorem: str, kind: str) -> Any:
    return next(c for c in records(theorem) if kind in (c["kind"], c.get("rule")))


def with_text(asked: list[Any], old: str, new: str) -> list[Any]:
    (one,) = asked
    assert old in one.text
    return [replace(one, text=one.text.replace(old, new))]


def small_mean(of: Any, mean: Any, result: Any) -> Any:
    """Of Σ_j s_j b_j / keep over the outcomes of b, and what is changed in it."""
    free, places = {"letter": "", "free": []}, {"letter": "y", "free": [["j", "n"]]}
    s, y, keep = (["letter", "s", [["j"]]], ["letter", "y", [["j"]]], letter("keep"))
    b, p = ["letter", "b", [["l"], ["j"]]], ["letter", "p", [["l"]]]

    def whole(x: Any) -> Any:
        return of(["total", "j", "n", ["ratio", ["product", s, x], keep]])

    def expected(x: Any) -> Any:
        return ["total", "l", "outcomes", ["product", p, x]]

    return {
        **{"kind": "step", "rule": "substitution"},
        "left": {**free, "expression": expected(whole(b))},
        "through": {**free, "expression": whole(y)},
        "right": {**free, "expression": result(["total", "j", "n", s])},
        "equal": [{**places, "expression": expected(b)}],
        "to": [{**places, "expression": mean(keep)}],
    }


def same(x: Any) -> Any:
    return x


@pytest.mark.coq
def test_the_mean_of_what_is_linear_follows_and_no_other() -> None:
    def twice(x: Any) -> Any:
        return ["product", ["number", "2"], x]

    so, seventh = small_mean(same, same, same), ["number", "1/7"]
    changed = [
        *(
            {key: {**so[key], "expression": ["sum", so[key]["expression"], seventh]}}
            for key in ("through", "left", "right")
        ),
        *({key: {**so[key], "expression": twice(so[key]["expression"])}} for key in ("left", "right")),
        {"to": [{**part, "expression": twice(part["expression"])} for part in so["to"]]},
    ]
    wrong = [
        *(x for n, change in enumerate(changed) for x in lemmas(f"changed {n}", [{**so, **change}])),
        *lemmas("more", [small_mean(lambda x: ["sum", x, ["number", "2"]], same, same)]),
        *lemmas("square", [small_mean(lambda x: ["product", x, x], same, lambda x: ["product", x, x])]),
        *lemmas("mean", [small_mean(same, twice, same)]),
        *lemmas("result", [small_mean(same, same, twice)]),
        *with_text(lemmas("text", [so]), "= keep)", "= keep * keep)"),
    ]
    assert len(wrong) == 11
    (asked,) = lemmas("so", [so])
    judgement = judged([asked, *wrong])
    assert judgement.accepted == {"so"}
    assert set(judgement.axioms) <= LIBRARY
    assert asked.readable
    assert "sum outcomes (fun j => p j * b j i) = keep" in asked.readable.statement


@pytest.mark.coq
def test_two_sides_that_differ_somewhere_do_and_alike_ones_do_not() -> None:
    so, wrong = [], []
    for name in ("rope-key-bias-not-redundant", "nope-causal-counts"):
        record = of_kind(name, "differing")
        so += lemmas(f"so {name}", [record])
        wrong += with_text(lemmas(f"zeros {name}", [record]), "=> 1)", "=> 0)")
        wrong += with_text(lemmas(f"equal {name}", [record]), "  <> ", "  = ")
        (alike,) = lemmas(f"alike {name}", [{**record, "right": record["left"]}])
        assert "are 0 or 1" in alike.why
    so += lemmas("so apart", [apart(["sum", letter("x"), ["number", "1"]], letter("x"), {"n": 2})])
    assert judged([*so, *wrong]).accepted == {x.name for x in so}
    assert all(x.readable and "exists (" in x.readable.statement for x in so)


def apart(left: Any, right: Any, sizes: dict[str, int]) -> Any:
    return {"kind": "differing", "free": [], "left": left, "right": right, "sizes": sizes, "rules": []}


def test_sides_that_differ_by_dividing_by_what_may_be_0_are_refused() -> None:
    (said,) = lemmas("so", [apart(["ratio", ["number", "1"], letter("x")], letter("x"), {})])
    assert "a divisor that is not positive by its form" in said.why


def test_sides_that_differ_where_no_size_or_array_is_left() -> None:
    one, nought = (["number", n] for n in "10")
    total = ["total", "j", "n", ["product", nought, ["letter", "x", [["j"]]]]]
    (said,) = lemmas("so", [apart(["sum", total, one], nought, {"n": 2})])
    assert said.readable
    assert said.readable.statement == "Theorem so :\n  1\n  <> 0."
    over = ["total", "j", "n", ["letter", "x", [["j"]]]]
    (said,) = lemmas("so", [apart(over, one, {})])
    assert "sizes that are not told" in said.why
    huge = ["exp", ["exp", ["product", ["number", "9"], ["exp", ["number", "9"]]]]]
    (said,) = lemmas("so", [apart(huge, nought, {})])
    assert "are 0 or 1" in said.why


def over_two(function: str, inside: Any) -> list[Any]:
    x: Any = ["function", function, ["bound", "j", "n", ["bound", "k", "m", inside]]]
    equation = {"free": [], "left": x, "right": x}
    return lemmas("x", [{"kind": "certificate", "equations": [equation], "rules": [], "positive": []}])


def test_a_maximum_over_two_indices_is_one_of_maxima_and_nothing_else_is() -> None:
    entry: Any = ["letter", "s", [["j"], ["k"]]]
    (made,) = over_two("max", entry)
    assert made.readable
    assert "max (map (fun i => max (map (fun j => s i j) (seq 0 m))) (seq 0 n))" in made.readable.statement
    for asked in (over_two("norm", entry), over_two("max", ["masked", ["is", "=", ["j"], ["j"]], entry])):
        assert asked[0].why == "coq: a function over two indices at once"


@pytest.mark.coq
def test_any_norm_of_a_mean_is_at_most_the_mean_of_norms_and_no_less_is_supposed() -> None:
    record = next(c for c in records("output-in-hull") if "triangle" in dict(c.get("laws", ())).values())
    (said,) = record["conclusions"]
    turned = {**said, "smaller": said["larger"], "larger": said["smaller"]}
    wrong = [
        *lemmas("turned", [{**record, "conclusions": [turned]}]),
        *lemmas("more", [{**record, "conclusions": [wrong_side(said, "larger", "-1/7")]}]),
        *lemmas("over", [{**record, "conclusions": [wrong_side(said, "smaller", "1/7")]}]),
        *with_text(lemmas("subadditive", [record]), " + norm (map (fun i => g i) (seq 0 d))", " + 0"),
        *with_text(lemmas("scaled", [record]), "Rabs t * norm", "t * t * norm"),
    ]
    (so,) = lemmas("so", [record])
    assert judged([so, *wrong]).accepted == {"so"}


@pytest.mark.coq
def test_roots_of_equals_and_logarithms_of_powers_are_accepted_and_others_refused() -> None:
    so, wrong = [], []
    for n, name in enumerate(("rope-group", "softmax-log-ratio", "lse-merge")):
        record = of_kind(name, "step")
        (said,) = record["conclusions"]
        *function, of = said["right"]
        spoiled_ones = (
            {**record, "conclusions": [{**said, "right": [*function, ["sum", of, ["number", "1/7"]]]}]},
            {**record, "conclusions": [{**said, "left": ["sum", said["left"], ["number", "1/7"]]}]},
            *([{**record, "premises": [{**p, "rules": []} for p in record["premises"]]}] if n == 0 else []),
        )
        so += lemmas(f"so {n}", [record])
        wrong += [x for k, one in enumerate(spoiled_ones) for x in lemmas(f"wrong {n} {k}", [one])]
    assert len(so) == 3
    assert len(wrong) == 7
    assert judged([*so, *wrong]).accepted == {x.name for x in so}
    (other,) = lemmas("other", [{**record, "rule": "equals"}])
    assert not other.text
    assert "equals" in other.why
