"""What symattn says is what was frozen: a few lines by default, with a fixed seed, and all in an exhaustive run."""

import re
from random import Random

import pytest

from tests.golden.freeze import PARTS, differences, stored

DRAWN = {"helps": 5, "documents": 5, "entered": 1, "theorems": 5}
# All theorems of a topic take minutes: each has a line of its own, and proofs are printed by ``prove softmax-shift``.
_TOPIC = re.compile(r"prove (?!softmax-shift|--)")


@pytest.mark.parametrize("part", [pytest.param(p, marks=pytest.mark.deep) for p in PARTS])
def test_some_lines_are_as_they_were_frozen(part: str) -> None:
    names = [name for name in stored(part) if not _TOPIC.match(name)]
    assert differences(part, Random(part).sample(names, DRAWN.get(part, 3))) == {}


def test_a_few_lines_are_as_they_were_frozen() -> None:
    documents = [name for name in stored("documents") if name.startswith(("walk", "claim"))]
    assert differences("documents", Random(1).sample(documents, 4)) == {}
    assert differences("theorems", ["softmax-shift"]) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", PARTS)
def test_all_lines_are_as_they_were_frozen(part: str) -> None:
    assert [*PARTS[part][0]()] == [*stored(part)]
    assert differences(part, stored(part)) == {}


def test_a_line_that_differs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.golden.freeze.stored", lambda part: {"derive --list": "0"})
    assert [*differences("documents", ["derive --list"])] == ["derive --list"]
