"""Formulas as people type them: what is read, and what is refused."""

from dataclasses import fields
from fractions import Fraction
from typing import Any

import pytest

from symattn import Document
from symattn import printing as pr
from tests.refusals import refuses

Q, K = pr.Name("Q", role="query"), pr.Name("K", role="key")

#: A formula as it is typed, and as it is printed.
PRINTED = {
    "LN(a x + b 𝟏) = sign(a) LN(x)": "LN(ax + b 𝟏) = sign(a) LN(x)",
    "p_ij ≤ e^{2 τ}/(e^{2 τ} + n_k − 1)": "pᵢⱼ ≤ e^(2τ)/(e^(2τ) + n_k − 1)",
    "Σ_{j=1}^{n_k} p_j v_j + 1": "Σ_{j=1}^{n_k} pⱼvⱼ + 1",
    "max_{j ∈ M} s_j − max_j |x_j| |y|": "max_{j∈M} sⱼ − maxⱼ |xⱼ| |y|",
    "E[(q·k)⁴]/Var(q·k)² − 3 = 6/d_k": "E[(q·k)⁴]/Var(q·k)² − 3 = 6/d_k",
    "∂p_i/∂s_j = p_i (δ_ij − p_j)": "∂pᵢ/∂sⱼ = pᵢ(δᵢⱼ − pⱼ)",
    "f([x; y], (m, 0, 0)) = M⁻¹ᵀ": "f([x; y], (m, 0, 0)) = (M⁻¹)ᵀ",
    "(A B) C = A B C": "(AB) C = ABC",
    "{a + b}/c {x·y} = (a + b)/c": "((a + b)/c) x·y = (a + b)/c",
    "‖v‖_1 W_{V,t} (P Q)_{i, k}": "‖v‖₁W_{V,t}(PQ)_{i,k}",
    "−2 a/b c^{−x}": "−(2a/b) c^(−x)",
    "a − b − (c − d)": "a − b − (c − d)",
    "K″ = K′": "K″ = K′",
}


@pytest.mark.parametrize(("typed", "printed"), PRINTED.items())
def test_a_formula_prints_as_it_was_typed(typed: str, printed: str) -> None:
    assert pr.text(pr.formula(typed)) == printed


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "a +",
        "(a",
        "a)",
        "|a",
        "Σ_ p",
        "f(a",
        "a = ",
        "x_",
        "∂a",
        "[a; b",
        "a,",
        "x^",
        "/a",
        "a # b",
        "x ? y",
        "@z",
        "1 2)",
    ],
)
def test_what_is_no_formula_is_refused(typed: str) -> None:
    refuses(pr.formula, typed, says="cannot be read")


def test_letters_have_their_roles_but_not_as_indices() -> None:
    found = pr.formula("W_Q q_k", {"q": "query", "W_Q": "value", "k": "key"})
    assert [n.role for n in _names(found)] == ["value", None, "query", None]


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("Q Kᵀ/√d_k", pr.Over(pr.Product((Q, pr.Transposed(K))), pr.Root(pr.name("d", "k")))),
        ("a_ij", pr.name("a", "i", "j")),
        ("u_min", pr.name("u", "min")),
        ("q·R_m k", pr.Product((pr.name("q", role="query"), pr.name("R", "m") * pr.name("k", role="key")), "·")),
        ("2 x - (y + 1)", pr.node(2) * "x" - pr.Fence("round", pr.Name("y") + 1)),
        ("1/(1 + e)", pr.Over(pr.node(1), pr.node(1) + "e")),
        ("½ ≠ 1/2", pr.relation(pr.Number(Fraction(1, 2)), "≠", pr.Over(pr.node(1), pr.node(2)))),
        ("Σ_{j=1}^n x_j² = y", pr.equals(pr.total("j", 1, "n", pr.name("x", "j") ** 2), "y")),
        ("{max_i x_i} y", pr.Big("max", pr.Name("i"), None, None, pr.name("x", "i")) * "y"),
        ("|x_i - y| ‖J‖_∞", pr.Fence("abs", pr.name("x", "i") - "y") * pr.Fence("norm", pr.Name("J"), pr.Name("∞"))),
        ("W_{V, t}", pr.Name("W", (pr.commas("V", "t"),), "value")),
        ("softmax(s, 0)", pr.call("softmax", pr.Name("s", role="score"), 0)),
        ("r (s)", pr.Name("r") * pr.Fence("round", pr.Name("s", role="score"))),
        ("[1, -x; 0, 1]", pr.matrix([[1, -pr.Name("x")], [0, 1]])),
        ('β → 0 "as" n', pr.Row((pr.relation("β", "→", 0), pr.Words("as"), pr.Name("n")))),
        ("∂y/∂x_i", pr.Partial(pr.Name("y"), pr.name("x", "i"))),
        ("J 𝟏", pr.Name("J") * pr.Name("1", bold=True)),
        ("1, …, n", pr.commas(1, "…", "n")),
        ("(m)_{1,2}", pr.Fence("round", pr.Name("m"), pr.commas(1, 2))),
    ],
)
def test_a_formula_is_read_as_it_is_typed(typed: str, read: pr.Node) -> None:
    assert pr.formula(typed) == read


def test_values_and_roles_are_those_of_the_text() -> None:
    assert pr.formula("@x q", {"q": None}, {"x": pr.node(3)}) == pr.node(3) * "q"


def test_running_text_has_formulas_stress_and_code() -> None:
    said = pr.running_text("A *typical* $x$, by `symattn walk`.")
    assert pr.Name("x") in said
    document = Document("listing", "x", ("x",), (pr.Paragraph(said),))
    assert "A *typical* $x$, by `symattn walk`." in document.markdown()
    assert "A typical x, by symattn walk." in document.text()


def test_words_hold_formulas() -> None:
    assert pr.running_text("so $a = b$: $c$") == ("so ", pr.formula("a = b"), ": ", pr.formula("c"))


def test_a_formula_that_does_not_end_is_refused() -> None:
    refuses(pr.running_text, "it costs $5", says="none ends it")


def _names(x: Any) -> list[pr.Name]:
    """All names of a formula, each followed by those in its indices."""
    if isinstance(x, tuple):
        return [name for part in x for name in _names(part)]
    if not isinstance(x, pr.Node):
        return []
    whole: Any = x
    inner = [name for f in fields(whole) for name in _names(getattr(whole, f.name))]
    return [x, *inner] if isinstance(x, pr.Name) else inner
