"""A list of accepted faults: what it takes, misses and refuses; what a failing ``assert_attention`` prints."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from symattn import Attention, InputError, Report, Verdict, reports, testing
from symattn.verification.baseline import added
from tests.refusals import refuses

SCALE = reports.Fault("scale", "scores are scaled by 1/d_k", "scores are scaled by 1/d_k; expected 1/√d_k")
MASK = reports.Fault("mask", None, 'no known mistake "explains" it\n')
TARGET = "attn.py:attention"


def report(*faults: reports.Fault, verdict: Verdict | None = None, **fields: str) -> Report:
    verdict = verdict or (Verdict.FAULT if faults else Verdict.NO_FAULT)
    return Report(verdict, f"{TARGET}(q, k, v)", "float32, everything", "all", 1, faults, fields=fields)


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    path = tmp_path / "symattn-baseline.toml"
    path.write_text(added(report(SCALE, MASK, causal="True"), TARGET, 'the "old" kernel\\'), encoding="utf-8")
    return path


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """The report of an assertion whose baseline is a file, of a target and of what a verification found."""

    def judged(found: Report, path: Path, target: str = TARGET) -> Report:
        def function(q: Any, k: Any, v: Any) -> Any: ...

        function.__module__, function.__qualname__ = target.split(":")
        heard: list[Report] = []
        monkeypatch.setattr("symattn.programs.verifying.verified", lambda *given, **told: found)
        monkeypatch.setattr(testing.settings, "hear", heard.append)
        spec = Attention(causal=found.fields.get("causal") == "True")
        with suppress(testing.AttentionFault):
            testing.assert_attention(function, spec, baseline=path)
        return heard[0]

    return judged


def test_what_is_written_holds_of_its_specification_and_format_alone(listed: Path, compared: Any) -> None:
    written = report(SCALE, MASK, causal="True")
    assert compared(written, listed).faults == ()
    assert compared(replace(written, precision="float16, everything"), listed).faults == (SCALE, MASK)
    assert compared(report(SCALE, MASK), listed).faults == (SCALE, MASK)


def test_json_is_read_too(tmp_path: Path, compared: Any) -> None:
    path = tmp_path / "baseline.json"
    entry = f'{{"target": "{TARGET}", "step": "mask", "cause": "", "reason": "r"}}'
    path.write_text(f'{{"accepted": [{entry}]}}', encoding="utf-8")
    for fields in ({}, {"causal": "True"}):
        assert compared(report(SCALE, MASK, **fields), path).faults == (SCALE,)


def test_accepted_faults_are_no_faults(listed: Path, compared: Any) -> None:
    found = compared(report(SCALE, MASK, causal="True"), listed)
    assert (found.verdict, found.faults) == (Verdict.NO_FAULT, ())
    assert 'Accepted: scale: scores are scaled by 1/d_k [scale-twice] (the "old" kernel\\).' in found.notes


def test_a_fault_that_is_not_listed_is_one(listed: Path, compared: Any) -> None:
    other = reports.Fault("scale", "scores are not scaled", "scores are not scaled")
    found = compared(report(SCALE, MASK, other, causal="True"), listed)
    assert (found.verdict, found.faults) == (Verdict.FAULT, (other,))


_OFF = reports.Fault("scale", "scores are scaled by 1.02/√d_k", "scores are scaled by 1.02/√d_k; expected 1/√d_k")
#: Entries of a file: by code, by a code with parameters, by a family, and by the sentence, as earlier versions wrote.
_ACCEPTING = {
    'code = "scale-off"': True,
    'code = "scale-off: factor = 1.02"': True,
    'code = "scale-off: factor = 1.02"\ncause = "in other words"': True,
    'cause = "scores are scaled by 1.02/√d_k"': True,
    'code = "scale-off: factor = 1.03"': False,
    'code = "scale-twice"\ncause = "scores are scaled by 1.02/√d_k"': False,
    'cause = "scores are scaled by 1.02 times the root"': False,
}


@pytest.mark.parametrize("entry", _ACCEPTING)
def test_a_code_accepts_a_fault_in_any_words(tmp_path: Path, compared: Any, entry: str) -> None:
    path = tmp_path / "baseline.toml"
    text = f'[[accepted]]\ntarget = "{TARGET}"\nstep = "scale"\n{entry}\nreason = "r"\n'
    path.write_text(text, encoding="utf-8")
    assert (compared(report(_OFF), path).faults == ()) == _ACCEPTING[entry]


def test_a_fault_that_is_gone_is_missed(listed: Path, compared: Any) -> None:
    found = compared(report(SCALE, causal="True"), listed)
    assert (found.verdict, found.exit_code, found.faults) == (Verdict.FAULT, 1, ())
    assert "Accepted fault, mask (no known cause), is gone: remove the line." in found.notes


def test_an_open_question_misses_nothing(listed: Path, compared: Any) -> None:
    found = compared(report(verdict=Verdict.UNDECIDED, causal="True"), listed)
    assert (found.verdict, found.notes) == (Verdict.UNDECIDED, ())


def test_entries_for_something_else_say_nothing(listed: Path, compared: Any) -> None:
    for other, target in ((report(SCALE), TARGET), (report(SCALE, causal="True"), "other.py:attention")):
        found = compared(other, listed, target)
        assert (found.faults, found.notes) == ((SCALE,), ())


def test_new_entries_stand_behind_the_old_ones(listed: Path, compared: Any) -> None:
    there = "# by hand\n" + listed.read_text(encoding="utf-8")
    listed.write_text(added(report(SCALE), "two.py:f", "new", there), encoding="utf-8")
    assert listed.read_text(encoding="utf-8").startswith(there.rstrip())
    assert compared(report(SCALE, MASK, causal="True"), listed).faults == ()
    assert compared(report(SCALE), listed, "two.py:f").faults == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[accepted]]\ntarget = 't'\nstep = 's'\ncause = ''\n", "entry 1 lacks reason"),
        ("[[accepted]]\ntarget = 't'\nstep = 's'\ncause = ''\nreason = ' '\n", "needs a reason"),
        ("[[accepted]]\ntarget = 't'\nstep = 's'\ncause = ''\nreason = 'r'\nwhy = 'x'\n", "unknown name 'why'"),
        ("[[accepted]]\ntarget = 3\nstep = 's'\ncause = ''\nreason = 'r'\n", "target is a text, not '3'"),
        ("[[accepted]]\ntarget = 't'\nstep = 's'\nreason = 'r'\n", "code is missing; hint: cause"),
        ("[[accepted]]\ntarget = 't'\nstep = 's'\ncode = 'scale-mising'\nreason = 'r'\n", "mean scale-missing"),
        ("accepted = 3\n", "entries other than"),
        ("other = 3\n", "entries other than"),
        ("not toml", "is not valid TOML"),
        ("x" * (2**20 + 1), "larger than"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, compared: Any, text: str, words: str) -> None:
    path = tmp_path / "baseline.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=words):
        compared(report(SCALE), path)


def test_a_file_that_is_not_there_and_no_reason_are_refused(tmp_path: Path, compared: Any) -> None:
    refuses(compared, report(SCALE), tmp_path / "none.toml", says="cannot be read")
    refuses(added, report(SCALE), TARGET, " ", says="needs a reason")


SHOWN = reports.Fault(
    "scale", "scores are scaled by 1/d_k", "scores are scaled by 1/d_k", reports.Counterexample({"q": [[1.0]]})
)
OTHERS = [
    reports.Fault("mask", None, f"query {i} sees a key too many", reports.Counterexample({"q": [[2.0]]}))
    for i in range(3)
]


def failing(monkeypatch: pytest.MonkeyPatch, *faults: reports.Fault) -> str:
    verdict = Verdict.FAULT if faults else Verdict.UNDECIDED
    report = Report(verdict, "kernel(q, k, v)", "float32", "all", 1, faults, notes=("It warns.",))
    monkeypatch.setattr("symattn.programs.verifying.verified", lambda *given, **told: report)
    with pytest.raises(testing.AttentionFault) as fault:
        testing.assert_attention(lambda q, k, v: v)
    return str(fault.value)


def test_one_fault_is_printed_whole_and_others_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = failing(monkeypatch, SHOWN, *OTHERS).splitlines()
    assert lines[0] == "kernel: scores are scaled by 1/d_k [scale-twice] (and 3 more)"
    assert "    q = [[1]]" in lines or "    q = [[1.0]]" in lines
    assert not any("[[2" in line for line in lines)
    assert lines[-3:] == [f"Also: query {i} sees a key too many" for i in range(3)]
    assert not any("It warns." in line for line in lines)
    assert len(lines) <= 20


def test_where_there_is_no_fault_the_notes_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    text = failing(monkeypatch)
    assert text.startswith("kernel: It warns.")
    assert "Also:" not in text
