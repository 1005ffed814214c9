"""What compares no elements states nothing, and is neither proved nor checked."""

from __future__ import annotations

from symattn.document.evidence import Grade
from symattn.proof.inequality import Certificate
from symattn.proof.listed import Listed
from symattn.proof.statement import Declared
from symattn.proof.theorem import Identity
from symattn.proof.together import Positive

COLUMN = Declared({"x": "n 1"})


def test_an_identity_of_empty_arrays():
    stated = Identity(COLUMN, lambda x: (x[:, :0], 2 * x[:, :0]), lambda x: (x, 2 * x))
    assert stated.decide().evidence.grade is Grade.UNDECIDED
    assert not stated.witness()


def test_a_gap_without_elements_shows_no_inequality():
    def empty(x):
        return (x * x)[:, :0]

    # True, but not shown: an empty gap would show x ≤ 0 as well as 0 ≤ x².
    stated = Certificate(COLUMN, lambda x: (0 * x, x * x), empty, lambda x: (x * x, 0 * x))
    assert stated.decide().evidence.grade is Grade.UNDECIDED
    stated = Certificate(COLUMN, lambda x: (empty(x), -1 - empty(x)), empty, lambda x: (x * x, 0 * x))
    assert stated.decide().evidence.grade is Grade.UNDECIDED
    assert not stated.witness()


def test_no_element_is_positive():
    assert Positive(COLUMN, lambda x: x[:, :0]).decide().evidence.grade is Grade.UNDECIDED


def test_no_truth_value_is_true():
    for nothing in (lambda n: [], lambda n, x: x[:, :0] == 0):
        stated = Listed(COLUMN, nothing, lambda n: False, ({"n": 1}, {"n": 2}))
        assert stated.decide().evidence.grade is Grade.UNDECIDED
        assert not stated.witness()
