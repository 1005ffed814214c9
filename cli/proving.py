"""Deciding the theorems that a command names, with progress on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symattn.theorems.documents import Decided
    from symattn.theorems.runner import Progress


def proved(names: tuple[str, ...], *, explain: bool, jobs: int, cached: bool) -> list[Decided]:
    """The theorems with these names, topics or files, decided. What a user's file prints goes to stderr."""
    from symattn.errors import InputError
    from symattn.sources.statements import by_name, gathered, tried
    from symattn.theorems import runner

    with redirect_stdout(sys.stderr):
        chosen = gathered(names)
        for theorem, place in chosen.values():
            if place:
                tried(theorem, place)
        theorems = [theorem for theorem, _ in chosen.values()]
        source = partial(by_name, names)
        try:
            with _progress() as show:
                return runner.run(theorems, source, jobs=jobs, explain=explain, cached=cached, progress=show)
        except runner.Broken as broken:
            place = chosen[broken.name][1]
            if not place:
                raise
            raise InputError(f"{place}: a function of {broken.name!r} raises {broken.told}") from broken


@contextmanager
def _progress() -> Iterator[Progress]:
    """How far it is, on one line of a terminal's stderr, once it takes longer than a second."""
    started, shown = monotonic(), False

    def show(done: int, of: int, name: str) -> None:
        nonlocal shown
        if sys.stderr.isatty() and monotonic() - started > 1:
            shown = True
            print(f"\r\x1b[Kproving: {done} of {of}, {name}", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
