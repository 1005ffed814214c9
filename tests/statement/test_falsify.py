"""False formulas are not printed: mutants of every relation of the derivations."""

from __future__ import annotations

import pytest

from tests.statement.falsify import DOCUMENTS, Figures, falsified, questions

TRUE_AFTER_ALL = {
    "‖Jᵀ‖_∞": "J is symmetric",
    "E[∂p₁/∂s₁] ≤": "a weaker bound",
    "E[∂p₁/∂s₁] ≥": "a weaker bound",
    "order: s = ": "numbers commute",
    "order: median": "numbers commute",
    "Var(s₁ + s₂)": "the two scores are uncorrelated where μ = 0",
    "Var(−s₁ − s₂)": "the two scores are uncorrelated where μ = 0",
    "Var(s) = 3": "d_k = 1",
    "Var(s/d_k) = 3": "d_k = 1",
}


def left(found: Figures) -> list[str]:
    """Survivors that are not known to be true."""
    return [s for s in found.survivors if not any(words in s.split("   (of")[0] for words in TRUE_AFTER_ALL)]


@pytest.mark.parametrize("name", ["shift", "sinks", "backward"])
def test_some_mutants_are_refused(name: str) -> None:
    found = falsified(questions(name, {}), stride=23)
    assert sum(found.refused.values()) > 2
    assert not left(found)


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
