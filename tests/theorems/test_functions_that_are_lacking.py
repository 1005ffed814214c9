"""A statement with a function that a kind lacks ends by itself, and not with the file that it stands in."""

from __future__ import annotations

from pathlib import Path

import pytest

from symattn.arrays.ball import Ball
from symattn.arrays.exact import Exact
from symattn.document.errors import Refused
from symattn.document.evidence import Grade
from symattn.proof.statement import Declared
from symattn.proof.theorem import Identity

FILE = """
from symattn import theorem

def stated(name, says, sides):
    arrays = {"x": "n", "y": "n"}
    return theorem(name, "mine", says, arrays=arrays, false=lambda x, y: (x, y), false_says="x = y")(sides)

lacking = stated("lacking", "a function of x is one of y",
                 lambda x, y: (x.__array_namespace__().arccosh(x), x.__array_namespace__().arccosh(y)))
sums = stated("sums", "sums commute", lambda x, y: (x + y, y + x))
"""


def test_what_is_lacking_is_refused_by_name_and_others_go_on(run):
    Path("mine.py").write_text(FILE, encoding="utf-8")
    found = run("prove", "mine.py")
    assert "2 theorems: 1 proved, 1 undecided" in found.stdout
    assert "lacks arccosh" in " ".join(run("prove", "mine.py", "--explain").stdout.split()) + found.stdout


@pytest.mark.parametrize("kind", [Exact, Ball])
def test_a_kind_refuses_what_it_lacks(kind: type):
    with pytest.raises(Refused, match="lacks arccosh"):
        kind.xp.arccosh(kind.lift([2]))
    assert not hasattr(kind.xp, "arccosh")


def test_signs_do_not_add():
    def sides(x, y):
        sign = x.__array_namespace__().sign
        return sign(x + y), sign(x) + sign(y)

    found = Identity(Declared({"x": "n", "y": "n"}), sides, lambda x, y: (x, y)).decide()
    assert found.evidence.grade in (Grade.REFUTED, Grade.UNDECIDED)
