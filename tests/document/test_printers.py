"""How formulas look: the spellings that readers and GitHub want."""

import re
from fractions import Fraction

import pytest

from symattn import Document
from symattn import printing as pr

pytestmark = pytest.mark.smoke

Q, K = pr.name("Q"), pr.name("K")
D_K, SIGMA, E = pr.name("d", "k"), pr.name("sigma"), pr.Name("e")
IDX, N = pr.name("i"), pr.name("n")


def q(*sub: pr.Like) -> pr.Name:
    return pr.name("q", *sub, role="query")


def k(*sub: pr.Like) -> pr.Name:
    return pr.name("k", *sub, role="key")


CASES: list[tuple[pr.Node, str, str, str]] = [
    (q("i") * k("i"), r"q_i k_i", "qᵢkᵢ", "q_i*k_i"),
    (D_K * SIGMA**4, r"d_k \sigma^4", "d_k σ⁴", "d_k*sigma^4"),
    (E ** (4 / pr.Root(pr.node(3))), r"e^{4/\sqrt{3}}", "e^(4/√3)", "exp(4/sqrt(3))"),
    (E, "e", "e", "exp(1)"),
    (Q * pr.Transposed(K) / pr.Root(D_K), r"\frac{Q\, K^\top}{\sqrt{d_k}}", "QKᵀ/√d_k", "Q*K^T/sqrt(d_k)"),
    (pr.total("i", 1, D_K, q("i")), r"\sum_{i = 1}^{d_k} q_i", "Σ_{i=1}^{d_k} qᵢ", "sum_{i=1}^{d_k} q_i"),
    (pr.name("p", 1) * (1 - pr.name("p", 1)), r"p_1 (1 - p_1)", "p₁(1 − p₁)", "p_1*(1 - p_1)"),
    (pr.Partial(pr.name("p", 1), pr.name("s", "j")), r"\frac{\partial p_1}{\partial s_j}", "∂p₁/∂sⱼ", "d p_1/d s_j"),
    (pr.Name("1", bold=True), r"\mathbf{1}", "𝟏", "1"),
    (pr.name("d", "model"), r"d_{\mathrm{model}}", "d_model", "d_model"),
    (pr.name("x̂"), r"\hat{x}", "x̂", "x"),
    (pr.Name("S'", (IDX,)) ** 2, "{S'}_i^2", "S′ᵢ²", "S'_i^2"),
    (pr.call("Var", pr.name("x")), r"\mathrm{Var}(x)", "Var(x)", "Var(x)"),
    (pr.Call(pr.Name("E"), (q(1) ** 2,), True), r"\mathbb{E}[q_1^2]", "E[q₁²]", "E[q_1^2]"),
    (pr.call("sech", pr.name("x")) ** 2, r"\mathrm{sech}^2(x)", "sech(x)²", "sech(x)^2"),
    (pr.Fence("floor", pr.Name("t") / pr.Name("r")), r"\Bigl\lfloor \frac{t}{r}\Bigr\rfloor", "⌊t/r⌋", "floor(t/r)"),
    (pr.Big("max", IDX, None, None, pr.Fence("abs", IDX)), r"\max_i\, \lvert i\rvert", "maxᵢ |i|", "max_i |i|"),
    (pr.relation(IDX, "≤", pr.Number(Fraction(1, 2))), r"i \le \tfrac{1}{2}", "i ≤ 1/2", "i <= 1/2"),
    (pr.Decimal("1.5e-10"), r"1.5\cdot 10^{-10}", "1.5e-10", "1.5e-10"),
    (pr.Decimal("-inf"), r"-\infty", "−∞", "-inf"),
    (pr.At(D_K, pr.equals(D_K, 4)), r"d_k\,\Big\vert_{d_k = 4}", "d_k |_{d_k=4}", "d_k |_{d_k=4}"),
    (pr.node(-2) * N, "-2 n", "−2n", "-2*n"),
    (2 * pr.Root(pr.node(2)) * N, r"2 \sqrt{2}\, n", "2√2·n", "2*sqrt(2)*n"),
    (pr.matrix([[1, 0], [2, -1]]), r"\begin{pmatrix} 1 & 0 \\ 2 & -1 \end{pmatrix}", "[1 0; 2 −1]", "[1 0; 2 -1]"),
    (pr.PlusMinus(pr.node(1)), r"\pm 1", "±1", "+-1"),
    (pr.equals(N, pr.commas(2, pr.Name("…"), 6)), r"n = 2, \dots, 6", "n = 2, …, 6", "n = 2, ..., 6"),
    (pr.Row((IDX, pr.Words("for every "), N)), r"i\quad \text{for every}\ n", "i  for every n", "i  for every n"),
]  # fmt: skip


@pytest.mark.parametrize(("x", "in_tex", "unicode", "in_ascii"), CASES)
def test_spelling(x: pr.Node, in_tex: str, unicode: str, in_ascii: str) -> None:
    assert pr.tex(x) == in_tex
    assert pr.text(x) == unicode
    assert pr.text(x, ascii=True) == in_ascii


@pytest.mark.parametrize("x", [case[0] for case in CASES])
def test_tex_is_fit_for_github(x: pr.Node) -> None:
    for inline in (False, True):
        shown = pr.tex(x, inline=inline)
        assert r"\operatorname" not in shown
        assert "|" not in shown
        assert shown.count("{") == shown.count("}")
        assert shown.isascii()
    printed = Document("listing", "x", ("x",), (pr.Steps((pr.Step(x),)),)).latex(fragment=True)
    assert printed.count("{") == printed.count("}")


@pytest.mark.parametrize(("columns", "environment"), [(10, "pmatrix"), (11, "array")])
def test_a_matrix_may_have_any_number_of_columns(columns: int, environment: str) -> None:
    assert rf"\begin{{{environment}}}" in pr.tex(pr.matrix([[1] * columns]))


def test_colours_are_named_only_when_asked_for() -> None:
    assert pr.tex(q(1), colours=True) == r"{\color{SAq}q}_1"
    assert pr.tex(q(1)) == "q_1"
    assert pr.text(q(1), colours=True) == "\x1b[31mq₁\x1b[0m"
    assert re.sub(r"\x1b\[\d*m", "", pr.text(q(1) * k(1), colours=True)) == pr.text(q(1) * k(1))


def test_an_unknown_sign_is_refused() -> None:
    with pytest.raises(ValueError, match="no relation sign"):
        pr.tex(pr.relation(IDX, "?", N))


def test_words_in_formulas() -> None:
    assert pr.tex(pr.Words("for ε ≤ 1_000 & 5 %")) == r"\text{for } \varepsilon \text{ } \le \text{ 1\_000 \& 5 \%}"


def _in_pdflatex(words: str) -> str:
    """What a paragraph of these words is in a document for LaTeX."""
    lines = Document("listing", "x", ("x",), (pr.Paragraph((words,)),)).latex().splitlines()
    return lines[lines.index(r"\end{document}") - 1]


def test_text_for_pdflatex() -> None:
    assert _in_pdflatex("50% & a_b #1 {x} ~ ^ \\ $") == (
        r"50\% \& a\_b \#1 \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{} \$"
    )
    assert _in_pdflatex("ε ≤ 2 × √3 − 1…") == (
        r"\ensuremath{\varepsilon} \ensuremath{\le} 2 × \ensuremath{\surd}3 \ensuremath{-} 1\dots{}".replace(
            "×", r"\ensuremath{\times}"
        )
    )
    assert _in_pdflatex("č {±1}⁸ 漢") == r"\v{c} \{\ensuremath{\pm}1\}\ensuremath{{}^{8}} \texttt{U+6F22}"


def test_text_in_ascii() -> None:
    assert pr.text(pr.Words("σ² ≤ 10⁶ — “é” 漢"), ascii=True) == 'sigma^2 <= 10^6 - "e" ?'


def test_a_greek_index_is_apart_from_the_letter_behind_it():
    assert pr.tex(pr.name("P", "δ", "l")) == r"P_{\delta l}"
    assert pr.tex(pr.name("a", "i", "j")) == "a_{ij}"
    assert pr.tex(pr.name("x", "δ")) == r"x_{\delta}"
    assert pr.tex(pr.name("x", "i", "δ")) == r"x_{i\delta}"
