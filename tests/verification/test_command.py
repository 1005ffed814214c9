"""``symattn verify`` from the command line: exit codes, what is printed, and that nothing else is."""

import json
import re
from pathlib import Path
from textwrap import dedent

import pytest

from symattn import Report, Verdict
from symattn_cli.main import main

RIGHT = """
    import numpy as np

    def attention(q, k, v):
        s = q @ k.T / np.float32(np.sqrt(q.shape[-1]))
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v
"""
OFF_BY_ONE = RIGHT.replace(
    "        e = ",
    "        open_ = np.tri(*s.shape, s.shape[1] - s.shape[0] + 1, dtype=bool)\n"
    "        s = np.where(open_, s, np.float32(-np.inf))\n        e = ",
)
#: So many lines a reader sees at once.
LINES_OF_A_PASS, LINES_OF_A_FAULT = 20, 45
WRONG_SCALE = RIGHT.replace("np.sqrt(q.shape[-1])", "q.shape[-1]")


@pytest.fixture
def verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """``verify(source, *options)``: exit code, stdout, stderr of the command on a program of one file."""
    monkeypatch.chdir(tmp_path)

    def run(source: str, *options: str) -> tuple[int, str, str]:
        Path("attn.py").write_text(dedent(source), encoding="utf-8")
        status = main(["verify", "attn.py:attention", "--examples", "0", *options])
        return int(status), *capsys.readouterr()

    return run


@pytest.mark.deep
@pytest.mark.smoke
def test_no_fault(verify, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    status, stdout, stderr = verify(RIGHT)
    assert (status, stderr.split()[:2]) == (0, ["Next", "-v"])
    lines = stdout.splitlines()
    assert lines[0].startswith("Verification of attn.py:attention(q, k, v)")
    assert re.match(r"NO FAULT: \d+ calls, (tested ε ≤ \S+|sampled); \w+ 0\.\d+ % too large would have", lines[2])
    assert len(lines) <= LINES_OF_A_PASS
    assert sorted(p.name for p in tmp_path.iterdir()) == ["attn.py"]


@pytest.mark.deep
@pytest.mark.smoke
def test_a_fault_is_said_first_and_shown_below(verify) -> None:  # type: ignore[no-untyped-def]
    status, stdout, _ = verify(WRONG_SCALE)
    lines = stdout.splitlines()
    assert (status, lines[2].partition(" (")[0]) == (1, "FAULT: scores are scaled by 1/d_k")
    assert len(lines) <= LINES_OF_A_FAULT
    assert "    q = [[" in stdout
    assert "--case" in stdout


@pytest.mark.deep
def test_all_details_or_the_verdict_alone(verify) -> None:  # type: ignore[no-untyped-def]
    assert verify(RIGHT, "-q")[1] == "NO FAULT\n"
    assert verify(WRONG_SCALE, "-q")[:2] == (1, "FAULT\n")
    usual, verbose = verify(RIGHT)[1], verify(RIGHT, "-v")[1]
    assert "smallest part of it detected" not in usual
    assert "smallest part of it detected" in verbose
    assert max(map(len, verbose.splitlines())) <= 80
    for wrong in (["-q", "-v"], ["-q", "-f", "json"]):
        status, stdout, stderr = verify(RIGHT, *wrong)
        assert (status, stdout, stderr.count("\n")) == (2, "", 1)


@pytest.mark.deep
@pytest.mark.smoke
def test_a_wrong_scale_as_json(verify) -> None:  # type: ignore[no-untyped-def]
    status, stdout, _ = verify(WRONG_SCALE, "-f", "json")
    assert status == 1
    document = json.loads(stdout)
    assert (document["schema"], document["kind"], document["verdict"]) == (1, "verification", "fault")
    (fault,) = document["faults"]
    assert fault["step"] == "scale"
    assert fault["cause"].startswith("scores are scaled by 1/d_k")
    assert fault["counterexample"]["sizes"] == {"n_q": 1, "n_k": 2, "d_k": 2, "d_v": 1}
    assert fault["counterexample"]["exact"] == "exp(1/sqrt(2))/(1+exp(1/sqrt(2)))"
    assert {"name", "grade", "cases", "worst_ratio"} <= document["checks"][0].keys()
    assert isinstance(document["notes"], list)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("raise ValueError('no')", 4, "ValueError: no"),
        ("while True: pass", 4, "did not return"),
        ("import os; os._exit(3)", 4, "exit code 3"),
        ("raise KeyboardInterrupt", 4, "KeyboardInterrupt (attn.py:2)"),
        ("return 'attention'", 4, "returned a str"),
    ],
)
def test_what_gives_nothing_to_judge(verify, body: str, status: int, words: str) -> None:  # type: ignore[no-untyped-def]
    limits = ("--time-limit", "0.5", "--budget", "2")  # without a budget residues wait a minute for what never ends
    code, stdout, stderr = verify(f"def attention(q, k, v):\n    {body}\n", *limits)
    assert (code, stdout) == (status, "")
    assert words in stderr
    assert stderr.count("\n") == 1


@pytest.mark.deep
def test_sometimes_raising_is_a_fault(verify) -> None:  # type: ignore[no-untyped-def]
    picky = RIGHT.replace("        s = ", "        np.stack([q[:, 0], k[:, 0]])\n        s = ")
    status, stdout, _ = verify(picky)
    assert status == 1
    assert "where n_q ≠ n_k" in stdout
    assert verify(picky, "--square")[0] == 0


@pytest.mark.deep
def test_prints_are_captured_and_shown_on_request(verify) -> None:  # type: ignore[no-untyped-def]
    loud = RIGHT.replace("        s = ", "        print('hello')\n        s = ")
    status, stdout, stderr = verify(loud, "-v")
    assert (status, stderr) == (0, "")
    assert "hello" not in stdout
    assert "It prints" in stdout
    assert "hello" in verify(loud, "--show-output")[1]


@pytest.mark.parametrize(
    "options",
    [
        ["--dtype", "float31"], ["--max-abs-score", "-1"], ["--call", "what"], ["--like", "nosuch"], ["--seed", "-1"],
        *([f"--{name}", x] for name in ("budget", "time-limit") for x in ("0", "-1", "nan", "inf")),
    ],
)  # fmt: skip
def test_wrong_usage(verify, options: list[str]) -> None:  # type: ignore[no-untyped-def]
    status, stdout, stderr = verify(RIGHT, *options)
    assert (status, stdout) == (2, "")
    assert stderr.count("\n") == 1
    assert "defect" not in stderr


@pytest.mark.deep
def test_the_command_that_gives_the_report_again_is_in_it(verify) -> None:  # type: ignore[no-untyped-def]
    power = ("--power", "scale=0.00123456789")
    stdout = verify(OFF_BY_ONE, "--causal", "--seed", "3", "--budget", "20.5", "--time-limit", "5", *power)[1]
    assert "--power scale=0.00123456789" in " ".join(stdout.split())
    assert "symattn verify attn.py:attention --causal" in stdout
    assert "--examples 0 --seed 3" in " ".join(stdout.split())


def lines_of_missing(words: str) -> list[str]:
    """The lines of a report that lacks something, as these words say."""
    return str(Report(Verdict.UNDECIDED, "f", "float32", "all", 1, missing=("Nothing", words))).splitlines()


@pytest.mark.parametrize("kept", ["dQ is not scaled", "q is rolled", "w_o is left out", "ε is added", "x2 is lost"])
def test_a_formula_in_front_stays_as_it_is(kept: str) -> None:
    assert f"! {kept}." in lines_of_missing(kept)


@pytest.mark.parametrize("words", ["the scale is left out", "a row is lost", "one-sided mask", "weights: two"])
def test_a_sentence_begins_with_a_capital(words: str) -> None:
    assert f"! {words[0].upper()}{words[1:]}." in lines_of_missing(words)


OF_THE_FIRST_ITEM = """
    import numpy as np

    def attention(q, k, v, key_padding_mask):
        s = q @ k.mT / np.float32(np.sqrt(q.shape[-1]))
        s = np.where(key_padding_mask[:1, None, None], np.float32(-np.inf), s)
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v
"""


@pytest.mark.deep
def test_batch_items_are_removed_from_masks_as_from_queries(verify) -> None:  # type: ignore[no-untyped-def]
    options = ("--heads", "2", "--padding", "--layout", "bhnd", "-f", "json")
    status, stdout, _ = verify(OF_THE_FIRST_ITEM, *options)
    assert status == 1
    (fault,) = json.loads(stdout)["faults"]
    inputs = fault["counterexample"]["inputs"]
    assert (fault["step"], len(inputs["q"])) == ("mask", len(inputs["keep"]))
