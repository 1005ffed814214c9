"""Running ``symattn`` on theorems, with a cache of the test's own."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run, running

STATED = """
from symattn import theorem


def exp(x):
    return x.__array_namespace__().exp(x)


@theorem("{name}", "mine", "e^(2 s) = e^s e^s", arrays={{"s": "n m"}},
         false=lambda s: {false}, false_says="e^(2 s) = e^s")
def statement(s):
    {body}
"""


def stated(
    name: str = "doubling", body: str = "return exp(2 * s), exp(s) * exp(s)", false: str = "(exp(2 * s), exp(s))"
):
    """The text of a user's file with one theorem."""
    return STATED.format(name=name, body=body, false=false)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """``run("prove", "masks")`` in a folder and with a cache of its own."""
    monkeypatch.delenv("SYMATTN_DEBUG", raising=False)
    monkeypatch.setenv("SYMATTN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return running(capfd)


@pytest.fixture(autouse=True)
def _no_file_has_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept of files that ran beside others in one process, as those of several tests do."""
    from symattn import proving

    monkeypatch.setattr(proving, "_RUN", set())
