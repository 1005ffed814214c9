"""Identities: several false variants, statements of nothing, and derivatives with axes."""

from __future__ import annotations

import pytest

from symattn.arrays.exact import Exact
from symattn.attention.softmax import softmax
from symattn.document.evidence import Grade
from symattn.proof.gradients import gradient, jacobian
from symattn.proof.statement import Declared
from symattn.proof.theorem import Identity

S = Declared({"s": "n m", "t": "n 1"})


def shift(s, t):
    return softmax(s + t), softmax(s)


def test_of_several_false_variants_each_must_be_refuted():
    wrong, right = (lambda s, t: (softmax(t * s), softmax(s))), (lambda s, t: (softmax(s - t), softmax(s)))
    both = Identity(S, shift, (wrong, lambda s, t: (softmax(s) + t, softmax(s)))).refute()
    assert both.refuted
    assert not both.accepted
    assert "; " in both.counterexample
    one = Identity(S, shift, (wrong, right)).refute()
    assert not one.refuted
    assert one.accepted


def test_nothing_stated_is_not_proved():
    assert Identity(S, lambda s: [], shift).decide().evidence.grade is Grade.UNDECIDED


def test_what_numbers_contradict_is_refuted():
    assert Identity(S, lambda s: (softmax(s), s), shift).decide().evidence.grade is Grade.REFUTED


def test_a_jacobian_has_the_axes_of_the_value_and_then_those_of_the_array():
    x, w = Exact.lift([1, 2]), Exact.lift([[1, 2, 3], [4, 5, 6]])
    found = jacobian(lambda x, w: (x[None, :] @ w)[0], "x", x=x, w=w)
    assert found.shape == (3, 2)
    assert bool((found == w.mT).all())
    by_matrix = jacobian(lambda x, w: (x[None, :] @ w)[0], "w", x=x, w=w)
    assert by_matrix.shape == (3, 2, 3)
    for a in range(3):
        for j in range(3):
            assert bool((by_matrix[a, :, j] == (x if a == j else 0 * x)).all())


@pytest.mark.parametrize("by", ["x", "w"])
def test_the_gradient_is_the_jacobian_of_a_value_without_axes(by):
    given = {"x": Exact.lift([1, 2]), "w": Exact.lift([3, 4])}
    other = given["w" if by == "x" else "x"]
    assert bool((gradient(lambda x, w: (x * w).sum(), by, **given) == other).all())
