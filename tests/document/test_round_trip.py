"""What is printed or written means what the tree says: random trees and documents are read back and compared."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import pytest
import sympy
from hypothesis import assume, example, given
from hypothesis import strategies as st

from symattn import Grade
from symattn import printing as pr
from symattn.document.codec import record
from symattn.document.sympify import from_sympy
from tests.document.reading import read_tex, read_text

names = st.sampled_from(
    [pr.name("x"), pr.name("q", 1), pr.name("d", "k"), pr.name("σ"), pr.name("p", 12), pr.name("k", 2, role="key")]
)
numbers = st.fractions(min_value=-4, max_value=4, max_denominator=5).map(pr.Number)
naturals = st.integers(1, 12).map(pr.node)


def _branches(parts: st.SearchStrategy[pr.Node]) -> st.SearchStrategy[pr.Node]:
    several = st.lists(parts, min_size=1, max_size=3).map(tuple)
    exponents = st.one_of(st.integers(-2, 3).map(pr.node), parts)
    return st.one_of(
        several.map(pr.Sum),
        st.builds(pr.Product, several, st.sampled_from(["", "·"])),
        parts.map(pr.Neg),
        st.builds(pr.Over, parts, parts),
        st.builds(pr.Power, st.one_of(parts, st.just(pr.Name("e"))), exponents),
        parts.map(pr.Root),
        parts.map(lambda x: pr.call("tanh", x)),
    )


trees = st.recursive(st.one_of(names, numbers, naturals), _branches, max_leaves=8)


def value(x: pr.Node) -> Any:
    """What the tree means."""
    match x:
        case pr.Name("e", ()):
            return sympy.E
        case pr.Name():
            return sympy.Symbol(x.base + "".join(f"_{pr.text(s)}" for s in x.sub))
        case pr.Number():
            return sympy.Rational(x.value.numerator, x.value.denominator)
        case pr.Sum():
            return sympy.Add(*map(value, x.terms))
        case pr.Product():
            return sympy.Mul(*map(value, x.factors))
        case pr.Neg():
            return -value(x.body)
        case pr.Over():
            return value(x.numerator) / value(x.denominator)
        case pr.Power():
            return value(x.base) ** value(x.exponent)
        case pr.Root():
            return sympy.sqrt(value(x.body))
        case pr.Call():
            return sympy.tanh(value(x.arguments[0]))
    raise AssertionError(x)


def same(a: Any, b: Any) -> bool:
    """Equal as SymPy sees it, or equal at two points, complex roots and all."""
    if a == b:
        return True
    letters = sorted(a.free_symbols | b.free_symbols, key=str)
    points = [{s: sympy.Rational(k * i + 7, 5) for i, s in enumerate(letters)} for k in (3, 11)]
    return all(abs(complex((a - b).subs(p).evalf(30))) < 1e-9 * (1 + abs(complex(a.subs(p).evalf(30)))) for p in points)


def defined(x: pr.Node) -> Any:
    """The value, where it has no division by zero and no tower of powers out of reach."""
    wanted = value(x)
    assume(not wanted.has(sympy.zoo, sympy.nan, sympy.oo, sympy.I))
    points = wanted.subs({s: sympy.Rational(9, 5) for s in wanted.free_symbols}).evalf(15)
    assume(points.is_number and not points.has(sympy.zoo, sympy.nan) and abs(points) < 1e12)
    return wanted


@pytest.mark.deep
@given(trees)
@example(pr.Power(pr.Name("e"), pr.Neg(pr.Number(Fraction(-1)))))  # brackets above the line: e⁻⁽⁻¹⁾
def test_unicode_text_means_the_tree(x: pr.Node) -> None:
    wanted = defined(x)
    assert same(read_text(pr.text(x)), wanted), pr.text(x)


@pytest.mark.deep
@given(trees)
def test_ascii_text_is_read_by_sympify(x: pr.Node) -> None:
    wanted = defined(x)
    shown = pr.text(x, ascii=True)
    assert shown.isascii()
    read = sympy.sympify(shown).subs(sympy.Symbol("sigma"), sympy.Symbol("σ"))
    assert same(read, wanted), shown


@pytest.mark.deep
@given(trees, st.booleans(), st.booleans())
def test_tex_means_the_tree(x: pr.Node, inline: bool, grouped: bool) -> None:
    wanted = defined(x)
    shown = pr.tex(pr.Sum((x,)) if grouped else x, inline=inline)
    assert same(read_tex(shown), wanted), shown


@pytest.mark.deep
@given(trees)
def test_sympy_and_back(x: pr.Node) -> None:
    wanted = defined(x)
    shown = pr.text(from_sympy(wanted), ascii=True)
    read = sympy.sympify(shown).subs(sympy.Symbol("sigma"), sympy.Symbol("σ"))
    assert same(read, wanted), shown


def test_fractions_of_the_notation_are_exact() -> None:
    assert pr.node(Fraction(-1, 3)) == pr.Neg(pr.Number(Fraction(1, 3)))


class Place(NamedTuple):
    row: int
    column: int


_PLACE = Place(1, 2)


@dataclass(frozen=True)
class Plain:
    ratio: float
    grade: Grade = Grade.PROVED
    at: Place = _PLACE


@dataclass(frozen=True)
class Named:
    inner: Plain | None = None
    size: int = 0
    tail: int = 0
    more: str = ""

    RECORD = "of = inner.ratio, inner?, size?, tail?size, *extra"

    @property
    def extra(self) -> dict[str, str]:
        """Further entries."""
        return {"more": self.more} if self.more else {}


def test_fields_are_recorded_unless_entries_are_named() -> None:
    plain = {"ratio": "inf", "grade": "proved", "at": {"row": 1, "column": 2}}
    assert record(Plain(float("inf"))) == plain
    assert record(Named()) == {"of": None}
    assert record(Named(Plain(0.5), 3, more="x")) == {
        "of": 0.5, "inner": {**plain, "ratio": 0.5}, "size": 3, "tail": 0, "more": "x",
    }  # fmt: skip
    with pytest.raises(TypeError, match="no JSON for object"):
        record(object())


# -- SymPy's expressions in the order and form in which people write them ----------------------------------------------
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
    assert pr.text(from_sympy(sympy.sympify(expression))) == written


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
    assert pr.text(from_sympy(expression)) == written


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
    assert pr.tex(from_sympy(sympy.Symbol(symbol))) == written


def test_roles() -> None:
    assert from_sympy(sympy.Symbol("q_1")) == pr.name("q", 1, role="query")
    assert from_sympy(sympy.Symbol("q_1"), {}) == pr.name("q", 1)
    assert from_sympy(sympy.Symbol("s"), {"s": "score"}) == pr.Name("s", role="score")


@pytest.mark.parametrize("expression", [sympy.zoo, sympy.nan, sympy.Derivative(F(X), X, X)])
def test_what_has_no_notation_is_refused(expression: Any) -> None:
    with pytest.raises(TypeError, match="no notation"):
        from_sympy(expression)
