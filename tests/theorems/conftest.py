"""Running ``symattn`` on theorems, with a cache of the test's own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from symattn_cli.main import main
from tests.cli.conftest import Ran

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
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Ran]:
    """``run("prove", "masks")`` in a folder and with a cache of its own."""
    monkeypatch.delenv("SYMATTN_DEBUG", raising=False)
    monkeypatch.setenv("SYMATTN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def ran(*arguments: str) -> Ran:
        return Ran(int(main(arguments)), *capfd.readouterr())

    return ran
