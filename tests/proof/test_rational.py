"""Equality of exponential quotients against SymPy and floating point, and what stays undecided."""

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from symattn.document.errors import Refused, Undecided
from symattn.proof.rational import Ring, all_equal

X, Y, C = sympy.symbols("x y c", real=True)
E = sympy.exp
ROOT = sympy.sqrt(2)


def equal(x: object, y: object) -> bool:
    return all_equal([(sympy.sympify(x), sympy.sympify(y))])


TRUE = [
    (E(X + C) / (E(X + C) + E(Y + C)), E(X) / (E(X) + E(Y))),
    (E(X / 2) ** 2, E(X)),
    (E(ROOT * X / 2) ** 2, E(ROOT * X)),
    (E(X * (Y + 1)), E(X * Y) * E(X)),
    (1 / (1 + E(-X)), E(X) / (1 + E(X))),
    (E(2), E(1) ** 2),
    (E(0), 1),
    ((X**2 - Y**2) / (X - Y), X + Y),
    (E(X) * E(-X), 1),
]
FALSE = [
    (E(X + C) / (E(X + C) + E(Y)), E(X) / (E(X) + E(Y))),
    (E(ROOT * X), E(X)),
    (E(X * Y), E(X) * E(Y)),
    (X, X + sympy.Rational(1, 10**30)),
    (E(X), 1 + X),
]


@pytest.mark.parametrize(("x", "y"), TRUE)
def test_true_equalities(x: object, y: object) -> None:
    assert equal(x, y)


@pytest.mark.parametrize(("x", "y"), FALSE)
def test_false_equalities(x: object, y: object) -> None:
    assert not equal(x, y)


def test_opaque_letters_say_yes_or_nothing() -> None:
    largest = sympy.Function("max", real=True)(X, Y)
    assert equal(E(X - largest) / (E(X - largest) + E(Y - largest)), E(X) / (E(X) + E(Y)))
    with pytest.raises(Undecided):
        equal(largest, X)
    with pytest.raises(Undecided):
        equal(E(X - largest), E(X))


def test_balls_say_no_where_normal_forms_may_miss_a_yes() -> None:
    assert not equal(ROOT * sympy.sqrt(3), sympy.sqrt(6) + 1)
    assert not equal(E(1 / X), E(X))


def test_what_has_no_normal_form_is_refused() -> None:
    with pytest.raises(Refused):
        equal(sympy.pi, X)


def test_a_vanishing_denominator_is_no_equality() -> None:
    ring = Ring([X])
    with pytest.raises(Undecided):
        (ring.of(0) ** -1).equals(ring.of(0) ** -1)


leaves = st.sampled_from([X, Y, E(X), E(Y - X), E(X * Y / 2), sympy.Integer(2), sympy.Rational(-1, 3)])
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda t: t[0] + t[1]),
        st.tuples(inner, inner).map(lambda t: t[0] * t[1]),
        inner.map(lambda t: 1 / (3 + t**2)),
    ),
    max_leaves=6,
)


@given(trees, trees)
def test_equality_agrees_with_numbers(x: sympy.Expr, y: sympy.Expr) -> None:
    point = {X: sympy.Rational(7, 10), Y: sympy.Rational(-13, 10)}
    gap = abs(sympy.N((x - y).subs(point), 30))
    assert equal(x, y) == (gap < sympy.Float("1e-20"))
