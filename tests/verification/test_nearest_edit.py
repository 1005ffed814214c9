"""An edit that repairs a part of the wrong calls is no fix, and is not printed as one."""

import json
import re
from dataclasses import replace

from symattn import Grade, Report, Verdict, reports
from symattn.testing import _write_failure_message

_NOTE = "4,005 edits of its source were tried, one or two at a time, and none makes it right."
_EDIT = reports.Replacement(5, 4, 5, 5, "b")
_PART = reports.Repair("attn.py", (_EDIT,), "a", "b", "names", "same", Grade.SAMPLED, None, 4005, 40, 2, 18, "0")
_FAULT = reports.Fault("scale", "scores are not scaled", "scores are not scaled; expected 1/√d_k")
_REPORT = Report(Verdict.FAULT, "attn.py:attention(q, k, v)", "float32", "all", 1, (_FAULT,), repairs=(_PART,))


def test_a_report_with_no_edit_that_repairs_all_prints_no_fix() -> None:
    printed = " ".join(str(_REPORT.with_reservations(_NOTE)).split())
    assert "The nearest edit, no fix: line 5 of attn.py: `a` → `b` repairs 2 of 18 wrong calls" in printed
    assert not re.search(r"Fix:|not necessarily what you meant", printed)


def test_an_assertion_prints_no_diff_of_an_edit_that_repairs_a_part() -> None:
    assert _write_failure_message(_REPORT).splitlines()[-1].startswith("The nearest edit, no fix: line 5 of attn.py")


def test_an_edit_that_repairs_all_is_a_fix() -> None:
    whole = replace(_PART, repaired=18)
    printed = " ".join(str(replace(_REPORT, repairs=(whole,))).split())
    assert "Fix: line 5 of attn.py" in printed
    assert "nearest edit" not in printed


def test_two_edits_stand_in_lines_of_their_own() -> None:
    parts = (reports.RepairPart(5, "v", "q"), reports.RepairPart(9, "if len(k) > 700:", ""))
    pair = replace(_PART, repaired=18, old="v; if len(k) > 700:", new="q", parts=parts)
    report = replace(_REPORT, repairs=(pair,))
    lines = str(report).splitlines()
    (fix,) = (n for n, line in enumerate(lines) if "Fix: two edits of attn.py together make it equal" in line)
    below = [line for line in lines[fix:] if re.search("line [59]: ", line)]
    assert [line.split("line ")[1] for line in below] == ["5: `v` → `q`", "9: remove `if len(k) > 700:`"]
    last = "Fix: line 5 of attn.py: `v` → `q`, and line 9: remove `if len(k) > 700:` make it equal to the definition"
    assert _write_failure_message(report).splitlines()[-1].startswith(last)
    recorded = json.loads(report.json())["repairs"][0]["parts"]
    first, second = {"line": 5, "old": "v", "new": "q"}, {"line": 9, "old": "if len(k) > 700:", "new": ""}
    assert recorded == [{**first, "places": 1}, {**second, "places": 1}]
    assert "parts" not in json.loads(_REPORT.json())["repairs"][0]
