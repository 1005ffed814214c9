"""Equality and order are decided, however close the numbers are."""

from fractions import Fraction

import flint
import pytest

from symattn import Undecided, kinds

pytestmark = pytest.mark.smoke

number = kinds.Quotient.of


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ("sqrt(2)*sqrt(3)", "sqrt(6)"),
        ("sqrt(8)", "2*sqrt(2)"),
        ("1/(1+sqrt(2))", "sqrt(2)-1"),
        ("1/(sqrt(2)+sqrt(3)+sqrt(5))", "(3*sqrt(2)+2*sqrt(3)-sqrt(30))/12"),
        ("exp(sqrt(2)+sqrt(3))*exp(-sqrt(3))", "exp(sqrt(2))"),
        ("exp(1/2)**2", "exp(1)"),
        ("exp(1/sqrt(3))**3", "exp(sqrt(3))"),
        ("(exp(2)-1)/(exp(1)-1)", "exp(1)+1"),
        ("(exp(2*sqrt(2))-exp(2))/(exp(sqrt(2))-exp(1))", "exp(1)+exp(sqrt(2))"),
        ("1/(1+exp(-4))", "exp(4)/(1+exp(4))"),
        ("(1+exp(1))/(2+2*exp(1))", "1/2"),
        ("sqrt(2)*exp(1)/2", "exp(1)/sqrt(2)"),
        ("exp(10**15)/(1+exp(10**15))", "1/(1+exp(-10**15))"),
    ],
)
def test_equal_numbers(x: str, y: str) -> None:
    a, b = number(x), number(y)
    assert a == b
    assert a.same(b)
    assert (a - b).is_zero()
    assert (a - b).sign() == 0
    assert not a.less(b)
    assert not b.less(a)
    assert a >= b
    assert hash(a) == hash(b)


@pytest.mark.parametrize(
    ("small", "large"),
    [
        ("1", "1+1e-30"),
        ("exp(1)", "exp(1)+1e-30"),
        ("exp(1.41421356)", "exp(sqrt(2))"),
        ("exp(sqrt(2))", "exp(1.4142135623730950488016887242096981)"),
        ("2.718281828459045235360287471352662497", "exp(1)"),
        ("exp(1)", "exp(1)*(1+1e-200)"),
        ("sqrt(2)+sqrt(3)", "sqrt(10)"),
        ("sqrt(1000001)+sqrt(1000025)", "2*sqrt(1000013)"),
        ("exp(10**9)", "exp(10**9)+1"),
        ("exp(10**15)/(1+exp(10**15))", "1"),
        ("1/(1+exp(10**12))", "1/exp(10**12)"),
        ("-exp(10**15)-exp(1)", "exp(-10**15)"),
    ],
)
def test_unequal_numbers_however_close(small: str, large: str) -> None:
    a, b = number(small), number(large)
    assert a != b
    assert a.less(b)
    assert a < b
    assert a <= b
    assert b > a
    assert b >= a
    assert not b.less(a)
    assert (a - b).sign() == -1
    assert (b - a).sign() == 1


def test_a_comparison_that_would_take_too_long_is_undecided() -> None:
    near = Fraction(*(int(p) for p in _e_to(1 << 18)))
    with pytest.raises(Undecided, match="131072 bits do not decide"):
        number(1).exp().less(number(near))
    assert number(1).exp() != number(near)  # equality needs no digits


def _e_to(bits: int) -> tuple[flint.fmpz, int]:
    with flint.ctx.workprec(bits + 64):
        scaled = (flint.arb(1).exp() * flint.arb(2) ** bits).floor().unique_fmpz()
    return scaled, 2**bits


def test_the_working_precision_is_left_as_it_was() -> None:
    before = flint.ctx.prec
    x = number("(1+4*exp(2))/(1+2*exp(2))")
    x.arb(500), x.sign(), x.to_float(), x.decimal(30), number("sqrt(2)-sqrt(3)").sign()
    assert flint.ctx.prec == before
    assert x.arb(500).rel_accuracy_bits() >= 490


@pytest.mark.parametrize(
    ("x", "k"),
    [
        ("exp(1)", None),
        ("3/6", Fraction(1, 2)),
        ("(1+exp(1))/(3+3*exp(1))", Fraction(1, 3)),
        ("sqrt(2)", None),
        ("0", 0),
    ],
)
def test_rational_values_are_known(x: str, k: Fraction | None) -> None:
    assert number(x).rational() == k


def test_constants_are_known_behind_a_common_sum() -> None:
    e = number(1).exp()
    root = number(2).sqrt()
    assert ((root + root * e) / (1 + e)).constant() == root.constant() is not None
    assert (e / (1 + e)).constant() is None
    assert ((1 + 2 * e) / (1 + e)).constant() is None
    assert e.constant() is None
