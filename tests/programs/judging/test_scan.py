"""What the source of a candidate says is noted, and decides nothing."""

from pathlib import Path

import pytest

from symattn import judge, reports
from symattn.programs.judging.scan import notes_of_source
from tests.programs.judging.hostile import RIGHT


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import inspect", "its source imports inspect, which looks at its callers (line 1)"),
        ("from time import time as t", "its source imports time, which reads clocks (line 1)"),
        ("import os.path, numpy", "its source imports os, which reaches files and processes (line 1)"),
        ("def f(q):\n    return eval('q')", "its source calls eval (line 2)"),
        ("def f(q):\n    if q.sum() == 1.23456789: return 0", "compares with the constant 1.23456789 (line 2)"),
        ("f = lambda q: q > 123456789", "its source compares with the constant 123456789 (line 1)"),
        ("match n:\n    case 987654321: pass", "its source compares with the constant 987654321 (line 2)"),
        ("x = h == 'd41d8cd98f00b204e9800998ecf8427e'", "its source compares with the constant d41d8cd9… (line 1)"),
    ],
)
def test_what_a_source_says_is_noted(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(text)
    (note,) = notes_of_source(path)
    assert note.endswith(words)


@pytest.mark.parametrize(
    "text",
    [
        "import math, numpy as np, torch",
        "scale = 0.08838834764831845",  # 1/√128, in no comparison
        "wide = n > 1073741824",
        "small = x < 1e-12 or x == 65504.0 or x > 3.4e38 or x == 0.0001",
        "name = dtype == 'float8_e4m3fn_of_torch'",
        "this is no code",
    ],
)
def test_what_kernels_usually_say_is_not_noted(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(text)
    assert notes_of_source(path) == ()


@pytest.mark.deep
def test_notes_decide_no_status(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(
        f"import gc, time\n{RIGHT}\ndef f(q, k, v):\n    return right(q, k, v) if len(q) != 123456789 else v\n"
    )
    judgement = judge(f"{path}:f", examples=5)
    assert judgement.status is reports.Status.PASS
    noted = [words for words in judgement.notes if words.startswith("its source")]
    assert [words.split()[2] for words in noted] == ["imports", "imports", "compares"]
