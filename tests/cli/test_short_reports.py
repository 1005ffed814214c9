"""Reports in short: the answer on the first line, at most 20 lines if all is well and 45 if not, 80 columns."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import symattn
from symattn import Attention, Verdict
from symattn.campaigns.plan import Store, planned
from symattn.campaigns.summary import summary
from symattn.document.render import render
from symattn.models.auditing.audit_report import AuditReport, CallFinding
from symattn.models.auditing.call_judge import CallJudgement
from symattn.models.comparing.generated import Generation, StateDifference, WayResult
from symattn.verification.report import Counterexample, StepPower
from symattn_cli.output import hint_lines

MOST = {Verdict.NO_FAULT: 20, Verdict.FAULT: 45, Verdict.UNDECIDED: 45}


def short(document: Any) -> str:
    """The text of a document; it is as short as its verdict permits."""
    text = render(document, "text")
    lines = text.splitlines()
    assert len(lines) <= MOST[document.verdict], text
    assert max(map(len, lines)) <= 80, text
    assert document.verdict.value.upper() in "".join(lines[2:4])
    return " ".join(text.split())


def zeros(q: Any, k: Any, v: Any) -> Any:
    return np.zeros((len(q), v.shape[-1]), q.dtype)


def test_several_faults_of_a_function_are_in_short() -> None:
    report = symattn.verify(zeros, Attention(), examples=0)
    first = report.faults[0]
    keys = [[0.0, 1.0]] * 40  # wider than a page in one line
    example = Counterexample({"q": [[1.0, 0.0]], "k": keys, "v": keys})
    long = replace(first, counterexample=example, message="gives no array: " + "ValueError: shapes differ; " * 4)
    several = replace(report, faults=(long, first, long, first, first), command="symattn verify a.py:zeros")
    text = short(several.document())
    assert "and 4 more" in text
    assert text.count("The smallest input found") + text.count("An input that shows it") == 1
    assert "Fault 2, output: The output is 0 [output-zero]." in text
    whole = render(several.document().whole(), "text")
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
    right = replace(report, faults=(), missing=(), power=(StepPower(step, mistake, 0.024),))
    first = short(right.document()).partition(" An error counts")[0]
    assert first.endswith(words)
    assert ("would have been detected" in first) == (words != ".")


WAYS = tuple(WayResult(f"a way of decoding with a cache, {number}", off=1e-16, prefill=6e-8) for number in range(17))


def test_ways_of_generation_that_agree_are_in_a_sentence() -> None:
    found = Generation("Model", "float32", 16, WAYS)
    text = short(found.document())
    assert text.count("a way of decoding") == 17
    assert "Grade: sampled" in text
    wrong = WayResult("batch", first=StateDifference(0, 1, "layer 0", 3, 0.5, 1e-12))
    text = short(Generation("Model", "float32", 16, (*WAYS, wrong)).document())
    assert "FAULT: batch is wrong from layer 0 on" in text
    assert "batch wrong layer 0 3" in text
    whole = render(Generation("Model", "float32", 16, (*WAYS, wrong)).document().whole(), "text")
    assert max(map(len, whole.splitlines())) <= 80


RIGHT, WRONG = CallJudgement(0.1, ""), CallJudgement(40.0, "certified")


@pytest.mark.parametrize("kinds", [1, 3, 40])
def test_calls_of_an_audit_are_together(kinds: int) -> None:
    calls = [
        CallFinding(f"layers.{layer}", "sdpa", f"4 heads {layer % kinds + 1}×12 causal", RIGHT, RIGHT)
        for layer in range(80)
    ]
    text = short(AuditReport("run.py", calls).document())
    assert f"layers.0 and {len(range(0, 80, kinds)) - 1} more" in text
    assert ("other kinds, are listed by -v" in text) == (kinds > 5)
    assert "Grade: sampled." in text
    calls[70] = replace(calls[70], intent=WRONG, cause="scores are scaled twice")
    text = short(AuditReport("run.py", calls).document())
    assert "FAULT: layers.70: CERTIFIED WRONG" in text
    assert text.index("▸ layers.70 ") < text.index(" layers.0 ")


@pytest.mark.parametrize("fault", [False, True])
def test_a_campaign_is_in_short(tmp_path: Path, fault: bool) -> None:
    jobs = planned([f"a.py:f{i}" for i in range(12)], {"plain": {}, "causal": {"causal": True}}, ["float32"], {}, {})
    store = Store(tmp_path)
    store.open(jobs)
    for number, job in enumerate(jobs):
        faults = [{"step": "scale", "cause": f"scores are scaled by {number}/d_k", "case": "abc"}] if fault else []
        place = {"key": job.key, "target": job.target, "spec": job.spec, "dtype": job.dtype, "domain": job.domain}
        verdict = "fault" if fault else "no fault"
        store.append({**place, "verdict": verdict, "grade": "sampled", "faults": faults, "cases": 7, "command": "x"})
    text = short(summary(tmp_path))
    assert "18 more rows are listed by -v" in text
    assert "Grades: 24 sampled." in text
    assert ("20 more causes are listed by -v" in text) == fault
    assert text.count("--case abc") == fault
