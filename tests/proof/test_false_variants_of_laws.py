"""False variants of means and variances are refuted at small sizes, by the moments of the declared law."""

from __future__ import annotations

import pytest

from symattn import Grade, prove
from symattn.proof.expectation import NORMAL
from symattn.proof.relations.glossary import Glossary
from symattn.theorems.texts import theorems

NORMALS = {"": Glossary(), "normal": Glossary(laws={"q": NORMAL, "k": NORMAL})}
RISING = "d_k (d_k + 2) (d_k + 4)"
TEXT = "t: T\n{}\nletters: normal | q d_k, k d_k\nfalse: {}\n"


@pytest.mark.parametrize(
    ("says", "false", "at"),
    [
        ("$Var(q·k) = d_k$", "$Var(q·k) = d_k²$", "d_k = 2: 2 ≠ 4"),
        ("$E[(q·k)⁴] = 3 d_k (d_k + 2)$", "$E[(q·k)⁴] = 9 d_k²$", "d_k = 2: 24 ≠ 36"),
        ("$Var(q·k/√d_k) = 1$", "$Var(q·k/d_k) = 1$", "d_k = 2: 1/2 ≠ 1"),
        ("$E[q_1⁶] = 15$", "$E[q_1⁶] = 16$", "d_k = 1: 15 ≠ 16"),
        ("$E[q_1¹⁴] = 135135$", "$E[q_1¹⁴] = 135136$", "d_k = 1: 135135 ≠ 135136"),
        (f"$E[(q·q) (q·k)⁴] = 3 {RISING}$", "$E[(q·q) (q·k)⁴] = 3 d_k² (d_k + 2)$", "d_k = 1: 45 ≠ 9"),
        (f"$E[(q·k)⁶] = 15 {RISING}$", f"$E[(q·k)⁶] = 16 {RISING}$", "d_k = 1: 225 ≠ 240"),
        (f"$E[(q·q)³] = {RISING}$", "$E[(q·q)³] = d_k³$", "d_k = 1: 15 ≠ 1"),
        ("$E[(q·k)⁷] = 0$", "$E[(q·k)⁷] = d_k$", "d_k = 1: 0 ≠ 1"),
    ],
)
def test_moments_at_small_sizes_refute_the_false_variant(says: str, false: str, at: str) -> None:

    (theorem,) = theorems("scaling", TEXT.format(says, false), NORMALS)
    (found,) = prove(theorem, cached=False).record["theorems"]
    assert (found["grade"], found["false_variant"]["grade"]) == (Grade.PROVED, Grade.REFUTED)
    assert found["false_variant"]["counterexample"] == at


@pytest.mark.parametrize(("size", "moment"), [(1, 225), (2, 720), (3, 1575)])
def test_the_sixth_moment_of_a_score_at_a_size(size: int, moment: int) -> None:
    text = TEXT.format(f"$E[(q·k)⁶] = {moment}$", f"$E[(q·k)⁶] = {moment + 15}$").replace("d_k", str(size))
    (found,) = prove(*theorems("scaling", text, NORMALS), cached=False).record["theorems"]
    assert (found["grade"], found["false_variant"]["grade"]) == (Grade.PROVED, Grade.REFUTED)


@pytest.mark.deep
def test_a_true_statement_is_no_false_variant() -> None:
    (theorem,) = theorems("scaling", TEXT.format("$Var(q·k) = d_k$", "$E[(q·k)²] = d_k$"), NORMALS)
    assert prove(theorem, cached=False).verdict_word == "undecided"
