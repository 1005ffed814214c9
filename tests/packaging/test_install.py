"""However it is installed, symattn is whole, its command works, and no package called ``cli`` comes with it."""

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import symattn
import symattn_cli

ROOT = Path(__file__).parents[2]
WAYS = {
    "wheel": lambda built, checkout: [built["wheel"]],
    "sdist": lambda built, checkout: [built["sdist"]],
    "editable": lambda built, checkout: ["--editable", checkout],
    "strict editable": lambda built, checkout: ["--config-settings", "editable_mode=strict", "--editable", checkout],
}


def test_no_address_of_a_registry_stands_in_the_project() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert "://" not in text
    assert "index-url" not in text


def data() -> set[str]:
    return {"symattn/py.typed"} | {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "symattn/derivations/examples").glob("*.json")
    }


@pytest.mark.packaging
def test_the_wheel_holds_every_module_and_all_data(built: dict[str, Path]) -> None:
    names = set(zipfile.ZipFile(built["wheel"]).namelist())
    modules = {path.relative_to(ROOT).as_posix() for top in ("symattn", "cli") for path in (ROOT / top).rglob("*.py")}
    wanted = {name.replace("cli/", "symattn_cli/", 1) if name.startswith("cli/") else name for name in modules}
    assert wanted | data() <= names
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"symattn", "symattn_cli"}


@pytest.mark.packaging
def test_the_sdist_holds_the_licence_and_the_sources(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"LICENSE", "README.md", "pyproject.toml", "cli/main.py"} | data() <= names


@pytest.mark.packaging
@pytest.mark.parametrize("way", WAYS)
def test_it_works_however_it_is_installed(
    way: str, built: dict[str, Path], checkout: Path, installed: Callable[..., Path], tmp_path: Path
) -> None:
    python = installed(*WAYS[way](built, checkout))

    def ran(*command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(w) for w in command], cwd=tmp_path, capture_output=True, text=True, timeout=120)

    assert ran(python.with_name("symattn"), "--version").stdout == f"symattn {symattn.__version__}\n"
    derived = ran(python.with_name("symattn"), "derive", "--dk", "4")
    assert derived.returncode == 0, derived.stderr
    assert derived.stdout
    assert ran(python.with_name("symattn"), "walk", "eight-step").returncode == 0
    assert "ModuleNotFoundError" in ran(python, "-c", "import cli").stderr
    where = ran(python, "-c", "import symattn; print(symattn.__file__)").stdout
    assert str(ROOT / "symattn") not in where


def test_the_command_is_that_of_this_tree() -> None:
    """The tests speak of the tree that they stand in, and of no other copy."""

    assert Path(symattn.__file__).parent == ROOT / "symattn"
    assert Path(symattn_cli.__file__).parent == ROOT / "cli"
    assert sys.version_info >= (3, 11)
