"""Every module can be the first one that is imported: no circle of imports waits for a lucky order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Each module in a process of its own, which is forked when what takes time is already there.
PROGRAM = """
import os, sys
import click, flint, hypothesis, ml_dtypes, numpy, sympy
wrong = []
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            __import__(name)
        except BaseException as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        wrong.append(name)
sys.exit(len(wrong) > 0)
"""


def modules(folder: Path) -> list[str]:
    """The names of the modules below a folder of the checkout."""
    paths = [p.relative_to(ROOT).with_suffix("") for p in sorted(folder.rglob("*.py")) if p.stem != "__main__"]
    return [".".join(p.parts).removesuffix(".__init__") for p in paths]


def imported(names: list[str], path: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(path)}
    command = [sys.executable, "-c", PROGRAM, *names]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.deep
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_every_module_can_be_imported_first() -> None:
    names = modules(ROOT / "symattn")
    assert "symattn.attention.spec" in names
    ran = imported(names, ROOT)
    assert not ran.returncode, ran.stdout + ran.stderr


@pytest.mark.deep
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_circle_is_found(tmp_path: Path) -> None:
    tmp_path.joinpath("one.py").write_text("from two import b\na = 1\n")
    tmp_path.joinpath("two.py").write_text("b = 1\nfrom one import a\n")
    ran = imported(["one", "two"], tmp_path)
    assert ran.returncode
    assert ran.stdout.startswith("two: ImportError") or ran.stdout.startswith("one: ImportError")
