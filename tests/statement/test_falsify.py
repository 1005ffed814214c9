"""False formulas are not printed: mutants of every relation of the derivations."""

from __future__ import annotations

import re

import pytest

from tests.statement.falsify import DOCUMENTS, VARIANT_DOCUMENTS, Figures, falsified, questions

TRUE_OF_VARIANTS = {
    r"dropped factor: 𝟏 = 𝟏": "it says nothing",
    r".*(\(a − 1\)|\(a−1\))": "a = 1, or d_n = 1, in this variant",
    r".*: [kv]_ail = Σ_{m=1}\^{d_model} x_im w_ml ": "a = 1 in this variant",
    r".*n_[qk] − n_[qk]": "n_q = n_k in this variant",
    r".*(cos|sin)\(p\)": "there is one frequency, 1",
}


def left_of_variant(found: Figures) -> list[str]:
    """Survivors of ``derive attention`` that are not known to be true."""
    return [s for s in found.survivors if not any(re.match(words, s) for words in TRUE_OF_VARIANTS)]


@pytest.mark.parametrize("name", ["shift", "sinks", "backward"])
def test_some_mutants_are_refused(name: str) -> None:
    found = falsified(questions(name, {}), stride=23)
    assert sum(found.refused.values()) > 2
    assert not found.survivors


@pytest.mark.deep
@pytest.mark.parametrize("asked", DOCUMENTS[3:], ids=str)
def test_one_mutant_in_five_is_refused(asked: tuple[str, dict[str, object]]) -> None:
    assert not falsified(questions(*asked), stride=5).survivors


@pytest.mark.exhaustive
@pytest.mark.parametrize("asked", DOCUMENTS, ids=str)
def test_every_mutant_is_refused(asked: tuple[str, dict[str, object]]) -> None:
    found = falsified(questions(*asked))
    assert len({*found.refused}) >= 5
    assert not found.survivors


def test_some_formulas_of_variants() -> None:
    for name, parameters in VARIANT_DOCUMENTS[::11]:
        found = falsified(questions(name, parameters), stride=31)
        assert found.refused
        assert not left_of_variant(found), parameters


@pytest.mark.deep
def test_every_formula_of_variants() -> None:
    for name, parameters in VARIANT_DOCUMENTS:
        found = falsified(questions(name, parameters))
        assert len({*found.refused}) >= 5
        assert not left_of_variant(found), parameters
