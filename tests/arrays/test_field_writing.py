"""Exact numbers are written as a person would and read from text: never executed, never without bound."""

import contextlib
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symattn.arrays.field.parse import parse
from symattn.arrays.field.quotient import Quotient
from symattn.document import notation as nt
from symattn.document.errors import InputError
from tests.refusals import refuses

number = Quotient.of

# What is written of what: the forms of the worked examples, of scores, and of every rule.
FORMS = {
    "0": "0",
    "-2.5": "-5/2",
    "sqrt(12)": "2*sqrt(3)",
    "4*sqrt(3)/3": "4/sqrt(3)",
    "-sqrt(3)/3": "-1/sqrt(3)",
    "sqrt(3)/6": "1/(2*sqrt(3))",
    "sqrt(3)/2": "sqrt(3)/2",
    "-3*sqrt(2)/5": "-3*sqrt(2)/5",
    "157*sqrt(30378)/30378": "157/sqrt(30378)",
    "11*sqrt(1830)/610": "11*sqrt(1830)/610",
    "1/(1+sqrt(2))": "sqrt(2)-1",
    "(3+2*sqrt(2))/6": "(3+2*sqrt(2))/6",
    "-1-sqrt(2)": "-(1+sqrt(2))",
    "exp(1)": "exp(1)",
    "-exp(1)": "-exp(1)",
    "exp(1/sqrt(3))": "exp(1/sqrt(3))",
    "exp(-1/sqrt(3))": "exp(-1/sqrt(3))",
    "exp(sqrt(2)+1)": "exp(1+sqrt(2))",
    "3*exp(1/2)/2": "3*exp(1/2)/2",
    "sqrt(3)*exp(2)/3": "sqrt(3)*exp(2)/3",
    "(1+sqrt(2))*exp(1)": "(1+sqrt(2))*exp(1)",
    "exp(1)+(sqrt(2)-sqrt(3))*exp(2)": "exp(1)+(sqrt(2)-sqrt(3))*exp(2)",
    "exp(sqrt(2))-(1+sqrt(2))*exp(1)": "exp(sqrt(2))-(1+sqrt(2))*exp(1)",
    "1+5/exp(2)": "5*exp(-2)+1",
    "2+2*exp(1)": "2+2*exp(1)",
    "1/2+exp(2)/2": "(1+exp(2))/2",
    "3/2+3*exp(1)/2": "3*(1+exp(1))/2",
    "1/(2*exp(2)+1)": "1/(1+2*exp(2))",
    "-1/(1+2*exp(2))": "-1/(1+2*exp(2))",
    "-5/(1+2*exp(2))": "-5/(1+2*exp(2))",
    "3/(2+4*exp(2))": "3/(2*(1+2*exp(2)))",
    "(4*exp(2)+1)/(1+2*exp(2))": "(1+4*exp(2))/(1+2*exp(2))",
    "(5*exp(4)-1)/(exp(4)+1)": "(5*exp(4)-1)/(1+exp(4))",
    "(5-exp(2))/(1+exp(2))": "(5-exp(2))/(1+exp(2))",
    "(2*exp(4)+4)/(exp(4)+1)": "2*(2+exp(4))/(1+exp(4))",
    "1/(1+exp(-4))": "exp(4)/(1+exp(4))",
    "(3+3*E+E**4)/(1+E+E**4)": "(3+3*exp(1)+exp(4))/(1+exp(1)+exp(4))",
    "-2*(3+exp(8))/(1+exp(8)+exp(12))": "-2*(3+exp(8))/(1+exp(8)+exp(12))",
    "3*(1+exp(8))/(1+exp(8)+exp(12))": "3*(1+exp(8))/(1+exp(8)+exp(12))",
    "(exp(8)-9*exp(6)-29)/(5*(1+exp(6)+exp(8)))": "(exp(8)-9*exp(6)-29)/(5*(1+exp(6)+exp(8)))",
    "-3*(exp(8)-9*exp(6)-9)/(10*(1+exp(6)+exp(8)))": "3*(9+9*exp(6)-exp(8))/(10*(1+exp(6)+exp(8)))",
    "-1/(1-exp(2))": "1/(exp(2)-1)",
    "1/(1-exp(2))": "-1/(exp(2)-1)",
    "(1+exp(-2))/(1+exp(2))": "exp(-2)",
    "(5+exp(-2))/(1+exp(2))": "(1+5*exp(2))/(exp(2)+exp(4))",
    "sqrt(2)*exp(1)/(sqrt(2)+sqrt(2)*exp(1))": "exp(1)/(1+exp(1))",
    "1/(sqrt(6)+sqrt(6)*exp(1))": "sqrt(6)/(6*(1+exp(1)))",
    "1/(1+sqrt(2)*exp(1))": "1/(1+sqrt(2)*exp(1))",
    "(exp(2)-1)/(exp(1)-1)": "1+exp(1)",
    "(exp(4)-1)/(exp(6)-1)": "(1+exp(2))/(1+exp(2)+exp(4))",
    "(2+2*exp(1))/(1+exp(1))": "2",
    "(sqrt(2)+sqrt(2)*exp(1))/(1+exp(1))": "sqrt(2)",
    "1/(exp(1)+exp(sqrt(3)))": "1/(exp(1)+exp(sqrt(3)))",
    "(1-exp(10**15))/(1+exp(10**15))": "(1-exp(1000000000000000))/(1+exp(1000000000000000))",
}


@pytest.mark.parametrize(("given_as", "written"), FORMS.items())
def test_every_form(given_as: str, written: str) -> None:
    x = number(given_as)
    assert str(x) == written
    assert repr(x) == f"Quotient.of({written!r})"
    assert number(written) == x


e_powers = st.dictionaries(st.integers(-4, 6), st.integers(-9, 9).filter(bool), min_size=1, max_size=4)


def value(f: dict[int, int], step: Quotient) -> Quotient:
    return sum((c * (k * step).exp() for k, c in f.items()), number(0))


@settings(max_examples=60)
@given(e_powers, e_powers, e_powers, st.sampled_from([1, Fraction(1, 2), "1/sqrt(3)"]))
def test_one_number_has_one_form(f: dict[int, int], g: dict[int, int], h: dict[int, int], step: object) -> None:
    unit = number(step)
    n, d, common = value(f, unit), value(g, unit), value(h, unit)
    assert str((n * common) / (d * common)) == str(n / d)
    assert number(str(n / d)) == n / d


def test_notation_is_the_same_form() -> None:
    e2 = nt.Power(nt.Name("e"), nt.node(2))
    below = nt.Sum((nt.node(1), nt.Product((nt.node(2), e2))))
    assert number("-1/(1+2*exp(2))").notation() == nt.Neg(nt.Over(nt.node(1), below))
    assert number("3/(2+4*exp(2))").notation() == nt.Over(nt.node(3), nt.Product((nt.node(2), below)))
    assert number("E").notation() == nt.Name("e")
    assert number("4/sqrt(3)").notation() == nt.Over(nt.node(4), nt.Root(nt.node(3)))
    assert number("-1/3").notation() == nt.Neg(nt.Number(Fraction(1, 3)))
    assert number("exp(-1/sqrt(3))").notation() == nt.Power(
        nt.Name("e"), nt.Neg(nt.Over(nt.node(1), nt.Root(nt.node(3))))
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1/3", Fraction(1, 3)),
        ("-2.5", Fraction(-5, 2)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("0.1", Fraction(1, 10)),
        ("1e-3", Fraction(1, 1000)),
        ("1.5E+2", 150),
        (" ( 1 + 2 ) * 3 ", 9),
        ("--2", 2),
        ("2*-3", -6),
        ("-2**2", -4),
        ("2**-2", Fraction(1, 4)),
        ("2**3**2", 512),
        ("(-8)**1/3", Fraction(-8, 3)),
        ("6/2*3", 9),
        ("7-2-1", 4),
        ("0**0", 1),
        ("sqrt(9/4)", Fraction(3, 2)),
        ("exp(0)", 1),
        ("sqrt(exp(2))*exp(-1)", 1),
        ("E**2*exp(-2)", 1),
        ("sqrt(2)**2", 2),
        ("2**6500/2**6499", 2),
    ],
)
def test_values(text: str, value: object) -> None:
    assert parse(text).rational() == value


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected a number, exp(…), sqrt(…) or a bracket, at its end"),
        ("   ", "at its end"),
        ("1 2", "expected an operator, at position 3"),
        ("2^3", "a power is written **, at position 2"),
        ("2*", "at its end"),
        ("(1", "expected ), at its end"),
        ("1)", "expected an operator, at position 2"),
        ("*1", "at position 1"),
        ("x", "known are the names exp and sqrt, at position 1"),
        ("2*pi", "known are the names exp and sqrt, at position 3"),
        ("exp", "expected (, at its end"),
        ("exp 2", "expected (, at position 5"),
        ("sin(0)", "known are the names"),
        ("1/0", "division by zero, at position 2"),
        ("1/(sqrt(2)**2-2)", "division by zero, at position 2"),
        ("0**-1", "division by zero"),
        ("2**(1/2)", "an exponent is an integer of at most 10000, at position 2"),
        ("2**10001", "an exponent is an integer"),
        ("2**exp(1)", "an exponent is an integer"),
        ("exp(exp(1))", "second layer"),
        ("sqrt(-1)", "negative"),
        ("sqrt(1+exp(1))", "not in the decided field"),
        ("sqrt(1+sqrt(2))", "not in the decided field"),
        ("nan", "known are the names"),
        ("inf", "known are the names"),
        ("-inf", "known are the names"),
        ("1,5", "expected an operator, at position 2"),
        ("½", "at position 1"),
        ("١", "at position 1"),
        ("1_000", "expected an operator"),
        ("0x10", "expected an operator"),
        ("1j", "expected an operator"),
        ("__import__('os')", "known are the names"),
        ("exp(1).__class__", "expected an operator"),
        ("\x00", "at position 1"),
        ("1\n+\n", "at its end"),
    ],
)
def test_bad_text_is_named_with_its_position(text: str, complaint: str) -> None:
    refuses(parse, text, says=complaint)


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
        assert parse(HOSTILE[name]) == 1
    else:
        with pytest.raises(InputError):
            parse(HOSTILE[name])
    assert time.monotonic() - began < 5


@given(st.text(alphabet="0123456789.+-*/() esqrtxp", max_size=30))
def test_any_text_gives_a_number_or_bad_input(text: str) -> None:
    with contextlib.suppress(InputError):
        assert parse(text).is_zero() in (True, False)
