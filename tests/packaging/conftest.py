"""Fresh environments to install into: without pip, and with the dependencies of the running environment in reach."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = "Scripts" if os.name == "nt" else "bin"


def call(*command: str | Path, cwd: Path) -> str:
    """Run a command without this test's environment variables for Python; its stdout."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV_"))}
    ended = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=inherited, capture_output=True, text=True, timeout=600
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree, so that building leaves nothing behind."""
    copy = tmp_path_factory.mktemp("checkout") / "symattn"
    ignored = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "dist", "_build")
    shutil.copytree(ROOT, copy, ignore=ignored)
    return copy


@pytest.fixture(scope="session")
def built(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel and the sdist; the wheel is built from the sdist."""
    out = tmp_path_factory.mktemp("built")
    call(sys.executable, "-m", "build", "--outdir", out, checkout, cwd=out)
    return {"wheel": next(out.glob("*.whl")), "sdist": next(out.glob("*.tar.gz"))}


@pytest.fixture
def installed(tmp_path: Path) -> Callable[..., Path]:
    """``installed("--editable", path)`` is the Python of a fresh environment with that installed."""

    def install(*what: str | Path) -> Path:
        home = tmp_path / "environment"
        call(sys.executable, "-m", "venv", "--without-pip", home, cwd=tmp_path)
        python = home / SCRIPTS / ("python.exe" if os.name == "nt" else "python")
        call(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", *what, cwd=tmp_path)
        # A path file adds the folder alone: an editable install that the folder holds stays out of reach.
        purelib = call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
        Path(purelib, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
        return python

    return install
