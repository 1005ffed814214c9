"""Whatever a statement declares is among its printed hypotheses, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from symattn.document.text import plain_text
from symattn.proof.expectation import NORMAL, averaged, law_with
from symattn.proof.inequality import Certificate
from symattn.proof.statement import Declared
from symattn.proof.theorem import Identity, decide, theorem
from symattn.theorems.findings import finding


def hypotheses(method: Any) -> list[str]:
    found = method.decide()
    return [plain_text(h) for h in (*found.declared, *found.hypotheses)]


DECLARED = {
    "positive numbers": (Declared({"a": ""}, positive=("a",)), ["a > 0"]),
    "positive entries": (Declared({"a": "n"}, positive=("a",)), ["all entries of a are positive"]),
    "others": (Declared({"a": "n"}, nonnegative=("a",)), ["all entries of a are not negative"]),
    "units": (Declared({"a": "n", "s": "n"}, units=(("a", "s"),)), ["a² + s² = 1, place by place"]),
    "a permutation": (Declared({"a": "n"}, {"pi": "n"}), ["π is a permutation of the n places"]),
    "a size above 1": (Declared({"a": "n+1 d"}), ["a has the shape (n + 1) × d"]),
    "a number of entries": (Declared({"a": "2"}), ["a has 2 entries"]),
    "nothing": (Declared({"a": "n d"}), []),
}


@pytest.mark.parametrize("name", DECLARED)
def test_what_is_declared_is_printed(name: str):
    declared, expected = DECLARED[name]
    assert hypotheses(Identity(declared, lambda a: (a + a, 2 * a), ())) == expected


def test_what_is_assumed_is_printed_as_a_formula():
    stated = Certificate(
        Declared({"x": "n", "b": ""}),
        lambda x, b: (x, b + 0 * x),
        lambda below: below,
        (),
        {"below": ("n", lambda x, b: b - x)},
    )
    assert hypotheses(stated) == ["xᵢ ≤ b"]


def test_laws_are_printed():
    normal = averaged(lambda E: (E(lambda x: x * x), 1), {"x": NORMAL})
    assert hypotheses(Identity(Declared({"x": ""}), normal, ()))[-1] == "those of x are N(0, 1)"
    both = {"x": law_with("s", "m"), "y": law_with("s")}
    anything = averaged(lambda E, s: (E(lambda x, y: x * y), 0 * s), both)
    found = hypotheses(Identity(Declared({"x": "", "y": "", "s": "", "m": ""}), anything, ()))
    assert "all entries of x and y are independent" in found
    assert "those of x have the mean m, the variance s², and any further moments" in found


def test_no_divisor_is_spoken_of_where_nothing_is_divided():
    @theorem("tested", "mine", "…", arrays={"x": "n"}, false=lambda x: (x, 2 * x), false_says="…")
    def tested(x: Any) -> Any:
        return x.__array_namespace__().where(x == 0, 1 + x, 1 + x), 1 + x

    outcome = decide(tested)
    assert not finding(outcome).hypotheses
    assert outcome.grade.value == "checked"
