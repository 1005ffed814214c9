"""The plugin for pytest: what a failing test shows, what CI reads, and that a start of pytest does not wait for it."""

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from symattn.programs.case_codes import speaks

pytest_plugins = ["pytester"]

# Verifications are those of other tests; here reports are made up, so that what is shown can be told in a moment.
CONFTEST = """
import symattn.programs.verifying as place
from symattn.document.evidence import Verdict
from symattn.verification.report import Arithmetic, Check, Counterexample, Fault, Report, Sought, StepPower
from symattn.document.evidence import Grade

def verified(fn, spec, how):
    fault = Fault("scale", "scores are scaled by 1/d_k", "scores are scaled by 1/d_k: 100%, a\\nb",
                  Counterexample({"q": [[1.0]]}, error="something else"))
    check = Check("shapes", Grade.REFUTED, 7, 2, 9.0)
    verdict = {"right": Verdict.NO_FAULT, "open_": Verdict.UNDECIDED}.get(fn.__name__, Verdict.FAULT)
    faults = (fault,) if verdict is Verdict.FAULT else ()
    more = {} if verdict is not Verdict.NO_FAULT else {
        "arithmetic": Arithmetic("weights are stored; in bfloat16", 0.9998, 0.9, 100, True),
        "power": (StepPower("scale", "1 % too large", 0.02), StepPower("mask", "left out", 2.0)),
        "sought": (Sought("scale", 0.001, "a scale that is 0.1 % off", True, "by the bits of a call"),),
    }
    tried = f"budget {how.budget}, {how.examples} examples"
    return Report(verdict, fn.__name__ + "(q, k, v)", "float32", tried, how.seed, faults, (check,), ("Note.",), **more)

place.verified = verified
"""
TESTS = """
from symattn.testing import assert_attention as plain

def right(): ...
def wrong(): ...
def open_(): ...

def test_right(assert_attention):
    assert_attention(right)

def test_wrong(assert_attention):
    assert_attention(wrong)

def test_function():
    plain(wrong)

def test_open():
    plain(open_)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with the tests above, run in a process of its own: what is put in place of verify stays there."""
    for name in ("GITHUB_ACTIONS", "GITHUB_WORKSPACE", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    return pytester


def shown(project: pytest.Pytester, *options: str) -> str:
    found = project.runpytest_subprocess("-p", "no:cacheprovider", *options)
    found.assert_outcomes(passed=1, failed=3)
    return found.stdout.str()


@pytest.mark.deep
def test_failures_read_like_reports_and_stand_in_junit(project: pytest.Pytester) -> None:
    text = shown(project, "--junitxml=j.xml", "--symattn-budget=3.5", "--symattn-seed=42", "-rN")
    assert "wrong: scores are scaled by 1/d_k: 100%, a" in text
    assert "scores are scaled by 1/d_k: 100%" in text
    assert "Domain: budget 3.5, 100 examples. Tried: 7 calls." in " ".join(text.split())
    assert "test_failures_read_like_reports_and_stand_in_junit.py:11" in text
    assert "open_: Note." in text
    assert "Traceback" not in text
    assert "__tracebackhide__" not in text
    assert "::error" not in text
    cases = {c.get("name"): c for c in ET.parse(project.path / "j.xml").getroot().iter("testcase")}
    found = {p.get("name"): p.get("value") for p in cases["test_wrong"].iter("property")}
    assert found["symattn.verdict"] == "fault"
    assert found["symattn.code"] == "scale-twice"
    assert (found["symattn.step"], found["symattn.cause"]) == ("scale", "scores are scaled by 1/d_k")
    assert (found["symattn.cases"], found["symattn.seed"]) == ("7", "42")
    assert speaks(found["symattn.case"] or "")
    assert {p.get("value") for p in cases["test_right"].iter("property")} >= {"no fault", "7", "42"}


def test_the_last_section_tells_what_only_stored_scores_make_legal(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from symattn import testing

        def test_it():
            for _ in range(2):
                testing.settings.note("A kernel could not:\\nmeans")
        """
    )
    lines = [line for line in pytester.runpytest_inprocess("-p", "no:cacheprovider").outlines if line]
    start = next(i for i, line in enumerate(lines) if "arithmetic, and what would have been detected" in line)
    assert lines[start + 1].endswith("::test_it")
    assert lines[start + 2] == "  contract: A kernel could not:; means"
    assert not lines[start + 3].startswith(" ")


def test_a_quiet_run_keeps_the_three_lines_of_a_fault(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import numpy as np
        from symattn.testing import assert_close_to_exact

        def test_it():
            q, k, v = np.float32([[1, 0]]), np.float32([[0, 0], [1, 0]]), np.float32([[0], [1]])
            assert_close_to_exact(np.float32([[0.66]]), q, k, v)
        """
    )
    lines = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider").outlines
    first = next(i for i, line in enumerate(lines) if line.startswith("1 of 1 elements is beyond"))
    assert lines[first + 1].startswith("The worst is out[0, 0]: got 0.66")
    assert lines[first + 2].startswith("Off by 0.0098; at most ")
    assert "asserted at" in lines[first + 3]


@pytest.mark.deep
def test_the_last_section_tells_arithmetic_and_power(project: pytest.Pytester) -> None:
    """Of the test that passed, and with several processes too; not of mistakes that no case shows."""
    for options in ((), ("-n", "2")):
        lines = shown(project, "--symattn-effort=quick", *options).splitlines()
        start = next(i for i, line in enumerate(lines) if "arithmetic, and what would have been detected" in line)
        assert lines[start + 1].endswith("::test_right")
        assert lines[start + 2] == "  arithmetic: weights are stored; in bfloat16 (99.98 % of the bits)"
        seen = "scale 1 % too large, from 2 % of it on; a scale that is 0.1 % off, by the bits of a call"
        assert lines[start + 3] == f"  power: {seen}"
        assert not lines[start + 4].startswith(" ")
        assert any("10 examples" in line for line in lines[:start])
    assert "symattn: arithmetic" not in shown(project, "-q")
    assert "100 examples" in shown(project)


@pytest.mark.deep
def test_annotations_come_in_workflows_and_with_xdist(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project.path.parent))
    text = shown(project, "-n", "2")
    lines = [line for line in text.splitlines() if line.startswith("::error ")]
    assert len(lines) == 3
    name = f"{project.path.name}/test_annotations_come_in_workflows_and_with_xdist.py"
    (wrong,) = [line for line in lines if "line=11" in line]
    assert wrong.startswith(f"::error file={name},line=11,title=")
    assert "::wrong: scores are scaled by 1/d_k: 100%25, a%0Ab [scale-twice]%0A" in wrong
    assert "scores are scaled by 1/d_k: 100%" in text.replace(wrong, "")


@pytest.mark.deep
def test_annotations_can_be_asked_for_and_refused(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(project, "--symattn-annotate=always").count("\n::error ") == 3
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert "::error" not in shown(project, "--symattn-annotate=never")
    project.makepyfile(pytest_github_actions_annotate_failures="")
    assert "::error" not in shown(project, "-p", "pytest_github_actions_annotate_failures")
    assert "Traceback" in shown(project, "--tb=native")


@pytest.mark.deep
def test_a_baseline_accepts_and_misses(project: pytest.Pytester) -> None:
    module = "test_a_baseline_accepts_and_misses"
    entry = f'[[accepted]]\ntarget = "{module}:wrong"\nstep = "scale"\nreason = "known"\ncause = '
    project.makeini("[pytest]\nsymattn_baseline = known.toml\n")
    (project.path / "known.toml").write_text(entry + '"scores are scaled by 1/d_k"\n')
    project.runpytest_subprocess().assert_outcomes(passed=3, failed=1)
    (project.path / "known.toml").write_text(entry.replace(":wrong", ":right") + '"x"\n')
    found = project.runpytest_subprocess()
    found.assert_outcomes(failed=4)
    assert "right: Accepted fault, scale: x, is gone: remove the line." in found.stdout.str()
    (project.path / "known.toml").unlink()
    assert "known.toml cannot be read" in project.runpytest_subprocess().stdout.str()


@pytest.mark.deep
@pytest.mark.parametrize("budget", ["0", "-1", "inf", "x"])
def test_a_budget_is_a_number_of_seconds(project: pytest.Pytester, budget: str) -> None:
    assert project.runpytest_subprocess(f"--symattn-budget={budget}").ret == pytest.ExitCode.USAGE_ERROR


def test_nothing_heavy_is_imported_when_pytest_starts() -> None:
    program = """
import sys
import pytest
before = set(sys.modules)
import symattn.plugins.pytest_plugin
print(sorted(set(sys.modules) - before))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    assert eval(ran.stdout) == [
            "symattn", "symattn.document", "symattn.document.errors", "symattn.document.keywords", "symattn.first_use",
            "symattn.plugins", "symattn.plugins.pytest_plugin",
            "symattn.testing",
        ]  # fmt: skip


AUDITED = """
import torch
from torch.nn.functional import scaled_dot_product_attention


def test_right(audit_attention):
    q, k, v = torch.randn(3, 1, 2, 5, 4)
    with audit_attention() as report:
        scaled_dot_product_attention(q, k, v)
    assert len(report.findings) == 1


def test_untold(audit_attention):
    q, k, v = torch.randn(3, 1, 2, 5, 4)
    with audit_attention():
        scaled_dot_product_attention(q, k, v, dropout_p=0.5)
"""


@pytest.mark.torch
def test_the_fixture_of_audits_fails_at_its_end(pytester: pytest.Pytester) -> None:
    pytest.importorskip("torch")
    pytester.makepyfile(AUDITED)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*CANNOT TELL*", "*asserted at*", "test_the_fixture_of_audits_fails_at_its_end.py:14"])
