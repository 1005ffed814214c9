"""Doubles and digits are rounded correctly: against mpmath, Python's own rounding, and by hand at ties."""

import math
from decimal import ROUND_HALF_EVEN, Context
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from symattn.arrays.field.quotient import Quotient

number = Quotient.of
TINY = Fraction(1, 2**1074)  # the least subnormal


@given(st.fractions())
def test_rationals_round_as_python_does(r: Fraction) -> None:
    assert number(r).to_float() == float(r)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_come_back(x: float) -> None:
    assert number(x).to_float() == x


@pytest.mark.parametrize(
    ("r", "nearest"),
    [
        (1 + Fraction(1, 2**53), 1.0),
        (1 + Fraction(3, 2**53), 1 + 2**-51),
        (TINY / 2, 0.0),
        (TINY * Fraction(3, 2), 2 * 2.0**-1074),
        (TINY * Fraction(5, 2), 2 * 2.0**-1074),
        (Fraction(2**1024 - 2**970) - 1, 1.7976931348623157e308),
        (Fraction(2**1024 - 2**970), math.inf),
        (-(Fraction(2) ** 2000), -math.inf),
    ],
)
def test_ties_go_to_even_also_among_subnormals(r: Fraction, nearest: float) -> None:
    assert number(r).to_float() == nearest
    e = number(1).exp()
    assert ((r + r * e) / (1 + e)).to_float() == nearest  # the same number, well hidden


@pytest.mark.parametrize(
    ("r", "below", "above"),
    [
        (1 + Fraction(1, 2**53), 1.0, 1 + 2**-52),
        (TINY / 2, 0.0, 2.0**-1074),
        (TINY * Fraction(3, 2), 2.0**-1074, 2 * 2.0**-1074),
        (Fraction(2**1024 - 2**970), 1.7976931348623157e308, math.inf),
    ],
)
def test_next_to_a_tie(r: Fraction, below: float, above: float) -> None:
    nudge = number(-1000).exp() * number(Fraction(1, 10**200))
    assert (number(r) - r * nudge).to_float() == below
    assert (number(r) + r * nudge).to_float() == above
    assert (-(number(r) + r * nudge)).to_float() == -above


@pytest.mark.parametrize(
    "text",
    [
        "exp(1)", "exp(-1/sqrt(3))", "sqrt(2)", "(1+4*exp(2))/(1+2*exp(2))", "exp(-745)", "exp(-740)", "exp(709)",
        "1/(1+exp(744))", "exp(30)-10686474581524", "sqrt(2)+sqrt(3)-sqrt(10)",
    ],
)  # fmt: skip
def test_irrational_numbers_round_as_mpmath_does(text: str) -> None:
    with mpmath.workprec(4000):
        exact = eval(text, {"exp": mpmath.exp, "sqrt": mpmath.sqrt})
        fraction = Fraction(*mpmath.libmp.to_rational(exact._mpf_))
    assert number(text).to_float() == fraction.numerator / fraction.denominator
    for digits in (1, 5, 17, 40):
        rounded = Context(prec=digits, rounding=ROUND_HALF_EVEN).divide(fraction.numerator, fraction.denominator)
        assert Fraction(number(text).decimal(digits)) == Fraction(rounded)


@pytest.mark.parametrize(
    ("text", "nearest"),
    [("exp(710)", math.inf), ("-exp(10**15)", -math.inf), ("exp(-746)", 0.0), ("exp(-10**15)", 0.0)],
)
def test_beyond_the_doubles(text: str, nearest: float) -> None:
    assert number(text).to_float() == nearest


@pytest.mark.parametrize(
    ("text", "digits", "shown"),
    [
        ("1/(1+2*exp(2))", 6, "0.0633789"),
        ("(5*exp(4)-1)/(1+exp(4))", 9, "4.89208274"),
        ("exp(4)/(1+exp(4))", 9, "0.982013790"),
        ("-1/(1+2*exp(2))", 6, "-0.0633789"),
        ("1/(1+exp(8)+exp(12))", 5, "6.0337e-06"),
        ("exp(-1000)", 3, "5.08e-435"),
        ("exp(10**15)", 6, "6.72436e+434294481903251"),
        ("exp(20)", 6, "4.85165e+08"),
        ("exp(5)", 3, "148"),
        ("exp(5)", 1, "1e+02"),
        ("exp(1)", 1, "3"),
        ("sqrt(9999)", 3, "100"),
        ("sqrt(9999)", 4, "99.99"),
        ("0", 6, "0"),
        ("2", 6, "2"),
        ("-1/2", 6, "-0.5"),
        ("1/3", 6, "0.333333"),
        ("2/3", 1, "0.7"),
        ("1/8", 2, "0.12"),
        ("3/8", 2, "0.38"),
        ("999999.5", 6, "1.00000e+06"),
        ("99.95", 3, "100"),
        ("1234567", 6, "1.23457e+06"),
        ("1200000", 6, "1.2e+06"),
        ("0.0001", 3, "0.0001"),
        ("0.00001", 3, "1e-05"),
        ("100", 3, "100"),
        ("1/1000", 6, "0.001"),
        ("10**4000", 3, "1e+4000"),
        ("2*exp(10**400)/(1+3*exp(10**400))", 3, "0.667"),
        ("exp(10**15)/(1+exp(10**15))", 6, "1.00000"),
        ("1+exp(-10**15)", 6, "1.00000"),
        ("1000*exp(10**15)/(1+exp(10**15))", 1, "1e+03"),
        ("-(1000-exp(-10**15))", 4, "-1000"),
    ],
)
def test_digits(text: str, digits: int, shown: str) -> None:
    assert number(text).decimal(digits) == shown


@given(st.fractions(max_denominator=10**6), st.integers(1, 12))
def test_digits_of_rationals_as_the_decimal_module_rounds(r: Fraction, digits: int) -> None:
    rounded = Context(prec=digits, rounding=ROUND_HALF_EVEN).divide(r.numerator, r.denominator)
    assert Fraction(number(r).decimal(digits)) == Fraction(rounded)
