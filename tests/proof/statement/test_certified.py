"""No printed relation is called proved unless the checker accepts a certificate meanwhile."""

from typing import Any

import pytest

from symattn.document import notation as nt
from symattn.document.evidence import Evidence, Grade
from symattn.proof.relations.judging import DecidedRelation
from tests.proof.statement.certified import NONE, by, counted
from tests.proof.statement.falsify import DOCUMENTS, questions


def _certified(name: str, parameters: dict[str, Any]) -> None:
    found, without = counted(questions(name, parameters))
    assert not without
    assert found.total() > 0


@pytest.mark.deep
def test_what_is_proved_of_rotations_is_certified() -> None:
    _certified("rope", {})


@pytest.mark.deep
@pytest.mark.parametrize(("name", "parameters"), DOCUMENTS)
def test_what_derivations_call_proved_is_certified(name: str, parameters: dict[str, Any]) -> None:
    _certified(name, parameters)


def test_a_grade_without_a_certificate_is_seen() -> None:
    relation = nt.equals(nt.name("x"), nt.name("x"))
    assert by(DecidedRelation(relation, lambda _: Evidence(Grade.PROVED, "all sizes"))) == NONE
