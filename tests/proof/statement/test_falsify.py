"""False formulas are not printed: mutants of every relation of the derivations, and of the statements of theorems."""

import re
from typing import Any

import pytest

from symattn import Document, Evidence, Grade, printing, theorems
from symattn.derivations.examples import names as examples
from tests.proof.statement import strings
from tests.proof.statement.falsify import DOCUMENTS, VARIANT_DOCUMENTS, Figures, falsified, printed, questions, walked

TRUE_OF_VARIANTS = {
    r"dropped factor: 𝟏 = 𝟏": "it says nothing",
    r".*(\(a − 1\)|\(a−1\))": "a = 1, or d_n = 1, in this variant",
    r".*: [kv]_ail = Σ_{m=1}\^{d_model} x_im w_ml ": "a = 1 in this variant",
    r".*n_[qk] − n_[qk]": "n_q = n_k in this variant",
    r".*(cos|sin)\(p\)": "there is one frequency, 1",
}


TRUE_AFTER_ALL = {
    r"dropped factor: σ² ≤ σ² ": "an equation is a bound",
    r"constant: σ²Σ_{j=1}\^{n_k} pⱼ³ ≤ σ² ": "a weaker bound, as no weight is above 1",
    r"transposition: .*softmax\(\(sᵀ, b\)\) V₊ ": "scores of one query, as a row or a column",
}


def left(found: Figures) -> list[str]:
    """Survivors of a derivation that are not known to be true."""
    return [s for s in found.survivors if not any(re.match(words, s) for words in TRUE_AFTER_ALL)]


def left_of_variant(found: Figures) -> list[str]:
    """Survivors of ``derive attention`` that are not known to be true."""
    return [s for s in found.survivors if not any(re.match(words, s) for words in TRUE_OF_VARIANTS)]


@pytest.mark.deep
@pytest.mark.parametrize("asked", DOCUMENTS[3:], ids=str)
def test_one_mutant_in_five_is_refused(asked: tuple[str, dict[str, object]]) -> None:
    assert not left(falsified(questions(*asked), stride=5))


@pytest.mark.exhaustive
@pytest.mark.parametrize("asked", DOCUMENTS, ids=str)
def test_every_mutant_is_refused(asked: tuple[str, dict[str, object]]) -> None:
    found = falsified(questions(*asked))
    assert len({*found.refused}) >= 5
    assert not left(found)


@pytest.mark.deep
@pytest.mark.parametrize(("name", "parameters"), VARIANT_DOCUMENTS)
def test_every_formula_of_variants(name: str, parameters: Any) -> None:
    found = falsified(questions(name, parameters))
    assert len({*found.refused}) >= 5
    assert not left_of_variant(found)


WEAKER = (
    "pⱼ ≤ e^w/(e^(−w) + n_k − 1)",
    "e^(−2η) ≤ pⱼ/qⱼ",
    "pⱼ/qⱼ ≤ e^(2η)",
    "σ² ≤ σ²",
    "σ²Σ_{j=1}^{n_k} pⱼ³ ≤ σ²",
    "pⱼ ≥ e^(−3‖v‖₁)/n_k",
    "pⱼ ≥ e^(−(15/7) ‖v‖₁)/n_k",
    "Σ_{j≤i−L} pᵢⱼ ≤ e^(w + aL)",
    "Σ_{j≤i−L} pᵢⱼ ≤ e^w",
    "rank(Kᵀ) ≤ d_k",
    "rank(Q) ≤ d_k",
    "rank(KᵀQ) ≤ d_k",
)
"""Bounds that are weaker than the printed ones, of which some are sharp only where w, σ or v is 0."""

SAME = (
    "LN(ax − b 𝟏) = sign(a) LN(x)",
    "LN(ax) = sign(a) LN(x)",
    "LN(ax + 𝟏) = sign(a) LN(x)",
    "sparsemax(s − c 𝟏) = sparsemax(s)",
    "sparsemax(s) = sparsemax(s)",
    "sparsemax(s + 𝟏) = sparsemax(s)",
    "Jᵀ = (1/s)(Π − x′ x′ᵀ/d_model)",
    "(sJ)³ = sJ",
    "(sJᵀ)² = sJ",
    "(sJ)² = sJᵀ",
    "(X_L)₁ = (X₁)₁",
    "maxᵢ |(X_L)ᵢ − (X₁)₁| ≤ (1 − ε)^L·maxᵢ |(X₀)ᵢ − (X₀)₁|",
    "maxᵢ |(X_L)ᵢ − (X₀)₁| ≤ (1 − ε)^L·maxᵢ |(X₀)ᵢ − (X₁)₁|",
    "e^(−Tⱼ) ≤ pⱼ/p̂ⱼ ≤ e^(Tⱼ)",
    "δ(P) ≤ 1 − n min(Pᵀ)",
    "fl(−458529/7 + s) = −∞",
)
"""What is added to all entries is not seen, J is symmetric and sJ a projection, the first token stays what it is,
x and 1/x lie between e^−T and e^T together, and 458529/7 is rounded to 65504."""


def left_of_theorem(found: Figures) -> list[str]:
    """Survivors of the statements of theorems that are not known to be true."""
    return [s for s in found.survivors if s.partition("   (of ")[0].split(": ", 1)[1] not in {*WEAKER, *SAME}]


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize("topic", theorems.TOPICS)
def test_one_mutant_of_theorems_in_seven_is_refused(topic: str) -> None:
    refused = 0
    for theorem in theorems.of_topic(topic):
        found = falsified(printed(theorem), stride=7)
        assert not left_of_theorem(found), theorem.name
        refused += sum(found.refused.values())
    assert refused > 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("topic", theorems.TOPICS)
def test_every_mutant_of_theorems_is_refused(topic: str) -> None:
    for theorem in theorems.of_topic(topic):
        assert not left_of_theorem(falsified(printed(theorem))), theorem.name


@pytest.mark.parametrize("name", examples())
def test_formulas_of_walks(name: str) -> None:
    found = falsified(walked(name))
    assert sum(found.refused.values()) > 10
    one = "transposition: Q_Nᵀ = first(Q) "  # of one row and one column
    assert [s for s in found.survivors if not s.startswith(one)] == []


# -- strings -----------------------------------------------------------------------------------------------------------
@pytest.mark.deep
@pytest.mark.parametrize("room", ["derive", "walk", "claim", "bound"])
def test_some_strings_beside_grades_are_read_or_made(room: str) -> None:
    makings = [m for m in strings.makings() if m[0].split()[0] == room or (room == "derive" and " " not in m[0])]
    assert [s for making in makings[::4] for s in strings.survivors(making, share=0.03)] == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("making", [*strings.makings()], ids=lambda making: making[0])
def test_every_string_beside_a_grade_is_read_or_made(making: strings.Making) -> None:
    assert list(strings.survivors(making)) == []


def _typed() -> Document:
    return Document(
        "derivation", "typed", (), (printing.Result("Result", (), (Evidence(Grade.CHECKED),), ("rows sum to 1",)),)
    )


def test_a_string_that_is_typed_beside_a_grade_survives() -> None:
    assert len(list(strings.survivors(("typed", _typed, (__name__,))))) == 1
