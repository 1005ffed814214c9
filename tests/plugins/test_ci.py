"""docs/ci.md in a scratch repository: its tests, the steps of the GitHub action, and the hooks for pre-commit."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, files

pytestmark = pytest.mark.deep
PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
SYMATTN = """#!/bin/sh
exec {} -c 'import sys; from symattn_cli.main import main; sys.exit(main())' "$@"
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the files of the page, a document, one that symattn did not write, and symattn as a command."""
    program = tmp_path / "bin" / "symattn"
    program.parent.mkdir()
    program.write_text(SYMATTN.format(shlex.quote(sys.executable)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    place = tmp_path / "repository"
    (place / "docs").mkdir(parents=True)
    for name, text in files(PAGE).items():
        (place / name).write_text(text, encoding="utf-8")
    (place / "docs" / "notes.md").write_text("# Notes\n")
    assert ran("symattn derive shift -o docs/shift.md", place) == 0
    return place


def ran(script: str, place: Path, **variables: str) -> int:
    """Run a script as the action runs its steps: by bash, which ends at the first error."""
    words = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]
    return subprocess.run(
        words, cwd=place, env={**os.environ, **variables}, capture_output=True, timeout=300
    ).returncode


def step(name: str) -> str:
    """The script of a step of the action."""
    text = (
        (ROOT / "action.yml").read_text(encoding="utf-8").partition(f"- name: {name}\n")[2].partition("    - name:")[0]
    )
    run = text.partition("run: ")[2]
    return re.sub(r"^ {8}", "", run.removeprefix("|\n"), flags=re.MULTILINE)


def hook(name: str) -> str:
    """The command of a hook."""
    text = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8").partition(f"- id: {name}\n")[2]
    return re.findall(r"entry: (.*)", text)[0]


def break_both(place: Path) -> None:
    """Put the wrong function in the place of the right one, and change a document by hand."""
    (place / "attn.py").write_text((place / "wrong.py").read_text(encoding="utf-8"), encoding="utf-8")
    document = place / "docs" / "shift.md"
    document.write_text(document.read_text(encoding="utf-8").replace("softmax", "sotfmax"), encoding="utf-8")


def test_the_steps_of_the_action(repository: Path) -> None:
    line = re.findall(r"verify: \|\n +(.*)", PAGE)[0]
    documents, verify = step("Check documents"), step("Verify functions")
    assert ran(documents, repository, DOCUMENTS="docs/*.md") == 0
    assert ran(verify, repository, VERIFY=f"{line}\n\n") == 0
    (repository / "my code").mkdir()
    (repository / "my code" / "attn.py").write_bytes((repository / "attn.py").read_bytes())
    (repository / "docs" / "my shift.md").write_bytes((repository / "docs" / "shift.md").read_bytes())
    spaced = f'"my code/{line.replace(":attention", ":attention" + chr(34), 1)}'
    for names in ("'docs/my shift.md' docs/shift.md", "docs/notes.md\ndocs/my*.md\n"):
        assert ran(documents, repository, DOCUMENTS=names) == 0
    assert ran(verify, repository, VERIFY=spaced) == 0
    break_both(repository)
    (repository / "my code" / "attn.py").write_bytes((repository / "attn.py").read_bytes())
    (repository / "docs" / "my shift.md").write_bytes((repository / "docs" / "shift.md").read_bytes())
    for names in ("docs/*.md", "'docs/my shift.md'"):
        assert ran(documents, repository, DOCUMENTS=names) == 1
    assert ran(verify, repository, VERIFY=spaced) == 1


def test_the_action_installs_what_stands_beside_it(repository: Path) -> None:
    program = repository.parent / "bin" / "python"
    program.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word" >> installed; done\n')
    program.chmod(0o755)
    for asked, wanted in (
        ("", ["/a folder/symattn"]),
        ("symattn[torch] >= 1\nother\n", ["symattn[torch] >= 1", "other"]),
    ):
        (repository / "installed").unlink(missing_ok=True)
        assert ran(step("Install symattn"), repository, INSTALL=asked, HERE="/a folder/symattn") == 0
        assert (repository / "installed").read_text().splitlines() == ["-m", "pip", "install", "--quiet", *wanted]


def test_the_hooks(repository: Path) -> None:
    arguments = re.findall(r"args: \[(.*)\]", PAGE)[0].replace(",", "").replace('"', "")
    documents, verify = f"{hook('symattn-documents')} docs/*.md", f"{hook('symattn-verify')} {arguments}"
    assert (ran(documents, repository), ran(verify, repository)) == (0, 0)
    break_both(repository)
    assert (ran(documents, repository), ran(verify, repository)) == (1, 1)


def test_the_tests_of_the_page(repository: Path) -> None:
    tests = f"{shlex.quote(sys.executable)} -m pytest -q -p no:cacheprovider --symattn-effort quick"
    assert ran(tests, repository) == 0
    break_both(repository)
    assert ran(tests, repository) == 1
