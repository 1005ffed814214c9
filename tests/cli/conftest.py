"""Running ``symattn`` within the test's process."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from symattn_cli.main import main


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    @property
    def refusal(self) -> str:
        """The one line of an input error: exit code 2, nothing on stdout, and no defect."""
        assert (self.status, self.stdout) == (2, ""), self
        assert self.stderr.count("\n") == 1, self.stderr
        assert "defect" not in self.stderr
        assert "Traceback" not in self.stderr
        return self.stderr


Run = Callable[..., Ran]


def running(capture: Any) -> Run:
    """Return a function that runs a command; ``capture`` is a fixture of pytest for what is printed."""
    return lambda *arguments: Ran(int(main(arguments)), *capture.readouterr())


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """``run("derive", "--dk", "4")`` is a command with its exit code, stdout and stderr, and with an empty cache."""
    monkeypatch.delenv("SYMATTN_DEBUG", raising=False)
    monkeypatch.setenv("SYMATTN_CACHE", str(tmp_path_factory.mktemp("cache")))
    return running(capsys)
