"""One of each addition that the documentation shows, made in a copy: few files are touched, and it works there."""

import doctest
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8").partition("\n## One of each\n")[2]
ADDITIONS = dict(re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", PAGE, re.MULTILINE | re.DOTALL))
#: Files that an addition may touch, and a package that its session needs.
MOST = {"A step": 3}
NEEDS = {"A family of models": "transformers"}


def fence(kind: str, text: str) -> str:
    """The one fence of a kind."""
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(found)


def touched(patch: str) -> set[str]:
    """The files that a patch makes or changes."""
    return set(re.findall(r"^\+\+\+ b/(\S+)$", patch, re.MULTILINE))


def apply(patch: str, folder: Path) -> None:
    """Apply a patch whose hunks need no numbers of lines: what they replace stands in its file once."""
    for part in re.split(r"^--- .*\n", patch, flags=re.MULTILINE)[1:]:
        head, *hunks = re.split(r"^@@\n", part, flags=re.MULTILINE)
        file = folder / head.removeprefix("+++ b/").strip()
        content = file.read_text(encoding="utf-8") if file.exists() else ""
        for hunk in hunks:
            lines = [(line[:1], line[1:] + "\n") for line in hunk.splitlines()]
            old, new = ("".join(line for sign, line in lines if sign != other) for other in "+-")
            assert content.count(old) == 1 or not content, f"{file.name}: {old}"
            content = content.replace(old, new) if old else new
        file.write_text(content, encoding="utf-8")


def played(session: str, package: Path) -> subprocess.CompletedProcess[str]:
    """Run a session with the package that lies in a folder."""
    assert doctest.DocTestParser().get_examples(session)
    package.joinpath("session.txt").write_text(session, encoding="utf-8")
    names = {**os.environ, "PYTHONPATH": str(package), "XDG_CACHE_HOME": str(package / "cache")}
    command = [sys.executable, "-W", "ignore", "-m", "doctest", "session.txt"]
    return subprocess.run(command, cwd=package, env=names, capture_output=True, text=True, check=False)


def test_few_files_are_touched() -> None:
    counts = {name: len(touched(fence("diff", text))) for name, text in ADDITIONS.items()}
    assert len(counts) == 7
    assert {name: n for name, n in counts.items() if not 0 < n <= MOST.get(name, 2)} == {}


@pytest.mark.deep
@pytest.mark.parametrize("name", ADDITIONS)
def test_an_addition_works(name: str, tmp_path: Path) -> None:
    pytest.importorskip(NEEDS.get(name, "symattn"))
    patch, session = (fence(kind, ADDITIONS[name]) for kind in ("diff", "{code-block} pycon"))
    shutil.copytree(ROOT / "symattn", tmp_path / "symattn", ignore=shutil.ignore_patterns("__pycache__"))
    assert played(session, tmp_path).returncode != 0, "it works without the addition"
    apply(patch, tmp_path)
    after = played(session, tmp_path)
    assert after.returncode == 0, after.stdout
