"""Exact numbers are written as a person would and read from text: never executed, never without bound."""

import contextlib
import re
import time
from fractions import Fraction

import flint
import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from symattn import InputError, Refused, kinds
from symattn import printing as pr
from tests.refusals import refuses

number = kinds.Quotient.of

# What is written of what: the forms of the worked examples, of scores, and of every rule.
FORMS = {
    "0": "0",
    "-2.5": "-5/2",
    "4*sqrt(3)/3": "4/sqrt(3)",
    "157*sqrt(30378)/30378": "157/sqrt(30378)",
    "-1-sqrt(2)": "-(1+sqrt(2))",
    "exp(sqrt(2)+1)": "exp(1+sqrt(2))",
    "3*exp(1/2)/2": "3*exp(1/2)/2",
    "exp(sqrt(2))-(1+sqrt(2))*exp(1)": "exp(sqrt(2))-(1+sqrt(2))*exp(1)",
    "1+5/exp(2)": "5*exp(-2)+1",
    "(3+3*E+E**4)/(1+E+E**4)": "(3+3*exp(1)+exp(4))/(1+exp(1)+exp(4))",
    "-3*(exp(8)-9*exp(6)-9)/(10*(1+exp(6)+exp(8)))": "3*(9+9*exp(6)-exp(8))/(10*(1+exp(6)+exp(8)))",
    "1/(1-exp(2))": "-1/(exp(2)-1)",
    "(5+exp(-2))/(1+exp(2))": "(1+5*exp(2))/(exp(2)+exp(4))",
    "1/(sqrt(6)+sqrt(6)*exp(1))": "sqrt(6)/(6*(1+exp(1)))",
    "(exp(4)-1)/(exp(6)-1)": "(1+exp(2))/(1+exp(2)+exp(4))",
    "(1-exp(10**15))/(1+exp(10**15))": "(1-exp(1000000000000000))/(1+exp(1000000000000000))",
}


@pytest.mark.parametrize(("given_as", "written"), FORMS.items())
def test_every_form(given_as: str, written: str) -> None:
    x = number(given_as)
    assert str(x) == written
    assert repr(x) == f"Quotient.of({written!r})"
    assert number(written) == x


e_powers = st.dictionaries(st.integers(-4, 6), st.integers(-9, 9).filter(bool), min_size=1, max_size=4)


def value(f: dict[int, int], step: kinds.Quotient) -> kinds.Quotient:
    return sum((c * (k * step).exp() for k, c in f.items()), number(0))


@settings(max_examples=60)
@given(e_powers, e_powers, e_powers, st.sampled_from([1, Fraction(1, 2), "1/sqrt(3)"]))
def test_one_number_has_one_form(f: dict[int, int], g: dict[int, int], h: dict[int, int], step: object) -> None:
    unit = number(step)
    n, d, common = value(f, unit), value(g, unit), value(h, unit)
    assert str((n * common) / (d * common)) == str(n / d)
    assert number(str(n / d)) == n / d


def test_notation_is_the_same_form() -> None:
    e2 = pr.Power(pr.Name("e"), pr.node(2))
    below = pr.Sum((pr.node(1), pr.Product((pr.node(2), e2))))
    assert number("-1/(1+2*exp(2))").notation() == pr.Neg(pr.Over(pr.node(1), below))
    assert number("3/(2+4*exp(2))").notation() == pr.Over(pr.node(3), pr.Product((pr.node(2), below)))
    assert number("E").notation() == pr.Name("e")
    assert number("4/sqrt(3)").notation() == pr.Over(pr.node(4), pr.Root(pr.node(3)))
    assert number("-1/3").notation() == pr.Neg(pr.Number(Fraction(1, 3)))
    assert number("exp(-1/sqrt(3))").notation() == pr.Power(
        pr.Name("e"), pr.Neg(pr.Over(pr.node(1), pr.Root(pr.node(3))))
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1/3", Fraction(1, 3)),
        (".5", Fraction(1, 2)),
        ("1e-3", Fraction(1, 1000)),
        (" ( 1 + 2 ) * 3 ", 9),
        ("--2", 2),
        ("-2**2", -4),
        ("2**-2", Fraction(1, 4)),
        ("2**3**2", 512),
        ("(-8)**1/3", Fraction(-8, 3)),
        ("6/2*3", 9),
        ("7-2-1", 4),
        ("0**0", 1),
        ("sqrt(9/4)", Fraction(3, 2)),
        ("sqrt(exp(2))*exp(-1)", 1),
        ("E**2*exp(-2)", 1),
        ("sqrt(2)**2", 2),
    ],
)
def test_values(text: str, value: object) -> None:
    assert number(text).rational() == value


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected a number, exp(…), sqrt(…) or a bracket, at its end"),
        ("1 2", "it is several numbers"),
        ("2^3", "a power is written **, at position 2"),
        ("(1", "expected ), at its end"),
        ("*1", "at position 1"),
        ("x", "known are the names exp and sqrt, at position 1"),
        ("exp 2", "expected (, at position 5"),
        ("1/(sqrt(2)**2-2)", "division by zero, at position 2"),
        ("0**-1", "division by zero"),
        ("2**(1/2)", "an exponent is an integer of at most 10000, at position 2"),
        ("exp(exp(1))", "second layer"),
        ("sqrt(-1)", "negative"),
        ("sqrt(1+sqrt(2))", "not in the decided field"),
        ("½", "at position 1"),
        ("1_000", "expected an operator"),
        ("__import__('os')", "known are the names"),
    ],
)
def test_bad_text_is_named_with_its_position(text: str, complaint: str) -> None:
    refuses(number, text, says=complaint)


HOSTILE = {
    "long": "1" * 1001,
    "brackets": "(" * 400 + "1" + ")" * 400,
    "powers": "2" + "**1" * 200,
    "signs": "-" * 900 + "1",
    "tower": "2**10000**10000",
    "towers": "((2**10000)**10000)**10000",
    "digits": "10**10000",
    "decimal exponent": "1e999999999",
    "product of many sums": "*".join(f"(1+exp({10**i}))" for i in range(50)),
    "powers of sums": "((1+exp(1))**100)**100",
    "products of roots": "*".join(f"(1+sqrt({p}))" for p in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43)),
    "inverse of roots": "1/(" + "+".join(f"sqrt({p})" for p in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31)) + ")",
    "a root to factor": f"sqrt({(2**107 - 1) * (2**89 - 1)})",
    "sum of quotients": "+".join(f"1/(1+exp({10**i}))" for i in range(45)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_answered_soon(name: str) -> None:
    began = time.monotonic()
    if name == "signs":
        assert number(HOSTILE[name]) == 1
    else:
        with pytest.raises(InputError):
            number(HOSTILE[name])
    assert time.monotonic() - began < 5


@given(st.text(alphabet="0123456789.+-*/() esqrtxp", max_size=30))
def test_any_text_gives_a_number_or_bad_input(text: str) -> None:
    with contextlib.suppress(InputError):
        assert number(text).is_zero() in (True, False)


# -- What random programs do not reach (``test_exact_fuzz``): long products, growth, hashes, types, refusals -----------
def exact_of(x: object) -> kinds.Quotient:
    return kinds.Quotient.of(x)


def test_long_products_with_far_exponents_stay_sparse() -> None:
    x = sum((exact_of(10**15 * k).exp() for k in range(1, 20)), exact_of(0)) + exact_of(1).exp()
    assert len((x * x).parts[1]) == 1 + 19 + 37


@pytest.mark.parametrize("zero", [exact_of(0), exact_of(1).exp() - exact_of(1).exp(), exact_of(2).sqrt() ** 2 - 2])
def test_division_by_an_exact_zero(zero: kinds.Quotient) -> None:
    for x in (exact_of(1), exact_of(0), exact_of(1).exp()):
        with pytest.raises(ZeroDivisionError):
            x / zero
    with pytest.raises(ZeroDivisionError):
        1 / zero
    with pytest.raises(ZeroDivisionError):
        zero**-1


def test_python_numbers_stand_on_either_side_and_foreign_types_are_left_alone() -> None:
    x = exact_of(1).exp()
    assert 1 + x == x + 1
    assert (1 - x) + (x - 1) == 0
    assert Fraction(1, 2) * x == x / 2
    assert 2 / x == 2 * (-exact_of(1)).exp()
    assert True + x == x + 1
    assert np.int64(3) * x == 3 * x
    for foreign in (1.5, "1", None, object()):
        assert x.__add__(foreign) is NotImplemented
        assert x.__rtruediv__(foreign) is NotImplemented
        assert x != foreign
    with pytest.raises(TypeError):
        x + 1.5


def test_denominators_do_not_grow_without_need() -> None:
    d, e = 1 + exact_of(1).exp(), 1 + exact_of(2).exp()
    x = exact_of(0)
    for _ in range(20):
        x = x + 1 / d + 1 / e
    assert x == 20 / d + 20 / e
    assert len(x.parts[2]) <= 4
    y = exact_of(1)
    for _ in range(200):
        y = y / 2 + exact_of(Fraction(1, 4))
    assert y.parts[2][0].bit_length() <= 210


def test_equal_numbers_have_equal_hashes() -> None:
    e = exact_of(1).exp()
    assert hash(exact_of("1/3")) == hash(Fraction(1, 3)) == hash((1 + e) / (3 + 3 * e))
    assert hash((e * e - 1) / (e - 1)) == hash(e + 1)
    assert len({exact_of("sqrt(8)"), 2 * exact_of("sqrt(2)"), exact_of("sqrt(2)")}) == 2


@pytest.mark.parametrize("n", [1, 2, 12, 360, 10**40, 2**301, 3 * 10**60, 1009**3 * 10007])
def test_squarefree_parts(n: int) -> None:
    root = number(n).sqrt()
    assert root * root == n
    under = re.search(r"sqrt\((\d+)\)", str(root))
    assert all(e == 1 for _, e in flint.fmpz(int(under[1]) if under else 1).factor())


def test_roots_of_integers_beyond_factoring_are_refused() -> None:
    p, q = 2**107 - 1, 2**89 - 1
    assert number((p * q) ** 2).sqrt() == p * q
    refuses(number(p * q).sqrt, kind=Refused, says="196-bit integer of unknown factors")


def test_inverses_of_many_roots_are_exact_or_refused() -> None:
    x = sum((number(p).sqrt() for p in (2, 3, 5, 7)), number(1))
    assert x * (1 / x) == 1
    root = number(30378).sqrt()
    assert 1 / root * 30378 == root
    for p in (11, 13, 17, 19, 23, 29):
        x = x + number(p).sqrt()
    refuses(lambda: 1 / x, kind=Refused, says="roots")


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
    assert kinds.Quotient.of(x).rational() == expected


def test_decimals_bfloat16_and_sympy_expressions() -> None:
    from decimal import Decimal

    import ml_dtypes

    assert exact_of(Decimal("-2.5e-3")).rational() == Fraction(-1, 400)
    assert exact_of(ml_dtypes.bfloat16(0.1)).rational() == Fraction(float(ml_dtypes.bfloat16(0.1)))
    x = sympy.exp(1) / (1 + 2 * sympy.exp(sympy.sqrt(2) / 3))
    assert exact_of(x) == exact_of("exp(1)/(1+2*exp(sqrt(2)/3))")


@pytest.mark.parametrize("x", [float("nan"), float("inf"), -np.inf, np.float16("nan"), sympy.nan, sympy.oo])
def test_nan_and_infinities_are_bad_input(x: object) -> None:
    with pytest.raises(InputError):
        exact_of(x)


@pytest.mark.parametrize("x", [None, 1j, [1], np.array([1]), object(), flint.arb(2), sympy.Symbol("x"), sympy.pi])
def test_what_is_no_exact_number_is_bad_input(x: object) -> None:
    with pytest.raises(InputError):
        exact_of(x)


def test_denominators_in_proportion_are_not_multiplied() -> None:
    """Values that are floats over one row of weights: their sum keeps the row's denominator, times a number."""
    row = kinds.Quotient.of("3+6*exp(sqrt(2))+9*exp(sqrt(3))")
    total = sum((kinds.Quotient.of(1) / (row * Fraction(n, 7)) for n in range(-5, 6) if n), kinds.Quotient.of(0))
    assert total == 0
    total = sum((kinds.Quotient.of(1) / (row * Fraction(n, 7)) for n in range(1, 9)), kinds.Quotient.of(0))
    assert len(total.parts[2]) == 3
    assert total * row == 7 * sum(Fraction(1, n) for n in range(1, 9))
