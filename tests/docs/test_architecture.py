"""The page on how symattn is built names the places that a call really passes, in their order."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from symattn import Attention, derive, printing, verify

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.docs


def named(way: str) -> list[tuple[str, str]]:
    """The files and functions of a table."""
    table = PAGE.partition(f"<!-- {way} -->")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", table, re.MULTILINE)


def passed(work: Callable[[], Any], wanted: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """The calls of the wanted functions, in their order."""
    found: list[tuple[str, str]] = []
    room = str(ROOT / "symattn") + "/"

    def see(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(room):
            place = (frame.f_code.co_filename.removeprefix(room), frame.f_code.co_qualname)
            if place in wanted and found[-1:] != [place]:
                found.append(place)

    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def attention(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.T / np.float32(np.sqrt(q.shape[-1]))
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v


def unscaled(q: Any, k: Any, v: Any) -> Any:
    return attention(q * np.float32(np.sqrt(q.shape[-1])), k, v)


WAYS: dict[str, Callable[[], Any]] = {
    "verify": lambda: verify(attention, Attention()).document(),
    "fault": lambda: verify(unscaled, Attention()),
    "derive": lambda: printing.render(derive("scaling", dk=4), "text"),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_way_is_as_it_is_told(way: str) -> None:
    places = named(way)
    assert len({file for file, _ in places}) <= 10
    calls = iter(passed(WAYS[way], set(places)))
    assert [place for place in places if place not in calls] == []  # each is looked for behind the one before


def test_every_room_of_the_picture_is_there() -> None:
    picture = PAGE.partition("```text")[2].partition("```")[0]
    rooms = set(re.findall(r"([a-z]+)/", picture))
    assert {r for r in rooms if not (ROOT / r).is_dir() and not (ROOT / "symattn" / r).is_dir()} == set()
    assert {p.name for p in (ROOT / "symattn").iterdir() if (p / "__init__.py").exists()} == rooms - {"cli"}
