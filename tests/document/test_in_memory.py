"""A module that differs in memory from its file is noticed, and nothing is kept.

All runs in processes of their own, as pytest rewrites the assertions of symattn's modules.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

OPENING = """
import symattn
from symattn.attention import softmax as softmaxes
from symattn.document.evidence import Evidence, Grade
from symattn.document.in_memory import is_as_in_files
from symattn.document.stored_results import sizes
from symattn.proof import refuting
from symattn.proof import theorem as theorems
"""
CHANGES = """
CHANGES = {
    "a method of a notebook": (symattn.Attention, "__call__", lambda self, q, k, v: q),
    "another method of the class": (symattn.Attention, "__call__", symattn.Attention.trace),
    "a function": (softmaxes, "softmax", lambda s, axis=-1: s),
    "the code of a function": (softmaxes.softmax, "__code__", (lambda s, *a, **k: s).__code__),
    "a number": (refuting, "TRIES", 0),
    "an imported name": (theorems, "accepted", lambda evidence, *_: evidence),
    "a method that a dataclass makes": (Evidence, "__eq__", lambda a, b: True),
    "a property": (Grade, "means", property(lambda self: "true")),
    "a method that the class lacks": (Evidence, "__lt__", lambda a, b: True),
}
for what, (owner, name, value) in CHANGES.items():
    had, before = name in vars(owner), getattr(owner, name, None)
    before = vars(owner).get(name, before)
    setattr(owner, name, value)
    seen = not is_as_in_files()
    setattr(owner, name, before) if had or name == "__code__" else delattr(owner, name)
    print(seen and is_as_in_files(), what)
"""
KEPT = """
def kept():
    return sizes().get("theorems", (0, 0))[0]

right = symattn.Attention.__call__
symattn.Attention.__call__ = lambda self, q, k, v, **_: q
symattn.prove("softmax-shift")
changed = kept()
symattn.Attention.__call__ = right
symattn.prove("softmax-shift")
print(changed, kept())
"""
BESIDE = """
import sys
for name in ("a", "b"):
    with open(name + ".py", "w") as file:
        file.write('''
from symattn import theorem

@theorem("NAME", "mine", "x + x = 2 x", arrays={"x": "n"}, false=lambda x: (x, 2 * x), false_says="x = 2 x")
def stated(x):
    return x + x, 2 * x
'''.replace("NAME", name))
symattn.prove("a.py")
alone = sizes().get("theorems", (0, 0))[0]
symattn.prove("b.py")
symattn.prove("softmax-shift")
print(alone, sizes()["theorems"][0])
"""


def printed(code: str, folder: Path) -> list[str]:
    variables = {**os.environ, "SYMATTN_CACHE": str(folder / "cache")}
    ran = subprocess.run(
        [sys.executable, "-c", OPENING + code], cwd=folder, env=variables, capture_output=True, text=True
    )
    assert not ran.returncode, ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.deep
def test_changes_in_memory_are_noticed(tmp_path: Path) -> None:
    lines = printed(CHANGES, tmp_path)
    assert len(lines) == 9
    assert [line for line in lines if not line.startswith("True ")] == []


@pytest.mark.deep
def test_modules_that_work_are_as_in_their_files(tmp_path: Path) -> None:
    work = 'symattn.prove("softmax-shift"); symattn.walk("eight-step"); symattn.derive("attention", d_k=2, n=2)\n'
    assert printed(work + "print(is_as_in_files())", tmp_path) == ["True"]


@pytest.mark.deep
def test_nothing_is_kept_of_a_changed_program(tmp_path: Path) -> None:
    assert printed(KEPT, tmp_path) == ["0 1"]


@pytest.mark.deep
def test_nothing_is_kept_of_files_that_ran_beside_others(tmp_path: Path) -> None:
    assert printed(BESIDE, tmp_path) == ["1 1"]
