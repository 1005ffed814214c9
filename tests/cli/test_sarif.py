"""``-f sarif``: results, places and fixes in the form of SARIF 2.1.0."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from symattn import Grade, Report, Verdict, audit, judge, reports, verify
from symattn_cli import sarif as of
from symattn_cli.main import main
from tests.programs.repairing.programs import FLASH, PLAIN, loaded, write


def _object(required: Mapping[str, Any], **others: Any) -> dict[str, Any]:
    """An object of the standard that has nothing but these properties."""
    properties = {**required, **others}
    return {"type": "object", "required": [*required], "properties": properties, "additionalProperties": False}


def _array(items: Any, least: int = 0) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least}


_TEXT = {"type": "string"}
_ANY = {"type": "object"}
_MESSAGE = _object({"text": _TEXT}, markdown=_TEXT)
_LEVEL = {"enum": ["none", "note", "warning", "error"]}
_FROM_1 = {"type": "integer", "minimum": 1}
_REGION = _object({"startLine": _FROM_1}, startColumn=_FROM_1, endLine=_FROM_1, endColumn=_FROM_1)
_FILE = _object({"uri": {"type": "string", "format": "uri-reference", "minLength": 1}}, uriBaseId=_TEXT)
_REPLACEMENT = _object({"deletedRegion": _REGION}, insertedContent=_object({"text": _TEXT}))
_CHANGE = _object({"artifactLocation": _FILE, "replacements": _array(_REPLACEMENT, 1)})
_FIX = _object({"artifactChanges": _array(_CHANGE, 1)}, description=_MESSAGE)
_LOCATION = _object(
    {"physicalLocation": _object({"artifactLocation": _FILE}, region=_REGION)},
    logicalLocations=_array(_object({}, fullyQualifiedName=_TEXT)),
)
_RULE = _object({"id": _TEXT}, shortDescription=_MESSAGE, help=_MESSAGE, defaultConfiguration=_object({}, level=_LEVEL))
_RESULT = _object(
    {"message": _MESSAGE, "ruleId": _TEXT, "locations": _array(_LOCATION, 1)},
    ruleIndex={"type": "integer", "minimum": 0}, level=_LEVEL, fixes=_array(_FIX, 1), properties=_ANY,
    partialFingerprints={"type": "object", "additionalProperties": _TEXT},
)  # fmt: skip
_DRIVER = _object({"name": _TEXT}, version=_TEXT, rules=_array(_RULE))
_RUN = _object(
    {"tool": _object({"driver": _DRIVER})},
    results=_array(_RESULT), columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]}, properties=_ANY,
)  # fmt: skip
#: The parts of the standard's schema that logs of this project use: its names, types and what it requires.
STRUCTURE = _object({"version": {"const": "2.1.0"}, "runs": _array(_RUN, 1)}, **{"$schema": _TEXT})


def run_of(text: str) -> Any:
    """Return the run of a log that has the form of the standard, in which each result names its rule."""
    log = json.loads(text)
    jsonschema.Draft202012Validator(STRUCTURE).validate(log)
    (run,) = log["runs"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    return run


def fixed(text: str, fix: Any) -> str:
    """Return a text with the one change of a fix, from the end to the start, as a reader of SARIF makes it."""
    (change,) = fix["artifactChanges"]
    lines = text.split("\n")
    regions = [(r["deletedRegion"], r.get("insertedContent", {"text": ""})["text"]) for r in change["replacements"]]
    for region, new in sorted(regions, key=lambda r: (r[0]["startLine"], r[0]["startColumn"]), reverse=True):
        first, last = region["startLine"] - 1, region["endLine"] - 1
        joined = lines[first][: region["startColumn"] - 1] + new + lines[last][region["endColumn"] - 1 :]
        lines[first : last + 1] = joined.split("\n")
    return "\n".join(lines)


@pytest.mark.deep
def test_a_fault_stands_at_the_line_of_its_fix_and_the_fix_gives_the_edited_text(tmp_path: Path) -> None:
    path = write(tmp_path, PLAIN.replace("-1, keepdims", "0, keepdims", 1))
    report = verify(loaded(tmp_path, path.read_text().partition("\n\n\n")[2]), examples=8, repair=True)
    run = run_of(of.of_report(report, f"{path}:attention"))
    (result,) = run["results"]
    assert result["level"] == "error"
    assert "Fix: line 5 of attn.py: `0` → `1`" in result["message"]["text"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 5
    text = path.read_text()
    edits = [fixed(text, fix) for fix in result["fixes"]]
    assert edits == ["\n".join(reports.replaced(text.split("\n"), r.replacements)) for r in report.repairs]
    # Without an edit it stands where the function is defined, and what repairs a part alone is no fix.
    partly = replace(report.repairs[0], repaired=report.repairs[0].wrong - 1)
    (result,) = run_of(of.of_report(replace(report, repairs=(partly,)), f"{path}:attention"))["results"]
    assert "fixes" not in result
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 9


def _fault_with_repairs(path: Path, *edits: reports.Replacement) -> Any:
    """The run of a log of a fault in a file, which each of these edits mends."""
    fault = reports.Fault("call", None, "The output is wrong.")
    report = Report(Verdict.FAULT, "attention(q, k, v)", "float32", "all inputs", 1, faults=(fault,))
    repairs = [
        reports.Repair(str(path), (edit,), "", "x", "factor", "same", Grade.SAMPLED, None, 1, 1, 1, 1) for edit in edits
    ]
    return run_of(of.of_report(replace(report, repairs=tuple(repairs)), f"{path}:attention"))


def test_places_are_relative_and_columns_count_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a b" / "é.py"
    path.parent.mkdir()
    path.write_text("\n" * 2 + "def attention(q, k, v):\n    return v  # é\n", encoding="utf-8")
    edits = reports.Replacement(4, 4, 4, 4, "x\n"), reports.Replacement(4, 4, 4, 12, "")
    run = _fault_with_repairs(path, *edits)
    (result,) = run["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "a%20b/%C3%A9.py", "uriBaseId": "%SRCROOT%"}
    changes = [fix["artifactChanges"][0] for fix in result["fixes"]]
    assert [change["artifactLocation"] for change in changes] == [place["artifactLocation"]] * 2
    (insertion,), (removal,) = (change["replacements"] for change in changes)
    assert insertion["deletedRegion"] == {"startLine": 4, "startColumn": 5, "endLine": 4, "endColumn": 5}
    assert removal.keys() == {"deletedRegion"}
    assert run["columnKind"] == "unicodeCodePoints"
    (without,) = _fault_with_repairs(path)["results"]
    assert without["locations"][0]["physicalLocation"]["region"]["startLine"] == 3
    assert without["partialFingerprints"] == result["partialFingerprints"]
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    (elsewhere,) = _fault_with_repairs(path)["results"]
    assert elsewhere["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": path.as_uri()}


def test_a_target_in_a_folder_with_brackets_has_its_name_and_line(tmp_path: Path) -> None:
    folder = tmp_path / "copy (1)"
    folder.mkdir()
    path = write(folder, PLAIN)
    place = of.place_of_target(f"{path}:attention")
    assert (place.file, place.line, place.name) == (str(path), 9, "attention")
    assert of.place_of_target(f"{path}:softmax(8)".replace(" (1)", "")).name == "softmax"


def test_new_lines_end_as_those_of_the_file_do(tmp_path: Path) -> None:
    path = tmp_path / "attn.py"
    path.write_bytes(b"def attention(q, k, v):\r\n    return v\r\n")
    (result,) = _fault_with_repairs(path, reports.Replacement(2, 0, 2, 0, "    q = q * 2\n"))["results"]
    ((change,),) = (fix["artifactChanges"] for fix in result["fixes"])
    assert [x["insertedContent"]["text"] for x in change["replacements"]] == ["    q = q * 2\r\n"]


@pytest.mark.deep
def test_the_commands_write_and_replace_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, FLASH)
    assert main(["verify", "attn.py:attention", "-o", "a.sarif", "--examples", "8"]) == 1
    (result,) = run_of(Path("a.sarif").read_text())["results"]
    assert result["ruleId"] == "rescale-output"
    assert "symattn faults show rescale-output" in Path("a.sarif").read_text()
    assert fixed(Path("attn.py").read_text(), result["fixes"][0]).count("acc * a + p") == 1
    # The log is this project's own, so that it may be written again.
    write(tmp_path, FLASH.replace("acc + p", "acc * a + p"))
    assert main(["verify", "attn.py:attention", "-o", "a.sarif", "--examples", "8"]) == 0
    assert run_of(Path("a.sarif").read_text())["results"] == []
    capsys.readouterr()
    write(tmp_path, FLASH)
    assert main(["judge", "attn.py:attention", "-f", "sarif", "--examples", "8", "--seed", "1"]) == 1
    (result,) = run_of(capsys.readouterr().out)["results"]
    assert result["message"]["text"].startswith("FAIL: ")
    assert len(result["fixes"]) == 1


def test_sarif_is_for_commands_that_judge_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "-o", str(tmp_path / "a.sarif")]) == 2
    assert "SARIF is what verify, judge and audit write" in capsys.readouterr().err


def test_an_undecided_judgement_is_a_warning_and_a_passing_one_no_result() -> None:
    def zeros(q: Any, k: Any, v: Any) -> Any:
        return np.zeros((len(q), v.shape[1]), q.dtype)

    failed = judge(zeros, examples=4, seed=1)
    run = run_of(of.of_judgement(failed))
    (result,) = run["results"]
    # Codes have a page, which this rule has not.
    assert "faults show" not in run["tool"]["driver"]["rules"][0]["help"]["text"]
    assert (result["level"], result["ruleId"]) == ("error", "fault")
    undecided = replace(failed, status=type(failed.status).UNDECIDED)
    assert run_of(of.of_judgement(undecided))["results"][0]["level"] == "warning"
    passed = replace(failed, status=type(failed.status).PASS)
    assert run_of(of.of_judgement(passed))["results"] == []


@pytest.mark.torch
def test_each_wrong_call_of_an_audit_is_a_result() -> None:
    import torch

    def attend(q: Any, k: Any, v: Any) -> Any:
        weights = torch.softmax(q @ k.transpose(-1, -2) / 3, -1)
        return weights / 2 @ v

    with audit() as report:
        attend(*torch.randn(3, 1, 2, 5, 4))
    run = run_of(of.of_audit(report, report.document(), "script.py"))
    assert report.holds is not True
    levels = {result["level"] for result in run["results"]}
    assert levels == {"error" if report.holds is False else "warning"}
    for result in run["results"]:
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "script.py"


def test_open_layers_and_leaks_of_padding_are_results() -> None:
    leak = reports.Leak("lm_head", 3, 1, padding=True)
    layers = [reports.LayerFinding("layers.0", reason="it returns a list")]
    report = reports.AuditReport(
        "model", whole=True, layers=layers, dependence=[reports.Dependence(True, leaks=[leak])]
    )
    run = run_of(of.of_audit(report, report.document(), "script.py"))
    assert [(r["ruleId"], r["level"]) for r in run["results"]] == [("undecided", "warning"), ("token-leak", "error")]
    assert "padding" in run["tool"]["driver"]["rules"][1]["shortDescription"]["text"]
