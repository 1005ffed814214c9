"""Running ``symattn`` within the test's process, and sheets in files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, running


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """``run("walk", "E1")`` is a command with its exit code, stdout and stderr."""
    monkeypatch.delenv("SYMATTN_DEBUG", raising=False)
    return running(capsys)


@pytest.fixture
def sheet(tmp_path: Path) -> Callable[[Any], str]:
    """``sheet({"inputs": …})`` writes a file and gives its name; text and bytes are written as they are."""

    def written(content: Any) -> str:
        path = tmp_path / "sheet.json"
        data = content if isinstance(content, (str, bytes)) else json.dumps(content)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return str(path)

    return written


@pytest.fixture
def refused(run: Run) -> Callable[..., str]:
    """``refused("walk", file)`` is the one line of an input error: exit code 2, nothing on stdout."""
    return lambda *arguments: run(*arguments).refusal
