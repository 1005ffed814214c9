"""The rooms of the house: what they import, and the pages that name them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("docs/architecture.md", "CONTRIBUTING.md")}


def test_both_pages_name_every_room() -> None:
    rooms = {p.parent.name for p in (ROOT / "symattn").glob("*/__init__.py")}
    assert len(rooms) > 10
    for page in PAGES.values():
        assert {room for room in rooms if not re.search(rf"\b{room}/", page)} == set()


@pytest.mark.parametrize("name", PAGES)
def test_every_file_and_folder_that_a_page_names_is_there(name: str) -> None:
    paths = re.findall(r"`((?:symattn/|cli/|tests/|docs/)?[\w/]+(?:\.py|/))`", PAGES[name])
    assert len(paths) > 20
    rooms = (ROOT, ROOT / "symattn", *(p.parent for p in (ROOT / "symattn").glob("*/__init__.py")))
    assert [path for path in paths if not any((room / path).exists() for room in rooms)] == []


@pytest.mark.deep
@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("symattn/bounds/rule.py", "import symattn.proof.prover"),
        ("symattn/derivations/implemented.py", "import symattn.models.auditing"),
        ("symattn/attention/scores.py", "import symattn.bounds.judge"),
        ("symattn/bounds/judge.py", "import symattn.verification.engine"),
    ],
)
def test_an_import_between_the_wings_is_refused(tmp_path: Path, file: str, line: str) -> None:
    shutil.copytree(ROOT, tmp_path / "copy", ignore=lambda folder, names: [n for n in names if n not in _kept(folder)])
    with (tmp_path / "copy" / file).open("a", encoding="utf-8") as stream:
        stream.write(f"\n{line}\n")
    lint = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    ran = subprocess.run(
        [sys.executable, "-c", lint], cwd=tmp_path / "copy", capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert line.removeprefix("import ") in " ".join(ran.stdout.split())


def _kept(folder: str) -> set[str]:
    """What the contracts look at: the two packages, and the file that states the contracts."""
    names = {p.name for p in Path(folder).iterdir() if p.is_dir() or p.suffix == ".py"} - {"__pycache__"}
    return {"symattn", "cli", "pyproject.toml"} if Path(folder) == ROOT else names
