"""What compares no elements, which is neither proved nor checked."""

from symattn.document.evidence import Grade
from symattn.proof.inequality import Certificate
from symattn.proof.refuting import spread_sizes
from symattn.proof.statement import Declared
from symattn.proof.theorem import Identity
from symattn.proof.together import above_zero


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
    assert above_zero({"x": "n 1"}, lambda x: x[:, :0]).decide().evidence.grade is Grade.UNDECIDED
