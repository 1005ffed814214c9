"""The measurement counts what it says it counts, and goes on where it was ended."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.faults import measure, table
from tests.faults.collection.entries import Wrong
from tests.faults.collection.every import chosen


def _record(name: str, **more: Any) -> dict[str, Any]:
    (entry,) = chosen(name)
    return {"name": name, "half": entry.half, "seconds": 1.0, "verdict": "no fault", "faults": []} | more


def test_what_is_known_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def measured(name: str) -> dict[str, Any]:
        asked.append(name)
        return _record(name, kind="right")

    monkeypatch.setattr(measure, "measured", measured)
    entries, out = chosen("scaling.*")[:3], tmp_path / "out.jsonl"
    list(measure.run(entries[:1], out, jobs=1))
    with out.open("a", encoding="utf-8") as file:
        file.write('{"name": "scaling.sca')  # ended while it wrote
    assert [r["name"] for r in measure.run(entries, out, jobs=1)] == [e.name for e in entries]
    assert asked == [e.name for e in entries]
    assert set(measure._known(out)) == {e.name for e in entries}


def test_figures() -> None:
    fault = {"step": "scale", "cause": None, "message": "wrong"}
    records = [
        _record("scaling.plain", kind="right"),
        _record("scaling.quarter_each", kind="right", verdict="fault", faults=[fault]),
        _record("scaling.by_width", kind="wrong", found=True, step=True, cause=False, faults=[fault]),
        _record("scaling.no_scale", kind="wrong", found=False, step=False, cause=False, seconds=5.0),
    ]
    every = [r | {"half": "figures"} for r in records]
    assert list(table.figures(every))[2:] == ["| figures | 2 | 1 | 2 | 1 (50 %) | 1 (50 %) | 0 (0 %) | 1.0 | 5.0 |"]
    assert [measure._complaint(r).partition(":")[0] for r in records] == ["", "ACCUSED", "other cause", "MISSED"]


def test_a_cause_is_right_only_with_all_its_words() -> None:
    (entry,) = chosen("softmax.sink_scaled")
    assert isinstance(entry, Wrong)
    assert entry.named_in("the Sink is scaled")
    assert not entry.named_in("the sink is left out")
    assert not entry.named_in("scores are not scaled")


@pytest.mark.deep
def test_measuring_one_program() -> None:
    found = measure.measured("scaling.by_width")
    assert (found["found"], found["step"], found["cause"]) == (True, True, True)
    assert json.loads(json.dumps(found)) == found


@pytest.mark.deep
def test_rules_catch_what_an_everyday_input_shows_and_let_through_what_it_does_not() -> None:
    plain, by_width, aligned = (chosen(n)[0] for n in ("scaling.plain", "scaling.by_width", "masking.top_left"))
    for name, rule in table.RULES.items():
        assert not table.passes(by_width, rule), name
        assert table.passes(aligned, rule), name  # n_q = n_k does not show it
    assert table.passes(plain, table.allclose)


@pytest.mark.deep
def test_the_table_counts() -> None:
    entries = [chosen(n)[0] for n in ("scaling.plain", "scaling.by_width", "masking.top_left")]
    measured = {e.name: _record(e.name, faults=[{}] if e.name == "masking.top_left" else []) for e in entries}
    head, _, allclose, *_, ours = table.table(entries, measured)
    assert head == "| rule | of 2 wrong: caught | let through | of 1 right: accused |"
    assert (allclose, ours) == ("| allclose, 10⁻³ | 1 | 1 | 0 |", "| `symattn.verify` | 1 | 1 | 0 |")


def test_the_page_is_written_between_its_marks() -> None:
    text = "a\n<!-- measured -->\nold\n<!-- end of measured -->\nb\n"
    assert table.written(text, {"measured": ["new"]}) == text.replace("old", "new")
    shown = table.PAGE.read_text(encoding="utf-8")
    assert table.written(shown, {"measured": ["x"], "table": ["y"]}) != shown
    with pytest.raises(ValueError, match="no marks for table"):
        table.written(text, {"table": []})
