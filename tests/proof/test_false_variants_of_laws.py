"""False variants of means and variances are refuted at small sizes, by the moments of the declared law."""

from __future__ import annotations

import pytest

from symattn import Grade, prove
from symattn.proof.expectation import NORMAL
from symattn.proof.relations.glossary import Glossary
from symattn.theorems.texts import theorems

NORMALS = {"": Glossary(), "normal": Glossary(laws={"q": NORMAL, "k": NORMAL})}
TEXT = "t: T\n{}\nletters: normal | q d_k, k d_k\nfalse: {}\n"


@pytest.mark.parametrize(
    ("says", "false", "at"),
    [
        ("$Var(q·k) = d_k$", "$Var(q·k) = d_k²$", "d_k = 2: 2 ≠ 4"),
        ("$E[(q·k)⁴] = 3 d_k (d_k + 2)$", "$E[(q·k)⁴] = 9 d_k²$", "d_k = 2: 24 ≠ 36"),
        ("$Var(q·k/√d_k) = 1$", "$Var(q·k/d_k) = 1$", "d_k = 2: 1/2 ≠ 1"),
    ],
)
def test_moments_at_small_sizes_refute_the_false_variant(says: str, false: str, at: str) -> None:

    (theorem,) = theorems("scaling", TEXT.format(says, false), NORMALS)
    (found,) = prove(theorem, cached=False).record["theorems"]
    assert (found["grade"], found["false_variant"]["grade"]) == (Grade.PROVED, Grade.REFUTED)
    assert found["false_variant"]["counterexample"] == at


@pytest.mark.deep
def test_a_true_statement_is_no_false_variant() -> None:
    (theorem,) = theorems("scaling", TEXT.format("$Var(q·k) = d_k$", "$E[(q·k)²] = d_k$"), NORMALS)
    assert prove(theorem, cached=False).verdict_word == "undecided"
