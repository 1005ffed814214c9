"""Functions of exact numbers, logarithms that wait, sums of many at once, and correct rounding of digits."""

import math
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context
from fractions import Fraction
from typing import Any

import flint
import mpmath
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from symattn import InputError, Refused, kind, kinds, printing

number = kinds.Quotient.of
SUM = number("1+2*exp(2)")


def test_sqrt_and_log_see_through_common_factors() -> None:
    e = number(1).exp()
    x = (e * e + e**3) / (1 + e)
    assert x.sqrt() == e
    assert x.log() == 2


@pytest.mark.parametrize(
    ("compute", "complaint"),
    [
        (lambda: SUM.exp(), r"exp\(1\+2\*exp\(2\)\): a second layer"),
        (lambda: SUM.sqrt(), r"sqrt\(1\+2\*exp\(2\)\) is not in the decided field"),
        (lambda: number("sqrt(2)").sqrt(), r"sqrt\(sqrt\(2\)\) is not"),
        (lambda: number(-2).sqrt(), r"sqrt\(-2\): the square root of a negative number"),
        (lambda: SUM.tanh(), r"tanh\(1\+2\*exp\(2\)\) is not"),
        (lambda: number(1).sin(), r"sin\(1\) is not"),
        (lambda: number(1).cos(), r"cos\(1\) is not"),
        (lambda: number(1).erf(), r"erf\(1\) is not"),
        (lambda: number(0).log(), r"log\(0\): the logarithm of a number that is not positive"),
        (lambda: (-SUM).log(), "not positive"),
        (lambda: SUM.log().sqrt(), r"sqrt\(log\(1\+2\*exp\(2\)\)\) is not"),
        (lambda: SUM.log().log(), r"log\(log"),
        (lambda: SUM.log().sin(), r"sin\(log"),
        (lambda: SUM.log().cos(), r"cos\(log"),
        (lambda: SUM.log().erf(), r"erf\(log"),
        (lambda: SUM.log() * Fraction(1, 2), "integer multiples only"),
        (lambda: SUM.log() * SUM, "integer multiples only"),
        (lambda: SUM.log() * SUM.log(), "integer multiples only"),
        (lambda: SUM.log() / 2, "integer multiples only"),
        (lambda: 1 / SUM.log(), "division by a logarithm"),
        (lambda: SUM.log() / SUM.log(), "division by a logarithm"),
        (lambda: (SUM.log() + SUM).exp(), "second layer"),
    ],
)
def test_what_leaves_the_field_is_refused_by_name(compute: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(Refused, match=complaint):
        compute()


def test_messages_stay_short() -> None:
    long = sum((number(k).exp() for k in range(200)), number(0))
    with pytest.raises(Refused) as caught:
        long.exp()
    assert len(str(caught.value)) < 200


def test_functions_whose_value_is_in_the_field() -> None:
    assert number(0).sin() == number(0).erf() == number(0).tanh() == 0
    assert number(0).cos() == number(0).exp() == 1
    assert str(number("1/2").tanh()) == "(exp(1)-1)/(1+exp(1))"
    with flint.ctx.workprec(200):
        assert number("sqrt(2)/3").tanh().arb(150).overlaps((flint.arb(2).sqrt() / 3).tanh())
    assert number(3).exp().log() == 3
    assert number("exp(-1/sqrt(3))").log() == number("-1/sqrt(3)")
    assert number(1).log() == 0


def test_a_logarithm_waits_for_exp() -> None:
    lse = SUM.log()
    assert isinstance(lse, kinds.Logarithm)
    assert lse.exp() == SUM
    assert (lse + 1).exp() == SUM * number(1).exp()
    assert (2 - lse).exp() == number(2).exp() / SUM
    assert (-lse).exp() == 1 / SUM
    assert (3 * lse).exp() == SUM**3
    assert (lse * -1).exp() == 1 / SUM
    assert (lse / -1).exp() == 1 / SUM
    assert (lse + number(3).log()).exp() == 3 * SUM
    assert lse.tanh() == (SUM**2 - 1) / (SUM**2 + 1)
    assert number(5) - lse == 5 - lse


def test_logarithms_close_to_zero_are_known_to_many_digits() -> None:
    log = number("1+exp(-10**15)").log()
    assert log.sign() == 1
    assert log.decimal() == number("exp(-10**15)").decimal()
    assert (-log).sign() == number("1-exp(-10**15)").log().sign() == -1
    assert log < number(2).log()


def test_logarithms_are_added_to_fractions_also_in_sums_and_products_of_arrays() -> None:
    exact = kind("exact")
    row = exact.lift([SUM.log(), "1/3", "1/1000003"])
    wanted = SUM.log() + Fraction(1, 3) + Fraction(1, 1000003)
    assert exact.xp.sum(row, axis=0).item() == wanted
    assert (row @ exact.lift([1, 1, 1])).item() == wanted
    assert (exact.lift([[1, 1, 1]]) @ row).item() == wanted
    assert (exact.lift([2, "1/3"]) @ exact.lift([SUM.log(), 1])).item() == 2 * SUM.log() + Fraction(1, 3)


def test_logarithms_that_are_numbers_become_numbers() -> None:
    lse = SUM.log()
    assert lse - lse == 0
    assert isinstance(lse - lse, kinds.Quotient)
    assert lse * 0 == 0
    assert (number("2*exp(3)").log() - number(2).log()).rational() == 3
    assert number(6).log() - number(3).log() == number(2).log()


def test_logarithms_are_compared() -> None:
    lse, two = SUM.log(), number(2).log()
    assert lse == (2 * SUM).log() - two
    assert lse != (2 * SUM).log()
    assert lse != 2
    assert lse < (SUM + number("1e-40")).log()
    assert not lse < lse
    assert lse <= lse
    assert lse > 2
    assert number(2) < lse
    assert lse < 3
    assert number(3) > lse
    assert lse >= number(2)
    assert two < 1
    assert two.sign() == 1
    assert (-two).sign() == -1
    assert abs(-two) == two
    assert bool(two)
    assert not two.is_zero()
    assert two.rational() is None is two.constant()
    assert two != "log(2)"
    for foreign in (1.5, "x", None):
        assert two.__add__(foreign) is NotImplemented
        assert two.__mul__(foreign) is NotImplemented
        assert two.__truediv__(foreign) is NotImplemented


def test_logarithms_are_written() -> None:
    two = number(2).log()
    assert str(two) == "log(2)"
    assert str(number("2*exp(3)").log()) == "3+log(2)"
    assert repr(two) == "Logarithm(log(2))"
    assert two.notation() == printing.Call(printing.Name("log"), (printing.node(2),))
    assert number("2*exp(3)").log().notation() == printing.node(3) + printing.Call(
        printing.Name("log"), (printing.node(2),)
    )
    assert sympy.sympify(str(number("2*exp(3)").log())) == number("2*exp(3)").log().to_sympy()
    assert two.decimal(10) == "0.6931471806"
    assert two.to_float() == 0.6931471805599453
    with flint.ctx.workprec(300):
        assert two.arb(250).overlaps(flint.arb(2).log())
    with pytest.raises(TypeError):
        hash(two)


def test_sums_at_once_of_other_elements_use_their_own_operations() -> None:
    two, lift = number(2).log(), kind("exact").lift
    assert (lift([two, number(1)]) @ lift([number(3), number(2)])).item() == number(8).log() + 2
    assert (lift([]) @ lift([])).item() == 0
    with pytest.raises(InputError, match="the inner sizes differ"):
        lift([number(1)]) @ lift([])


TINY = Fraction(1, 2**1074)  # the least subnormal


@given(st.fractions())
def test_rationals_round_as_python_does(r: Fraction) -> None:
    assert number(r).to_float() == float(r)


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
        ("1/(1+exp(8)+exp(12))", 5, "6.0337e-06"),
        ("exp(-1000)", 3, "5.08e-435"),
        ("exp(10**15)", 6, "6.72436e+434294481903251"),
        ("sqrt(9999)", 3, "100"),
        ("0", 6, "0"),
        ("2", 6, "2"),
        ("-1/2", 6, "-0.5"),
        ("1/8", 2, "0.12"),
        ("99.95", 3, "100"),
        ("1234567", 6, "1.23457e+06"),
        ("0.00001", 3, "1e-05"),
        ("2*exp(10**400)/(1+3*exp(10**400))", 3, "0.667"),
        ("1+exp(-10**15)", 6, "1.00000"),
        ("-(1000-exp(-10**15))", 4, "-1000"),
    ],
)
def test_digits(text: str, digits: int, shown: str) -> None:
    assert number(text).decimal(digits) == shown


@given(st.fractions(max_denominator=10**6), st.integers(1, 12))
def test_digits_of_rationals_as_the_decimal_module_rounds(r: Fraction, digits: int) -> None:
    rounded = Context(prec=digits, rounding=ROUND_HALF_EVEN).divide(r.numerator, r.denominator)
    assert Fraction(number(r).decimal(digits)) == Fraction(rounded)


def test_exponents_over_a_unit_may_be_fractions_and_roots() -> None:
    """e^(√2/3) + 2 e^(√2/6) + e^(√2/3 · √3/2) over the unit √2/3, by the exponents themselves."""
    computed = number("exp(sqrt(2)/3) + 2*exp(sqrt(2)/6) + exp(sqrt(2)/3 * sqrt(3)/2)").arb(50)
    two, six = flint.arb(2).sqrt(), flint.arb(6).sqrt()
    wanted = (two / 3).exp() + 2 * (two / 6).exp() + (six / 6).exp()
    assert computed.overlaps(wanted)
    assert computed.rad() < 1e-12
