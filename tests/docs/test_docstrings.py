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


# Examples that verify something run whole verifications.
LONG = ("symattn.strategies", "symattn.verification.report", "symattn.sources.verify", "symattn.testing")
MARKS = {
    "symattn.auditing.audit": pytest.mark.torch,
    "symattn.comparing.generation": pytest.mark.transformers,
    **dict.fromkeys(LONG, pytest.mark.deep),
}
NAMES = [module_of(file) for file in FILES]


@pytest.mark.parametrize("name", [pytest.param(n, marks=MARKS.get(n, ())) for n in NAMES])
def test_examples_of_a_module(name: str) -> None:
    played = doctest.testmod(import_module(name))
    assert (played.failed, played.attempted > 0) == (0, True)
