"""Inequalities by certificate: what is refused, that a false one never passes, and signs that forms show."""

import pytest

from symattn.arrays.index.axes import length
from symattn.arrays.indexed import Indexed
from symattn.document.evidence import Grade
from symattn.proof.inequality import Certificate
from symattn.proof.signs import never_negative
from symattn.proof.statement import Declared, Numbers
from symattn.proof.theorem import Theorem, decide
from symattn.proof.together import bound

XY = Declared({"x": "n", "y": "n"})


def method(sides, gap, declared=XY, **more):
    return Certificate(declared, sides, gap, lambda x: (x * 0 + 1, x * 0), **more)


def test_a_gap_that_is_the_difference_and_shows_its_sign_proves():
    found = method(lambda x, y: (2 * x * y, x * x + y * y), lambda x, y: (x - y) * (x - y)).decide()
    assert found.evidence.grade is Grade.PROVED


def test_a_gap_that_is_not_the_difference_does_not():
    found = method(lambda x, y: (x * y, x * x + y * y), lambda x, y: (x - y) * (x - y)).decide()
    assert found.evidence.grade is Grade.UNDECIDED


def test_a_gap_that_does_not_show_its_sign_does_not():
    found = method(lambda x, y: (2 * x * y, x * x + y * y), lambda x, y: x * x + y * y - 2 * x * y).decide()
    assert found.evidence.grade is Grade.UNDECIDED


def test_a_false_inequality_is_refuted_even_where_its_gap_is_the_difference():
    found = method(lambda x, y: (x * x, x * y), lambda x, y: x * y - x * x).decide()
    assert found.evidence.grade is Grade.REFUTED


def test_nothing_stated_is_not_proved():
    assert method(lambda x: [], lambda x: []).decide().evidence.grade is Grade.UNDECIDED


def test_hypotheses_may_be_used_and_are_looked_at_in_numbers():
    larger = {"gap": ("n", lambda x, y: y - x)}
    found = method(lambda x, y: (x, y), lambda gap: gap, assumed=larger)
    assert found.decide().evidence.grade is Grade.PROVED
    assert "n = " in found.witness()


def test_hypotheses_that_cannot_be_met_leave_no_witness():
    impossible = {"gap": ("n", lambda x: 0 * x - 1)}
    assert not method(lambda x: (x, x - 1), lambda gap: gap, assumed=impossible).witness()


def test_letters_declared_positive_count_and_others_do_not():
    assert method(lambda x: (0 * x, x), lambda x: x, Declared({"x": "n"}, positive=("x",))).decide().evidence.grade is (
        Grade.PROVED
    )
    assert method(lambda x: (0 * x, x), lambda x: x).decide().evidence.grade is Grade.REFUTED


def test_letters_that_are_not_negative_count_and_are_also_tried_at_0():
    declared = Declared({"x": "n"}, nonnegative=("x",))
    assert method(lambda x: (0 * x, x), lambda x: x, declared).decide().evidence.grade is Grade.PROVED
    assert method(lambda x: (0 * x, x / x), lambda x: x / x, declared).decide().proofs[0].demands
    drawn = {entry for seed in range(9) for entry in Numbers({"n": 3}, seed).array("x", "n", declared).tolist()}
    assert min(drawn) == 0


def test_of_several_false_variants_each_must_fail():
    def stated(*false):
        squares = bound({"x": "n"}, lambda x: (0 * x, x * x), lambda x: x * x, false)
        return decide(Theorem("squares", "test", ("0 ≤ x²",), squares, "folklore", ("others",)))

    assert stated(lambda x: (x * x, 0 * x), lambda x: (x, x * x)).sound
    assert not stated(lambda x: (x * x, 0 * x), lambda x: (-(x * x), 0 * x)).sound


X, Y = Indexed.letters("x", length("n")), Indexed.letters("y", length("n"))
XP = X.xp


def sign(x, *known):
    return all(never_negative(x.at(places), known) for places in x.places())


@pytest.mark.parametrize(
    "x",
    [
        X * X,
        X * X * X * X,
        XP.exp(X) / (1 + XP.exp(X)),
        XP.sum(X * X, axis=-1),
        XP.sqrt(X),
        XP.exp(X) - 1 - X,
        XP.exp(-X) - 1 + X,
        XP.exp(2 * X) - 1 - 2 * X,
        XP.exp(Y) - 1,
        XP.exp(Y) - 1 + Y,
        XP.exp(X * X) - 1,
        XP.sum(Y * (XP.exp(X) - 1 - X)),
        (X - XP.sum(X)) * (X - XP.sum(X)),
    ],
)
def test_what_is_never_negative(x):
    assert sign(x, "y")


@pytest.mark.parametrize(
    "x",
    [
        X,
        -X * X,
        X * X * X,
        X * X - 1,
        XP.exp(X) - 1,
        XP.exp(X) - 2 - X,
        XP.exp(X) - XP.exp(2 * X),
        XP.exp(X) / X,
        XP.max(X, axis=-1),
        XP.tanh(X),
        XP.sum(X, axis=-1),
        X * Y,
        XP.exp(Y) - 2,
        XP.exp(X) - 1 - 2 * X,
        XP.exp(X) - 1 + X,
        XP.exp(Y) - 1 - Y - Y,
        2 - XP.exp(Y),
        (X - XP.sum(X)) * (X + XP.sum(X)),
    ],
)
def test_what_the_form_does_not_show(x):
    assert not sign(x, "y")


def test_only_the_arrays_that_are_named_are_known():
    assert sign(X, "x")
    assert not sign(Indexed.letters("xy", length("n")), "x")
    assert not sign(X * Y, "x")
