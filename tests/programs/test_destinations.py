"""Functions that write their output into an array that they are given, and return nothing."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from symattn import Attention, InputError, Verdict, judge, verify
from symattn.programs.calling import agree
from symattn.programs.request import Request
from symattn_cli.main import main


def attend(q, k, v, scale=None):
    scores = q @ np.swapaxes(k, -1, -2) * np.asarray(scale or q.shape[-1] ** -0.5, q.dtype)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def first(out, q, k, v):
    out[...] = attend(q, k, v)


def last(q, k, v, output):
    output[...] = attend(q, k, v)
    return output


def by_name(q, k, v, *, o):
    o[...] = attend(q, k, v)


def wrong_scale(out, q, k, v):
    out[...] = attend(q, k, v, scale=1 / q.shape[-1])


def nothing(out, q, k, v):
    pass


def returned_alone(out, q, k, v):
    return attend(q, k, v)


def without_last_row(out, q, k, v):
    rows = max(len(q) - 1, 1)
    out[:rows] = attend(q, k, v)[:rows]


def added(out, q, k, v):
    out += attend(q, k, v)


def with_an_old_output(out, q, k, v):
    attend(q, k, out)
    out[...] = attend(q, k, v)
    v[...] = 0


@pytest.mark.deep
@pytest.mark.parametrize(
    ("function", "words"),
    [(first, "out, q, k, v"), (last, "q, k, v, output"), (by_name, "q, k, v, o=o")],
)
def test_a_destination_is_known_by_its_name(function, words: str) -> None:
    assert agree(function, Request()).printed == words
    judgement = judge(function, seed=2)
    assert judgement.passed, judgement
    assert verify(function, examples=5).verdict is Verdict.NO_FAULT


@pytest.mark.parametrize("function", [wrong_scale, without_last_row, added, with_an_old_output])
def test_a_wrong_function_with_a_destination_fails(function) -> None:
    judgement = judge(function, seed=2)
    assert judgement.status.value == "FAIL"
    assert judgement.calls < 40


@pytest.mark.deep
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (nothing, "wrote nothing into out, and returned None"),
        (returned_alone, "wrote nothing into out, and returned an object of ndarray"),
    ],
)
def test_a_function_that_writes_nothing_fails_with_these_words(function, words: str) -> None:
    judgement = judge(function, seed=2)
    assert judgement.status.value == "FAIL"
    assert words in judgement.reason


@pytest.mark.deep
@pytest.mark.usefixtures("no_causes")
def test_numbers_that_are_left_unwritten_are_called_so() -> None:
    report = verify(without_last_row, examples=5)
    assert report.verdict is Verdict.FAULT
    assert "got nan" in str(report)
    assert any("which is NaN before each call" in note for note in report.notes)


@pytest.mark.deep
@pytest.mark.usefixtures("no_causes")
def test_heads_and_layouts_have_their_destination() -> None:
    def of_tokens(q, k, v, out):
        heads = (np.swapaxes(a, 1, 2) for a in (q, k, v))
        out[...] = np.swapaxes(attend(*heads), 1, 2)

    assert verify(of_tokens, Attention(heads=2), layout="bnhd", examples=5).verdict is Verdict.NO_FAULT
    assert verify(of_tokens, Attention(heads=2), layout="bhnd", examples=5).verdict is Verdict.FAULT


def test_a_name_that_the_user_sets_and_two_destinations_are_none() -> None:
    def two(out, q, k, v, output): ...

    def of_tokens(out, x, w_q, w_k, w_v): ...

    assert agree(nothing, Request(call=(("out", 3),))).printed == "out=3, q=q, k=k, v=v"
    for function in (two, of_tokens):
        with pytest.raises(InputError, match="no value is known for out"):
            agree(function, Request())


@pytest.mark.deep
def test_the_commands_take_a_file_with_a_destination(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """
import numpy as np

def right(out, q, k, v):
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    w = np.exp(s - s.max(-1, keepdims=True))
    out[...] = w / w.sum(-1, keepdims=True) @ v

def nothing(out, q, k, v):
    pass
"""
    (tmp_path / "kernel.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    for name, code in (("right", 0), ("nothing", 1)):
        assert main(["judge", f"kernel.py:{name}", "-f", "json", "--seed", "1"]) == code
        judgement = json.loads(capsys.readouterr().out)
        assert (judgement["status"] == "PASS") == (name == "right")
    assert main(["verify", "kernel.py:right", "-q"]) == 0


@pytest.mark.torch
def test_a_function_of_torch_runs_on_residues_with_its_destination(tmp_path: Path) -> None:
    import torch

    calls = tmp_path / "calls"

    def right(q, k, v, o):
        with calls.open("a") as file:
            file.write(f"{os.getpid()}\n")
        o.copy_(torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v)

    def wrong(q, k, v, o):
        o.copy_(torch.softmax(q @ k.mT * q.shape[-1] ** -1.0, -1) @ v)

    report = verify(right, examples=5)
    assert report.verdict is Verdict.NO_FAULT
    assert any("Modulo random primes it agrees" in note for note in report.notes)
    assert judge(wrong, seed=1).status.value == "FAIL"
    processes = calls.read_text().split()
    in_copies = [process for process in processes if process != str(os.getpid())]
    # Pairs of primes of the same sizes share one graph.
    assert 0 < len(in_copies) < 20
