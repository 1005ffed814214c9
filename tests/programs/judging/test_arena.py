"""The arena's small part: symattn accepts none of these wrong kernels and rejects none of these right ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import arena
from benchmarks.arena_entrants import Entrant, entrants
from benchmarks.arena_rules import RULES, accepted, outputs_of

EVERY = {entrant.name: entrant for entrant in entrants()}
#: Of each kind some, which cost little: what graders were seen to accept, the collection, and half precision.
FEW = (
    "figure.attend.float32",
    *(name for name, e in EVERY.items() if e.kind == "figure" and e.precision == "float32" and not e.is_right),
    *(f"figure.{name}.float16" for name in ("zeros", "scaled_by_width", "one_key_lost", "beta_zero")),
    *(f"figure.{name}.bfloat16" for name in ("zeros", "mean_of_values", "decay_after_update")),
    "norms.offset_forgotten",
    "streaming.last_tile_dropped",
)
MORE = tuple(EVERY)[5::160]


def test_there_are_enough_entrants() -> None:
    right = [e for e in EVERY.values() if e.is_right]
    assert len(right) >= 100
    assert len(EVERY) - len(right) >= 200
    assert {e.precision for e in right} == {"float64", "float32", "float16", "bfloat16"}


def _judged(entrant: Entrant) -> dict[str, Any]:
    record = {"right": entrant.is_right, "tolerated": entrant.tolerated, **arena._by_the_judge(entrant)}
    assert record["status"] != "UNDECIDED", record
    return record


@pytest.mark.deep
def test_symattn_judges_a_small_part_rightly() -> None:
    wrongly = {name: record for name in FEW if arena.is_wrongly_judged(record := _judged(EVERY[name]))}
    assert wrongly == {}


@pytest.mark.deep
@pytest.mark.torch
def test_symattn_judges_a_larger_part_rightly() -> None:
    wrongly = {name: record for name in MORE if arena.is_wrongly_judged(record := _judged(EVERY[name]))}
    assert wrongly == {}


def _accepted_by(name: str, form: str) -> dict[str, bool]:
    entrant = EVERY[name]
    inputs = entrant.inputs(form, 0)
    said = arena.Accepted()
    said.add(entrant, inputs, outputs_of(entrant, inputs))
    return {rule: bool(accepts) for rule, accepts in said.rules.items()}


def test_rules_accept_and_reject_what_they_say() -> None:
    right = _accepted_by("scaling.plain", "normal")
    assert [rule for rule, accepts in right.items() if not accepts] == ["always reject"]
    mean = _accepted_by("figure.mean_of_values.float32", "uniform")
    assert mean["allclose, 10⁻²"]
    assert mean["cosine ≥ 0.99"]
    assert not mean["allclose, 10⁻⁴"]
    assert not mean["twice eager + rounding"]
    assert accepted(None, [], [], 1.0) == {rule: rule == "always accept" for rule in RULES}


def test_a_run_goes_on_where_it_was_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def tried(entrant: Entrant) -> dict[str, Any]:
        asked.append(entrant.name)
        forms = {form: dict.fromkeys((*RULES, arena.BOUND), True) for form in arena.FORMS}
        more = {"kind": entrant.kind, "right": entrant.is_right, "precision": "float32", "tolerated": False}
        more |= {"seconds": 1.0, "seconds of rules": 0.5, "limits": 0, "reason": "", "status": "PASS"}
        return {"name": entrant.name, "forms": forms, "calls": dict.fromkeys(RULES, True), **more}

    monkeypatch.setattr(arena, "tried", tried)
    chosen, out = [EVERY["scaling.plain"], EVERY["figure.zeros.float32"]], tmp_path / "arena.jsonl"
    list(arena.records(chosen[:1], out))
    out.write_text(out.read_text() + '{"name": "figure.ze')
    records = list(arena.records(chosen, out))
    assert asked == ["scaling.plain", "figure.zeros.float32"]
    assert [json.loads(line)["name"] for line in out.read_text().splitlines()] == asked
    parts = arena.tables(records)
    assert "| always accept | 1 | 0 | 1 | 0 | 1 | 0 |" in parts["table"]
    assert "| `symattn judge` | 1 | 0 | 1 | 0 | 1 | 0 |" in parts["table"]
    assert len(parts["wrongly"]) == 1


def test_a_draw_has_each_class_and_goes_on_with_a_larger_one() -> None:
    groups = {(e.kind, e.is_right) for e in EVERY.values()}
    drawn = arena.drawn(EVERY.values(), 330, 0)
    names = [e.name for e in drawn]
    assert {(e.kind, e.is_right) for e in drawn[: len(groups)]} == groups
    assert len(set(names)) == 330
    assert sum(e.is_right for e in drawn) >= 100
    assert sum(not e.is_right for e in drawn) >= 200
    assert [e.name for e in arena.drawn(EVERY.values(), 50, 0)] == names[:50]
    assert [e.name for e in arena.drawn(EVERY.values(), 50, 1)] != names[:50]


def test_the_page_has_a_place_for_each_table() -> None:
    text = arena.PAGE.read_text(encoding="utf-8")
    assert [name for name in arena.tables([]) if f"<!-- {name} -->" not in text] == []
