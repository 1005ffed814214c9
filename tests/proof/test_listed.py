"""Statements at listed sizes, and what compares no elements, which is neither proved nor checked."""

from symattn.document.errors import Refused
from symattn.document.evidence import Grade
from symattn.proof.inequality import Certificate
from symattn.proof.listed import Listed
from symattn.proof.refuting import spread_sizes
from symattn.proof.statement import Declared
from symattn.proof.theorem import Identity
from symattn.proof.together import Positive

SIZES = ({"n": 2}, {"n": 3})
NO_ARRAYS = Declared({})


def test_what_holds_in_every_case_is_checked_there():
    found = Listed(NO_ARRAYS, lambda n: n < 4, lambda n: n < 3, SIZES, ("numbers",)).decide()
    assert found.evidence.grade is Grade.CHECKED
    assert "n = 2; n = 3" in found.evidence.where
    assert found.argument == (("numbers",),)


def test_what_fails_in_one_case_is_refuted_there():
    found = Listed(NO_ARRAYS, lambda n: n < 3, lambda n: False, SIZES).decide()
    assert found.evidence.grade is Grade.REFUTED
    assert "n = 3" in found.evidence.where


def test_what_cannot_be_decided_is_not_checked():
    def refused(n):
        raise Refused("not here")

    found = Listed(NO_ARRAYS, refused, lambda n: False, SIZES)
    assert found.decide().evidence.grade is Grade.UNDECIDED
    assert not found.witness()


def test_a_true_variant_is_not_refuted():
    assert not Listed(NO_ARRAYS, lambda n: True, lambda n: n > 0, SIZES).refute().refuted
    assert Listed(NO_ARRAYS, lambda n: True, lambda n: n > 2, SIZES).refute().counterexample == "n = 2"


def test_arrays_of_truth_values_must_be_true_throughout():
    squares = Listed(Declared({"x": "n"}), lambda x: x * x >= 0, lambda x: [x * x >= 0, x >= 0], SIZES)
    assert squares.decide().evidence.grade is Grade.CHECKED
    assert squares.refute().refuted


def test_spread_sizes_tell_sorts_apart():
    found = spread_sizes(["d", "m", "n"], 3)
    assert any(s["m"] != s["n"] for s in found)
    assert max(max(s.values()) for s in found) == 3
    assert max(max(s.values()) for s in spread_sizes(["d", "m"], 2)) == 2


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
