"""Polynomials with rational exponents against floating point at positive points."""

from __future__ import annotations

from fractions import Fraction
from math import isclose, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symattn.document.errors import Refused
from symattn.proof.polynomial import Polynomial

X, Y = Polynomial.letter("x"), Polynomial.letter("y")
POINT = {"x": 1.7, "y": 0.6}


def at_point(p: Polynomial) -> float:
    total = 0.0
    for monomial, coefficient in p.terms.items():
        term = float(int(coefficient.p)) / float(int(coefficient.q))
        for letter, e in monomial:
            base = float(letter) if letter.isdigit() else POINT[letter]
            term *= base ** (int(e.p) / int(e.q))
        total += term
    return total


fractions = st.fractions(min_value=-5, max_value=5, max_denominator=6)
atoms = st.one_of(fractions.map(Polynomial.number), st.sampled_from([X, Y]))
trees = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda t: t[0] + t[1]),
        st.tuples(inner, inner).map(lambda t: t[0] - t[1]),
        st.tuples(inner, inner).map(lambda t: t[0] * t[1]),
    ),
    max_leaves=8,
)
monomials = st.tuples(
    st.fractions(min_value=Fraction(1, 6), max_value=40, max_denominator=6), st.integers(-3, 3), st.integers(-3, 3)
).map(lambda t: Polynomial.number(t[0]) * X ** t[1] * Y ** t[2])


@pytest.mark.deep
@given(trees, trees)
def test_sums_and_products(p: Polynomial, q: Polynomial) -> None:
    assert isclose(at_point(p + q), at_point(p) + at_point(q), abs_tol=1e-6)
    assert isclose(at_point(p * q), at_point(p) * at_point(q), abs_tol=1e-6, rel_tol=1e-9)
    assert (p + q) - q == p
    assert (p - q).terms == {} if p == q else (p - q).terms != {}


@given(monomials, monomials)
def test_roots_and_quotients(p: Polynomial, q: Polynomial) -> None:
    assert p.root() * p.root() == p
    assert isclose(at_point(p.root()), sqrt(at_point(p)))
    assert p * q * q.inverse() == p
    assert (p * q).root() == p.root() * q.root()


def test_surds_have_one_form() -> None:
    two, three, six = (Polynomial.number(n).root() for n in (2, 3, 6))
    assert two * three == six
    assert two != three
    assert Polynomial.number(8).root() == Polynomial.number(2) * two
    assert Polynomial.number(Fraction(1, 2)).root() == two.inverse()
    assert Polynomial.number(4).root().constant() == 2
    assert two.constant() is None


def test_substitution_takes_roots() -> None:
    assert X.root().at({"x": Polynomial.number(9)}).constant() == 3
    assert (X * Y).at({"x": Y}) == Y**2
    assert X.inverse().at({"x": Polynomial.number(4)}).constant() == Fraction(1, 4)


def test_degrees() -> None:
    assert (X * Y.inverse() + Y).degree("y") == 1
    assert Y.inverse().degree("y") == -1
    assert X.degree("y") == 0


@pytest.mark.parametrize("act", [lambda: (X + Y).inverse(), lambda: (X + Y).root(), lambda: (-X).root()])
def test_what_has_no_monomial_is_refused(act: object) -> None:
    assert callable(act)
    with pytest.raises(Refused):
        act()
