"""Plain attention through both engines says what was frozen, and the frozen table is whole."""

from random import Random

import pytest

from tests.faults.collection.entries import Wrong
from tests.faults.columns import ENGINES, EVERY, Row, frozen, programs, row, summary

DRAWN = 1  # programs of each engine, with another seed than other drawn tests


def test_the_table_has_every_program_in_both_engines() -> None:
    names = [entry.name for entry in programs()[::EVERY]]
    assert [(r.program, r.engine) for r in frozen()] == [(name, engine) for name in names for engine in ENGINES]


def test_no_right_program_is_accused() -> None:
    wrong = {entry.name for entry in programs() if isinstance(entry, Wrong)}
    assert not [r for r in frozen() if r.program not in wrong and r.verdict == "fault"]


def test_the_definition_engine_finds_nearly_as_many() -> None:
    found = {engine: sum(r.verdict == "fault" for r in frozen() if r.engine == engine) for engine in ENGINES}
    assert found["definition"] >= 0.9 * found["attention"]


@pytest.mark.deep
@pytest.mark.parametrize("engine", ENGINES)
def test_some_rows_are_as_they_were_frozen(engine: str) -> None:
    of_engine = [r for r in frozen() if r.engine == engine]
    for r in Random(11).sample(of_engine, DRAWN):
        (entry,) = (e for e in programs() if e.name == r.program)
        assert row(entry, engine).compared == r.compared


def test_seconds_are_shown_and_not_compared() -> None:
    slow, fast = (Row("scaling.plain", "attention", "no fault", "", "-", seconds) for seconds in (9.0, 1.0))
    assert slow.compared == fast.compared
    assert "9 s of processor time" in next(iter(summary([slow])))
