"""A grade stands beside what was decided: code, print, and methods that are not symattn's are told apart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from symattn import Evidence, Grade, functional, printing, prove, proving, theorem

LETTERS = proving.letters_of("new | t n | index j n | sizes n | where p = softmax(t)", {})


@theorem(
    "participation",
    "mine",
    "$1/n ≤ Σ_{j=1}^{n} p_j²$",
    arrays={"t": "n"},
    letters=LETTERS,
    false=lambda t: (functional.softmax(t), 2 * functional.softmax(t)),
    false_says="$1/n ≥ 2 Σ_{j=1}^{n} p_j²$",
)
def participation(t):
    return functional.softmax(t), functional.softmax(t)


def test_a_bound_has_no_grade_of_code_that_says_something_else() -> None:
    document = prove(participation, cached=False)
    assert document.record["theorems"][0]["grade"] is Grade.SEARCHED
    printed, code = (block for block in document.blocks if isinstance(block, printing.Result))
    assert [e.grade for e in printed.evidence] == [Grade.SEARCHED]
    assert (code.title, [e.grade for e in code.evidence]) == ("What the code returns", [Grade.PROVED])
    assert "draws at sizes up to n = 5; " in printed.evidence[0].where
    assert "ascent from" in printed.evidence[0].where


class Own:
    """A method that says what it likes."""

    def __init__(self, grade: Grade) -> None:
        self.grade = grade

    def decide(self) -> proving.Decision:
        return proving.Decision(Evidence(self.grade, "all sizes", 1e-9 if self.grade is Grade.TESTED else None))

    def refute(self) -> proving.Refutation:
        return proving.Refutation(True, "n = 1")

    def witness(self) -> str:
        return "exact numbers at n = 1"


@pytest.mark.parametrize("grade", [Grade.COQ, Grade.PROVED, Grade.ARGUED, Grade.CHECKED, Grade.TESTED, Grade.SEARCHED])
def test_a_method_of_ones_own_has_the_grade_of_its_certificates(grade: Grade) -> None:
    own = proving.Theorem("own", "mine", ("P = NP",), Own(grade), "me", ("P ≠ NP",))
    (found,) = prove(own, cached=False).record["theorems"]
    assert found["grade"] is Grade.UNDECIDED
    assert "certificate" in found["where"]


def test_a_method_object_that_is_changed_is_not_symattns() -> None:
    method = proving.Identity(participation.method.declared, lambda t: (t, 2 * t), lambda t: (t, 3 * t))  # type: ignore[attr-defined]
    vars(method)["decide"] = Own(Grade.COQ).decide
    own = proving.Theorem("own", "mine", ("t = 2 t",), method, "me", ("t = 3 t",))
    assert prove(own, cached=False).verdict_word == "undecided"


@pytest.mark.deep
def test_a_search_is_open_unless_it_is_accepted(run) -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    Path("mine.py").write_text(source.partition("\ndef test_")[0], encoding="utf-8")
    assert run("prove", "mine.py").status == 3
    assert run("prove", "mine.py", "--accept", "searched").status == 0


ESCAPES = """
from symattn import theorem

@theorem("t\\x1b[2J", "mine\\x9b31m", "x + x = 2 x \\x1b]0;title\\x07", arrays={"x": "n"}, source="\\x1b[31mme\\u202e",
         false=lambda x: (x, 2 * x), false_says="x = 2 x\\x1b[1A")
def stated(x):
    return x + x, 2 * x
"""


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_words_do_not_command_a_terminal(run, form: str) -> None:
    Path("mine.py").write_text(ESCAPES, encoding="utf-8")
    ran = run("prove", "mine.py", "-f", form, "--color", "never")
    assert not [c for c in ran.stdout + ran.stderr if not c.isprintable() and c not in "\n\u00a0"]
    assert re.search(r"(x1b|u001b)(\\)?\[31mme", ran.stdout)  # Markdown escapes brackets
