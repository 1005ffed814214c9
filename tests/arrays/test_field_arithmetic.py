"""What random programs do not reach (``test_exact_fuzz``): long products, growth, hashes, types, refusals."""

from fractions import Fraction

import flint
import numpy as np
import pytest
import sympy

from symattn.arrays.field.quotient import Quotient
from symattn.arrays.field.surds import inverse, root, square_part
from symattn.document.errors import InputError, Refused
from tests.refusals import refuses


def number(x: object) -> Quotient:
    return Quotient.of(x)


def test_long_products_with_far_exponents_stay_sparse() -> None:
    x = sum((number(10**15 * k).exp() for k in range(1, 20)), number(0)) + number(1).exp()
    assert len((x * x).parts[1]) == 1 + 19 + 37


@pytest.mark.parametrize("zero", [number(0), number(1).exp() - number(1).exp(), number(2).sqrt() ** 2 - 2])
def test_division_by_an_exact_zero(zero: Quotient) -> None:
    for x in (number(1), number(0), number(1).exp()):
        with pytest.raises(ZeroDivisionError):
            x / zero
    with pytest.raises(ZeroDivisionError):
        1 / zero
    with pytest.raises(ZeroDivisionError):
        zero**-1


def test_python_numbers_stand_on_either_side_and_foreign_types_are_left_alone() -> None:
    x = number(1).exp()
    assert 1 + x == x + 1
    assert (1 - x) + (x - 1) == 0
    assert Fraction(1, 2) * x == x / 2
    assert 2 / x == 2 * (-number(1)).exp()
    assert True + x == x + 1
    assert np.int64(3) * x == 3 * x
    for foreign in (1.5, "1", None, object()):
        assert x.__add__(foreign) is NotImplemented
        assert x.__rtruediv__(foreign) is NotImplemented
        assert x != foreign
    with pytest.raises(TypeError):
        x + 1.5


def test_denominators_do_not_grow_without_need() -> None:
    d, e = 1 + number(1).exp(), 1 + number(2).exp()
    x = number(0)
    for _ in range(20):
        x = x + 1 / d + 1 / e
    assert x == 20 / d + 20 / e
    assert len(x.parts[2]) <= 4
    y = number(1)
    for _ in range(200):
        y = y / 2 + number(Fraction(1, 4))
    assert y.parts[2][0].bit_length() <= 210


def test_equal_numbers_have_equal_hashes() -> None:
    e = number(1).exp()
    assert hash(number("1/3")) == hash(Fraction(1, 3)) == hash((1 + e) / (3 + 3 * e))
    assert hash((e * e - 1) / (e - 1)) == hash(e + 1)
    assert len({number("sqrt(8)"), 2 * number("sqrt(2)"), number("sqrt(2)")}) == 2


@pytest.mark.parametrize("n", [1, 2, 12, 360, 10**40, 2**301, 3 * 10**60, 1009**3 * 10007])
def test_squarefree_parts(n: int) -> None:
    s, a = square_part(n)
    assert s * s * a == n
    assert all(e == 1 for _, e in flint.fmpz(a).factor())


def test_roots_of_integers_beyond_factoring_are_refused() -> None:
    p, q = 2**107 - 1, 2**89 - 1
    assert square_part((p * q) ** 2) == (p * q, 1)
    refuses(square_part, p * q, kind=Refused, says="196-bit integer of unknown factors")


def test_inverses_of_many_roots_are_exact_or_refused() -> None:
    x = 1 + root(2) + root(3) + root(5) + root(7)
    assert x * inverse(x) == 1
    assert inverse(root(30378)) * 30378 == root(30378)
    for p in (11, 13, 17, 19, 23, 29):
        x = x + root(p)
    refuses(inverse, x, kind=Refused, says="roots")


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (0.1, Fraction(0.1)),
        (np.float16(0.1), Fraction(float(np.float16(0.1)))),
        (np.float32(-2.5), Fraction(-5, 2)),
        (np.longdouble("0.1"), Fraction(*np.longdouble("0.1").as_integer_ratio())),
        (np.int8(-7), Fraction(-7)),
        (np.bool_(True), Fraction(1)),
        (np.array(0.5), Fraction(1, 2)),
        (True, Fraction(1)),
        (flint.fmpz(5), Fraction(5)),
        (flint.fmpq(2, 6), Fraction(1, 3)),
        (sympy.Rational(2, 6), Fraction(1, 3)),
        (sympy.Float(0.1), Fraction(0.1)),
        (Fraction(4, 6), Fraction(2, 3)),
    ],
)
def test_numbers_are_taken_at_their_exact_value(x: object, expected: Fraction) -> None:
    assert Quotient.of(x).rational() == expected


def test_decimals_bfloat16_and_sympy_expressions() -> None:
    from decimal import Decimal

    import ml_dtypes

    assert number(Decimal("-2.5e-3")).rational() == Fraction(-1, 400)
    assert number(ml_dtypes.bfloat16(0.1)).rational() == Fraction(float(ml_dtypes.bfloat16(0.1)))
    x = sympy.exp(1) / (1 + 2 * sympy.exp(sympy.sqrt(2) / 3))
    assert number(x) == number("exp(1)/(1+2*exp(sqrt(2)/3))")


@pytest.mark.parametrize("x", [float("nan"), float("inf"), -np.inf, np.float16("nan"), sympy.nan, sympy.oo])
def test_nan_and_infinities_are_bad_input(x: object) -> None:
    with pytest.raises(InputError):
        number(x)


@pytest.mark.parametrize("x", [None, 1j, [1], np.array([1]), object(), flint.arb(2), sympy.Symbol("x"), sympy.pi])
def test_what_is_no_exact_number_is_bad_input(x: object) -> None:
    with pytest.raises(InputError):
        number(x)


def test_denominators_in_proportion_are_not_multiplied() -> None:
    """Values that are floats over one row of weights: their sum keeps the row's denominator, times a number."""
    row = Quotient.of("3+6*exp(sqrt(2))+9*exp(sqrt(3))")
    total = sum((Quotient.of(1) / (row * Fraction(n, 7)) for n in range(-5, 6) if n), Quotient.of(0))
    assert total == 0
    total = sum((Quotient.of(1) / (row * Fraction(n, 7)) for n in range(1, 9)), Quotient.of(0))
    assert len(total.parts[2]) == 3
    assert total * row == 7 * sum(Fraction(1, n) for n in range(1, 9))
