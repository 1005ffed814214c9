"""SymPy's expressions in the order and form in which people write them."""

from typing import Any

import pytest
import sympy

from symattn.document import notation as nt
from symattn.document.sympify import from_sympy, symbol_name
from symattn.document.tex import tex
from symattn.document.text import text

AT, X = sympy.Symbol("i"), sympy.Symbol("x")
F, SOFTMAX = sympy.Function("f"), sympy.Function("softmax")


@pytest.mark.parametrize(
    ("expression", "written"),
    [
        ("k_i*q_i", "qᵢkᵢ"),
        ("k_1**2*q_1**2", "q₁²k₁²"),
        ("k_1*k_2*q_1*q_2", "q₁k₁q₂k₂"),
        ("exp(4*sqrt(3)/3)", "e^(4/√3)"),
        ("exp(2)/(exp(2)+2*exp(4))", "1/(1 + 2e²)"),
        ("exp(-2)/(exp(-2)+2)", "1/(1 + 2e²)"),
        ("1/(1+exp(-4))", "1/(1 + e⁻⁴)"),
        ("(1+4*exp(2))/(1+2*exp(2))", "(1 + 4e²)/(1 + 2e²)"),
        ("(5-exp(2))/(1+exp(2))", "(5 − e²)/(1 + e²)"),
        ("(5*exp(4)-1)/(exp(4)+1)", "(5e⁴ − 1)/(1 + e⁴)"),
        ("(3+3*E+exp(4))/(1+E+exp(4))", "(3 + 3e + e⁴)/(1 + e + e⁴)"),
        ("p_1*(1-p_1)", "p₁(1 − p₁)"),
        ("p_1-p_1**2", "p₁ − p₁²"),
        ("q_1*k_1/sqrt(d_k)", "q₁k₁/√d_k"),
        ("d_k*((mu**2+sigma**2)**2-mu**4)", "d_k((μ² + σ²)² − μ⁴)"),
        ("sqrt(2)/2", "1/√2"),
        ("2*x/3-1", "2x/3 − 1"),
        ("-x/2", "−x/2"),
        ("x**-2", "1/x²"),
        ("x**(3/2)", "x^(3/2)"),
        ("log(x)*tanh(x/2)", "log(x) tanh(x/2)"),
        ("Max(a, b)", "max(a, b)"),
        ("-oo", "−∞"),
        ("0.25", "0.25"),
    ],
)
def test_written_form(expression: str, written: str) -> None:
    assert text(from_sympy(sympy.sympify(expression))) == written


@pytest.mark.parametrize(
    ("expression", "written"),
    [
        (
            sympy.Sum(sympy.Indexed("q", AT) * sympy.Indexed("k", AT), (AT, 1, sympy.Symbol("d_k"))),
            "Σ_{i=1}^{d_k} qᵢkᵢ",
        ),
        (sympy.Derivative(F(X), X), "∂f(x)/∂x"),
        (SOFTMAX(X), "softmax(x)"),
        (sympy.KroneckerDelta(AT, sympy.Symbol("j")), "δᵢⱼ"),
        (abs(X), "|x|"),
    ],
)
def test_written_form_of_composites(expression: Any, written: str) -> None:
    assert text(from_sympy(expression)) == written


@pytest.mark.parametrize(
    ("symbol", "written"),
    [
        ("d_model", r"d_{\mathrm{model}}"),
        ("sigma_Q", r"\sigma_Q"),
        ("s_ij", "s_{ij}"),
        ("x2", "x_2"),
        ("W_{Q}", "W_Q"),
        ("s_1_2", "s_{12}"),
        ("lamda", r"\mathrm{lamda}"),
    ],
)
def test_names(symbol: str, written: str) -> None:
    assert tex(symbol_name(symbol)) == written


def test_roles() -> None:
    assert symbol_name("q_1").role == "query"
    assert symbol_name("q_1", {}).role is None
    assert from_sympy(sympy.Symbol("s"), {"s": "score"}) == nt.Name("s", role="score")


@pytest.mark.parametrize("expression", [sympy.zoo, sympy.nan, sympy.Derivative(F(X), X, X)])
def test_what_has_no_notation_is_refused(expression: Any) -> None:
    with pytest.raises(TypeError, match="no notation"):
        from_sympy(expression)
