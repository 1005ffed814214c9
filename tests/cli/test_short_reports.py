"""Reports in short: the answer on the first line, at most 20 lines if all is well and 45 if not, 80 columns."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import symattn
from symattn import Attention, Verdict, printing, reports
from symattn_cli.output import hint_lines

MOST = {Verdict.NO_FAULT: 20, Verdict.FAULT: 45, Verdict.UNDECIDED: 45}


def short(document: Any) -> str:
    """The text of a document; it is as short as its verdict permits."""
    return in_short(printing.render(document, "text"), document.verdict)


def in_short(text: str, verdict: Verdict) -> str:
    """A text in one line; it is as short as this verdict permits."""
    lines = text.splitlines()
    assert len(lines) <= MOST[verdict], text
    assert max(map(len, lines)) <= 80, text
    assert verdict.value.upper() in "".join(lines[2:4])
    return " ".join(text.split())


def zeros(q: Any, k: Any, v: Any) -> Any:
    return np.zeros((len(q), v.shape[-1]), q.dtype)


@pytest.mark.deep
def test_several_faults_of_a_function_are_in_short() -> None:
    report = symattn.verify(zeros, Attention(), examples=0)
    first = report.faults[0]
    keys = [[0.0, 1.0]] * 40  # wider than a page in one line
    example = reports.Counterexample({"q": [[1.0, 0.0]], "k": keys, "v": keys})
    long = replace(first, counterexample=example, message="gives no array: " + "ValueError: shapes differ; " * 4)
    several = replace(report, faults=(long, first, long, first, first), command="symattn verify a.py:zeros")
    text = short(several.document())
    assert "and 4 more" in text
    assert text.count("The smallest input found") + text.count("An input that shows it") == 1
    assert "Fault 2, output: The output is 0 [output-zero]." in text
    whole = printing.render(several.document().whole(), "text")
    assert "Fault 5: output" in whole
    assert max(map(len, whole.splitlines())) <= 80
    assert "-v prints every fault" in " ".join(hint_lines(several.document().hints))


@pytest.mark.parametrize(
    ("step", "mistake", "words"),
    [
        ("scores", "1 % too large", "scores 0.05 % too large would have been detected."),
        ("output", "twice as large", "output 5 % too large would have been detected."),
        ("scores", "twice as large", "."),  # an error of the output is not proportional to one of the scores
    ],
)
def test_a_pass_says_what_would_have_been_detected(step: str, mistake: str, words: str) -> None:
    report = symattn.verify(zeros, Attention(), examples=0)
    right = replace(report, faults=(), missing=(), power=(reports.StepPower(step, mistake, 0.024),))
    first = short(right.document()).partition(" An error counts")[0]
    assert first.endswith(words)
    assert ("would have been detected" in first) == (words != ".")


WAYS = tuple(
    reports.WayResult(f"a way of decoding with a cache, {number}", off=1e-16, prefill=6e-8) for number in range(17)
)


def test_ways_of_generation_that_agree_are_in_a_sentence() -> None:
    found = reports.Generation("Model", "float32", 16, WAYS)
    text = short(found.document())
    assert text.count("a way of decoding") == 17
    assert "Grade: sampled" in text
    wrong = reports.WayResult("batch", first=reports.StateDifference(0, 1, "layer 0", 3, 0.5, 1e-12))
    text = short(reports.Generation("Model", "float32", 16, (*WAYS, wrong)).document())
    assert "FAULT: batch is wrong from layer 0 on" in text
    assert "batch wrong layer 0 3" in text
    whole = printing.render(reports.Generation("Model", "float32", 16, (*WAYS, wrong)).document().whole(), "text")
    assert max(map(len, whole.splitlines())) <= 80


RIGHT, WRONG = reports.CallJudgement(0.1, ""), reports.CallJudgement(40.0, "certified")


@pytest.mark.parametrize("kinds", [1, 3, 40])
def test_calls_of_an_audit_are_together(kinds: int) -> None:
    calls = [
        reports.CallFinding(f"layers.{layer}", "sdpa", f"4 heads {layer % kinds + 1}×12 causal", RIGHT, RIGHT)
        for layer in range(80)
    ]
    text = short(reports.AuditReport("run.py", calls).document())
    assert f"layers.0 and {len(range(0, 80, kinds)) - 1} more" in text
    assert ("other kinds, are listed by -v" in text) == (kinds > 5)
    assert "Grade: sampled." in text
    calls[70] = replace(calls[70], intent=WRONG, cause="scores are scaled twice")
    text = short(reports.AuditReport("run.py", calls).document())
    assert "FAULT: layers.70: CERTIFIED WRONG" in text
    assert text.index("▸ layers.70 ") < text.index(" layers.0 ")


@pytest.mark.parametrize("fault", [False, True])
def test_a_campaign_is_in_short(tmp_path: Path, run, fault: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan, results, verdict = [], [], Verdict.FAULT if fault else Verdict.NO_FAULT
    for number in range(24):
        spec, fields = (("plain", {}), ("causal", {"causal": True}))[number % 2]
        place = {"key": f"{number:016x}", "target": f"a.py:f{number // 2}", "spec": spec, "dtype": "float32"}
        place["domain"] = "all"
        plan.append({**place, "fields": fields, "promised": {}, "options": {}})
        faults = [{"step": "scale", "cause": f"scores are scaled by {number}/d_k", "case": "abc"}] if fault else []
        of_job = {"verdict": verdict.value, "grade": "sampled", "faults": faults, "cases": 7, "command": "x"}
        results.append(json.dumps({**place, **of_job}) + "\n")
    tmp_path.joinpath("plan.json").write_text(json.dumps(plan), encoding="utf-8")
    tmp_path.joinpath("results.jsonl").write_text("".join(results), encoding="utf-8")
    text = in_short(run("campaign", "--summary", ".").stdout, verdict)
    assert "18 more rows are listed by -v" in text
    assert "Grades: 24 sampled." in text
    assert ("20 more causes are listed by -v" in text) == fault
    assert text.count("--case abc") == fault
