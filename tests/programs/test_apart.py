"""A task in a copy of the process changes nothing here, and ends in time."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from symattn.programs.process import NotDone, apart


def test_the_result_comes_back_and_what_was_changed_does_not() -> None:
    kept: list[int] = []

    def task() -> Iterator[list[int]]:
        kept.append(1)
        yield [*kept, *range(100_000)]
        yield kept

    first, second = apart(task, 20.0)
    assert (first[:3], second) == ([1, 0, 1], [1])
    assert kept == []


@pytest.mark.parametrize("end", [lambda: time.sleep(60), lambda: os._exit(3), lambda: 1 / 0])
def test_what_came_before_the_end_counts(end: Callable[[], Any]) -> None:
    def task() -> Iterator[int]:
        yield 7
        end()
        yield 8

    assert apart(task, 0.3) == [7]


def _raising() -> Any:
    raise ValueError("not today")


def _leaving() -> Any:
    os._exit(3)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (_raising, "ValueError: not today"),
        (_leaving, "it ended its process"),
        (lambda: time.sleep(60), "it did not end within 0.3 s"),
        (lambda: [lambda: 0], "Can't pickle|local object|pickle"),
    ],
)
def test_what_gives_no_result_says_why(task: Any, words: str) -> None:
    start = time.monotonic()
    with pytest.raises(NotDone, match=words):
        apart(task, 0.3 if "0.3" in words else 20.0)
    assert time.monotonic() - start < 20
