"""The examples in docstrings do what they show."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [f for f in sorted(ROOT.joinpath("symattn").rglob("*.py")) if ">>> " in f.read_text(encoding="utf-8")]


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("name", [module_of(file) for file in FILES])
def test_examples_of_a_module(name: str) -> None:
    played = doctest.testmod(import_module(name))
    assert (played.failed, played.attempted > 0) == (0, True)
