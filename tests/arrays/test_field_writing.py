"""Exact numbers are written as a person would, in a form that SymPy reads back."""

from fractions import Fraction

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from symattn.arrays.field.quotient import Quotient
from symattn.arrays.field.writing import normal
from symattn.document import notation as nt

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


@pytest.mark.parametrize("written", [w for w in FORMS.values() if "0000000" not in w])
def test_sympy_reads_what_is_written(written: str) -> None:
    x = number(written)
    read = sympy.sympify(written)
    assert sympy.simplify(read - x.to_sympy()) == 0
    assert number(read) == x
    assert float(read.evalf(30)) == pytest.approx(x.to_float(), rel=1e-15)


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


def test_the_form_is_in_lowest_terms() -> None:
    e = number(1).exp()
    form = normal((6 * e * e - 6) / (4 * e + 4) / 5)
    assert form.ratio == Fraction(3, 10)
    assert (form.sign, form.numerator, form.denominator) == (1, [(1, 1), (0, -1)], [(0, 1)])


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


def test_to_sympy() -> None:
    assert number("(1+4*exp(2))/(1+2*exp(2))").to_sympy() == (1 + 4 * sympy.exp(2)) / (1 + 2 * sympy.exp(2))
    assert number("-4/sqrt(3)").to_sympy() == -4 * sympy.sqrt(3) / 3
    assert number(0).to_sympy() == 0
