"""False formulas are not printed: mutants of every relation of the derivations."""

from __future__ import annotations

import pytest

from tests.statement.falsify import DOCUMENTS, falsified, questions


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
