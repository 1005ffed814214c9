"""Small programs of users, written into a folder of their own which is the current one."""

import importlib.abc
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

from tests.programs.programs import Program


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    """``program(text, name)`` writes a file; what importing it leaves behind is cleared away."""
    monkeypatch.chdir(tmp_path)
    # A test elsewhere may have loaded its own file of this name, and left it.
    sys.modules.pop("attn", None)
    path, modules = list(sys.path), set(sys.modules)

    def write(text: str, name: str = "attn.py") -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text), encoding="utf-8")
        return file

    yield write
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


class _NoTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return None


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if torch were not installed."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_NoTorch(), *sys.meta_path])
