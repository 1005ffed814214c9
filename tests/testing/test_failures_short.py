"""What a failing ``assert_attention`` prints: one fault whole, each other one in a line, and no notes."""

import pytest

from symattn import testing
from symattn.document.evidence import Verdict
from symattn.programs import verifying
from symattn.verification.report import Counterexample, Fault, Report

SCALE = Fault("scale", "scores are scaled by 1/d_k", "scores are scaled by 1/d_k", Counterexample({"q": [[1.0]]}))
OTHERS = [Fault("mask", None, f"query {i} sees a key too many", Counterexample({"q": [[2.0]]})) for i in range(3)]


def failing(monkeypatch: pytest.MonkeyPatch, *faults: Fault) -> str:
    verdict = Verdict.FAULT if faults else Verdict.UNDECIDED
    report = Report(verdict, "kernel(q, k, v)", "float32", "all", 1, faults, notes=("It warns.",))
    monkeypatch.setattr(verifying, "verified", lambda *given, **told: report)
    with pytest.raises(testing.AttentionFault) as fault:
        testing.assert_attention(lambda q, k, v: v)
    return str(fault.value)


def test_one_fault_is_printed_whole_and_others_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = failing(monkeypatch, SCALE, *OTHERS).splitlines()
    assert lines[0] == "kernel: scores are scaled by 1/d_k (and 3 more)"
    assert "    q = [[1]]" in lines or "    q = [[1.0]]" in lines
    assert not any("[[2" in line for line in lines)
    assert lines[-3:] == [f"Also: query {i} sees a key too many" for i in range(3)]
    assert not any("It warns." in line for line in lines)
    assert len(lines) <= 20


def test_where_there_is_no_fault_the_notes_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    text = failing(monkeypatch)
    assert text.startswith("kernel: It warns.")
    assert "Also:" not in text
