"""A test that was written fails on the wrong function and passes on the right one; a word repeats its case."""

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Verdict
from symattn.document.errors import InputError
from symattn.programs.child import verify_target
from symattn.programs.repeat import Repeated, repeat_target, verify_case, written
from symattn.verification.case_codes import encode, named, speaks
from symattn_cli.main import main

RIGHT = """
import numpy as np

def attention(q, k, v, mask=None):
    s = q @ k.T / q.dtype.type(np.sqrt(q.shape[-1]))
    if mask is not None:
        s = np.where(mask, s, -np.inf).astype(q.dtype)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v
"""
Q, K, V = [[1, 0]], [[0, 0], [1, 0]], [[0, 3], [1, 1]]
INPUTS = {name: np.array(a, dtype=float) for name, a in zip("qkv", (Q, K, V), strict=True)}
WRONG = {
    "values": RIGHT.replace("np.sqrt(q.shape[-1])", "q.shape[-1]"),
    "shape": RIGHT.replace("@ v", "@ v[:, :1]"),
    "dtype": RIGHT.replace("@ v", "@ v.astype(np.float64)").replace("return ", "return np.float16(") + ")",
    "not finite": RIGHT.replace("    e = np.exp", "    s[..., 0] = np.nan\n    e = np.exp"),
    "raises": RIGHT.replace("    e = np.exp", "    assert len(q) > 1\n    e = np.exp"),
    "mutates": RIGHT.replace("    e = np.exp", "    k += 1\n    e = np.exp"),
    "strided": RIGHT.replace(
        "    s = q @", "    k = np.ndarray(k.shape, k.dtype, k.base if k.base is not None else k)\n    s = q @"
    ),
    "transposed": RIGHT.replace("    s = q @", "    k = k if k.flags.c_contiguous else k[::-1]\n    s = q @"),
    "stale": RIGHT + "\n_right, _kept = attention, {}\n\ndef attention(q, k, v):\n"
    "    return _kept.setdefault(q.shape, _right(q, k, v))\n",
    "overwrites": RIGHT + "\n_right, _out = attention, np.empty((1, 2), np.float32)\n\ndef attention(q, k, v):\n"
    "    _out[...] = _right(q, k, v)\n    return _out\n",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


def ran(path: Path, source: str) -> None:
    """Run the tests of a file with this attn.py."""
    Path("attn.py").write_text(dedent(source), encoding="utf-8")
    sys.modules.pop("attn", None)
    try:
        names = runpy.run_path(str(path))
        tests: list[Callable[[], Any]] = [f for name, f in names.items() if name.startswith("test_")]
        assert tests
        for test in tests:
            test()
    finally:
        sys.modules.pop("attn", None)


def check_both(found: Repeated, right: str, wrong: str) -> str:
    Path("tests").mkdir()
    path = Path("tests", "test_attn.py")
    path.write_text(written("attn.py:attention", [("word", found)], path.parent, "symattn verify"), encoding="utf-8")
    with pytest.raises(AssertionError):
        ran(path, wrong)
    ran(path, right)
    return path.read_text(encoding="utf-8")


@pytest.mark.deep
@pytest.mark.parametrize(
    "kind", WRONG
)  # fmt: skip
def test_it_fails_on_the_wrong_function_and_passes_on_the_right_one(folder: Path, kind: str) -> None:
    Path("attn.py").write_text(WRONG[kind], encoding="utf-8")
    found = repeat_target("attn.py:attention", Attention(), INPUTS)
    assert found.report.verdict is Verdict.FAULT
    assert found.judged.finding == {"stale": "values", "strided": "not finite", "transposed": "values"}.get(kind, kind)
    text = check_both(found, RIGHT, WRONG[kind])
    assert "symattn" not in text.partition('"""\n\n')[2]


@pytest.mark.deep
def test_the_call_is_made_with_its_mask_and_layout(folder: Path) -> None:
    loud = RIGHT.replace("q, k, v, mask=None", "q, k, v, *, hide").replace("mask", "~hide")
    loud = loud.replace("k.T", "k.mT")
    wrong = loud.replace("np.sqrt(q.shape[-1])", "q.shape[-1]")
    Path("attn.py").write_text(wrong, encoding="utf-8")
    inputs = {**INPUTS, "mask": np.array([[True, True]])}
    spec, told = Attention(mask="boolean"), {"mask_arg": "~hide", "layout": "bhnd", "dtype": "float16"}
    found = repeat_target("attn.py:attention", spec, inputs, **told)  # type: ignore[arg-type]
    text = check_both(found, loud, wrong)
    assert "hide = np.array([[[[False, False]]]], dtype=bool)" in text
    assert "attention(q, k, v, hide=hide)" in text


@pytest.mark.deep
def test_the_command_writes_tests_and_repeats_a_case(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("attn.py").write_text(WRONG["values"], encoding="utf-8")
    command = ["verify", "attn.py:attention", "--budget", "600", "--examples", "0"]
    assert main([*command, "--write-test", "test_attn.py"]) == 1
    lines = capsys.readouterr().out.splitlines()
    again = lines[lines.index("Reproduce:") + 2]  # whole on one line, to be copied, however long it is
    (word,) = re.findall(rf"^ +symattn {' '.join(command)} --case (\w+)$", again)
    assert "Scores are scaled by 1/d_k" in Path("test_attn.py").read_text(encoding="utf-8")
    with pytest.raises(AssertionError, match="entries are wrong"):
        ran(Path("test_attn.py"), WRONG["values"])
    assert main([*command, "--write-test", "test_attn.py"]) == 2
    assert "--force" in capsys.readouterr().err
    assert main([*command, "--case", word]) == 1
    out = capsys.readouterr().out
    assert "Seen alone, this case is consistent with: scores are scaled by 1/d_k" in " ".join(out.split())
    assert f"--case {word}" in out
    ran(Path("test_attn.py"), RIGHT)
    assert main([*command, "--case", word]) == 0
    assert main([*command, "--causal", "--case", word]) == 2


@pytest.mark.deep
def test_no_fault_and_no_test(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("attn.py").write_text(RIGHT, encoding="utf-8")
    assert main(["verify", "attn.py:attention", "--examples", "1", "--write-test", "test_attn.py"]) == 0
    assert "test_attn.py is not written" in capsys.readouterr().err
    assert not Path("test_attn.py").exists()


@pytest.mark.deep
def test_a_case_of_many_numbers_is_found_by_running_everything(folder: Path) -> None:
    unknown = RIGHT.replace("return e", "return q.dtype.type(1 + 1e-3 * (k.size > 330)) * e")
    Path("attn.py").write_text(unknown, encoding="utf-8")
    first = named(verify_target("attn.py:attention", examples=0), Attention(), "float32")
    (word,) = [fault.case for fault in first.faults]
    assert not speaks(word)
    again = verify_case("attn.py:attention", Attention(), word, examples=0)
    assert [fault.case for fault in again.faults] == [word]
    assert again.verdict is Verdict.FAULT
    Path("attn.py").write_text(RIGHT, encoding="utf-8")
    mended = verify_case("attn.py:attention", Attention(), word, examples=0)
    assert (mended.verdict, mended.faults) == (Verdict.NO_FAULT, ())
    with pytest.raises(InputError, match="no case"):
        verify_case("attn.py:attention", Attention(), "0123456789")


@pytest.mark.torch
def test_it_calls_torch(folder: Path) -> None:
    right = """
        import torch

        def attention(q, k, v):
            return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v
    """
    wrong = dedent(right.replace("@ v", "@ -v"))
    Path("attn.py").write_text(wrong, encoding="utf-8")
    found = repeat_target("attn.py:attention", Attention(), INPUTS, dtype="bfloat16", layout="bhnd")
    text = check_both(found, dedent(right), wrong)
    assert "dtype=torch.bfloat16" in text


def test_a_word_is_that_of_the_report() -> None:
    assert encode(Attention(), INPUTS, "float32") != encode(Attention(scale=1), INPUTS, "float32")
