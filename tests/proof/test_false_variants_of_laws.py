"""False variants of means and variances are refuted at small sizes, by the moments of the declared law."""

from __future__ import annotations

import pytest

from symattn import Grade, Undecided
from symattn.proof.expectation import NORMAL
from symattn.proof.random_polynomials import Moments, RandomPolynomial
from symattn.proof.relations.glossary import Glossary
from symattn.theorems.runner import decide_one
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
    from symattn.document.text import plain_text

    (theorem,) = theorems("scaling", TEXT.format(says, false), NORMALS)
    found = decide_one(theorem).finding
    assert (found.grade, found.false_grade) == (Grade.PROVED, Grade.REFUTED)
    assert plain_text(found.counterexample) == at


def test_a_true_statement_is_no_false_variant() -> None:
    (theorem,) = theorems("scaling", TEXT.format("$Var(q·k) = d_k$", "$E[(q·k)²] = d_k$"), NORMALS)
    assert decide_one(theorem).grade is Grade.UNDECIDED


def test_moments_are_those_of_the_law_or_refused() -> None:
    normal = Moments("x", NORMAL.cumulants())
    assert [normal.of_order(n) for n in range(9)] == [1, 0, 1, 0, 3, 0, 15, 0, 105]
    x, y = map(RandomPolynomial.entry, (0, 1))
    assert ((x + y * 2) ** 2 * x * x).mean([normal, normal]) == 3 + 4
    with pytest.raises(Undecided, match="of order 3 of x is not assumed"):
        (x**3).mean([Moments("x", NORMAL.cumulants()[:2])])
    with pytest.raises(Undecided, match="no polynomial"):
        1 / x
