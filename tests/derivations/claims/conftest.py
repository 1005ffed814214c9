"""Running ``symattn`` within the test's process."""

from __future__ import annotations

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


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """``run("claim", "weights", "1")`` is a command with its exit code, stdout and stderr."""
    monkeypatch.delenv("SYMATTN_DEBUG", raising=False)

    def ran(*arguments: str) -> Ran:
        status = main(arguments)
        return Ran(int(status), *capsys.readouterr())

    return ran


@pytest.fixture
def refused(run: Callable[..., Ran]) -> Callable[..., str]:
    """``refused("claim", …)`` is the one line of an input error: exit code 2, nothing on stdout."""

    def line(*arguments: str) -> str:
        ran = run(*arguments)
        assert (ran.status, ran.stdout) == (2, ""), ran.stderr
        assert ran.stderr.count("\n") == 1, ran.stderr
        assert "defect" not in ran.stderr
        assert "Traceback" not in ran.stderr
        return ran.stderr

    return line
