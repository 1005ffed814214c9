"""How formulas look: the spellings that readers and GitHub want."""

from fractions import Fraction

import pytest

from symattn.document import notation as nt
from symattn.document.model import Document, Step, Steps
from symattn.document.notation import Big, Call, Fence, Name, Node, Row, equals, name, relation
from symattn.document.tex import escape_text, tex
from symattn.document.text import plain, text

pytestmark = pytest.mark.smoke

Q, K = name("Q"), name("K")
D_K, SIGMA, E = name("d", "k"), name("sigma"), Name("e")
IDX, N = name("i"), name("n")


def q(*sub: nt.Like) -> Name:
    return name("q", *sub, role="query")


def k(*sub: nt.Like) -> Name:
    return name("k", *sub, role="key")


CASES: list[tuple[Node, str, str, str]] = [
    (q("i") * k("i"), r"q_i k_i", "qᵢkᵢ", "q_i*k_i"),
    (D_K * SIGMA**4, r"d_k \sigma^4", "d_k σ⁴", "d_k*sigma^4"),
    (E ** (4 / nt.Root(nt.node(3))), r"e^{4/\sqrt{3}}", "e^(4/√3)", "exp(4/sqrt(3))"),
    (E, "e", "e", "exp(1)"),
    (Q * nt.Transposed(K) / nt.Root(D_K), r"\frac{Q\, K^\top}{\sqrt{d_k}}", "QKᵀ/√d_k", "Q*K^T/sqrt(d_k)"),
    (nt.total("i", 1, D_K, q("i")), r"\sum_{i = 1}^{d_k} q_i", "Σ_{i=1}^{d_k} qᵢ", "sum_{i=1}^{d_k} q_i"),
    (name("p", 1) * (1 - name("p", 1)), r"p_1 (1 - p_1)", "p₁(1 − p₁)", "p_1*(1 - p_1)"),
    (nt.Partial(name("p", 1), name("s", "j")), r"\frac{\partial p_1}{\partial s_j}", "∂p₁/∂sⱼ", "d p_1/d s_j"),
    (Name("1", bold=True), r"\mathbf{1}", "𝟏", "1"),
    (name("d", "model"), r"d_{\mathrm{model}}", "d_model", "d_model"),
    (name("x̂"), r"\hat{x}", "x̂", "x"),
    (Name("S'", (IDX,)) ** 2, "{S'}_i^2", "S′ᵢ²", "S'_i^2"),
    (nt.call("Var", name("x")), r"\mathrm{Var}(x)", "Var(x)", "Var(x)"),
    (Call(Name("E"), (q(1) ** 2,), True), r"\mathbb{E}[q_1^2]", "E[q₁²]", "E[q_1^2]"),
    (nt.call("sech", name("x")) ** 2, r"\mathrm{sech}^2(x)", "sech(x)²", "sech(x)^2"),
    (Fence("floor", Name("t") / Name("r")), r"\Bigl\lfloor \frac{t}{r}\Bigr\rfloor", "⌊t/r⌋", "floor(t/r)"),
    (Big("max", IDX, None, None, Fence("abs", IDX)), r"\max_i\, \lvert i\rvert", "maxᵢ |i|", "max_i |i|"),
    (relation(IDX, "≤", nt.Number(Fraction(1, 2))), r"i \le \tfrac{1}{2}", "i ≤ 1/2", "i <= 1/2"),
    (nt.Decimal("1.5e-10"), r"1.5\cdot 10^{-10}", "1.5e-10", "1.5e-10"),
    (nt.Decimal("-inf"), r"-\infty", "−∞", "-inf"),
    (nt.At(D_K, equals(D_K, 4)), r"d_k\,\Big\vert_{d_k = 4}", "d_k |_{d_k=4}", "d_k |_{d_k=4}"),
    (nt.node(-2) * N, "-2 n", "−2n", "-2*n"),
    (2 * nt.Root(nt.node(2)) * N, r"2 \sqrt{2}\, n", "2√2·n", "2*sqrt(2)*n"),
    (nt.matrix([[1, 0], [2, -1]]), r"\begin{pmatrix} 1 & 0 \\ 2 & -1 \end{pmatrix}", "[1 0; 2 −1]", "[1 0; 2 -1]"),
    (nt.PlusMinus(nt.node(1)), r"\pm 1", "±1", "+-1"),
    (equals(N, nt.commas(2, Name("…"), 6)), r"n = 2, \dots, 6", "n = 2, …, 6", "n = 2, ..., 6"),
    (Row((IDX, nt.Words("for every "), N)), r"i\quad \text{for every}\ n", "i  for every n", "i  for every n"),
]  # fmt: skip


@pytest.mark.parametrize(("x", "in_tex", "unicode", "in_ascii"), CASES)
def test_spelling(x: Node, in_tex: str, unicode: str, in_ascii: str) -> None:
    assert tex(x) == in_tex
    assert text(x) == unicode
    assert text(x, ascii=True) == in_ascii


@pytest.mark.parametrize("x", [case[0] for case in CASES])
def test_tex_is_fit_for_github(x: Node) -> None:
    for inline in (False, True):
        shown = tex(x, inline=inline)
        assert r"\operatorname" not in shown
        assert "|" not in shown
        assert shown.count("{") == shown.count("}")
        assert shown.isascii()
    printed = Document("listing", "x", ("x",), (Steps((Step(x),)),)).latex(fragment=True)
    assert printed.count("{") == printed.count("}")


@pytest.mark.parametrize(("columns", "environment"), [(10, "pmatrix"), (11, "array")])
def test_a_matrix_may_have_any_number_of_columns(columns: int, environment: str) -> None:
    assert rf"\begin{{{environment}}}" in tex(nt.matrix([[1] * columns]))


def test_colours_are_named_only_when_asked_for() -> None:
    assert tex(q(1), colours=True) == r"{\color{SAq}q}_1"
    assert tex(q(1)) == "q_1"
    assert text(q(1), colours=True) == "\x1b[31mq₁\x1b[0m"
    assert plain(text(q(1) * k(1), colours=True)) == text(q(1) * k(1))


def test_an_unknown_sign_is_refused() -> None:
    with pytest.raises(ValueError, match="no relation sign"):
        tex(relation(IDX, "?", N))


def test_words_in_formulas() -> None:
    assert tex(nt.Words("for ε ≤ 1_000 & 5 %")) == r"\text{for } \varepsilon \text{ } \le \text{ 1\_000 \& 5 \%}"


def test_text_for_pdflatex() -> None:
    assert escape_text("50% & a_b #1 {x} ~ ^ \\ $") == (
        r"50\% \& a\_b \#1 \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{} \$"
    )
    assert escape_text("ε ≤ 2 × √3 − 1…") == (
        r"\ensuremath{\varepsilon} \ensuremath{\le} 2 × \ensuremath{\surd}3 \ensuremath{-} 1\dots{}".replace(
            "×", r"\ensuremath{\times}"
        )
    )
    assert escape_text("č {±1}⁸ 漢") == r"\v{c} \{\ensuremath{\pm}1\}\ensuremath{{}^{8}} \texttt{U+6F22}"


def test_text_in_ascii() -> None:
    assert text(nt.Words("σ² ≤ 10⁶ — “é” 漢"), ascii=True) == 'sigma^2 <= 10^6 - "e" ?'


def test_a_greek_index_is_apart_from_the_letter_behind_it():
    assert tex(nt.name("P", "δ", "l")) == r"P_{\delta l}"
    assert tex(nt.name("a", "i", "j")) == "a_{ij}"
    assert tex(nt.name("x", "δ")) == r"x_{\delta}"
    assert tex(nt.name("x", "i", "δ")) == r"x_{i\delta}"
