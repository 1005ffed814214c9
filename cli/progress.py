"""Show on one line of a terminal's stderr how far a command is, once it takes longer than two seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic

PATIENCE = 2.0  # seconds without a word


@contextmanager
def progress(doing: str) -> Iterator[Callable[[str], None]]:
    """Show ``doing`` with what it is told, and the seconds that have passed, until the block ends.

    Nothing is shown where stderr is no terminal. The line is written by a thread of its own, so that it is there
    whatever the work is, and whether it tells where it is or not.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda words: None
        return
    said, ended, started = [""], Event(), monotonic()

    def show() -> None:
        waited = PATIENCE
        while not ended.wait(waited):
            waited = 0.5
            seconds = f"{monotonic() - started:.0f} s"
            line = f"{doing}: {said[0]}, {seconds}" if said[0] else f"{doing}, {seconds}"
            print(f"\r\x1b[K{line[:78]}", end="", file=sys.stderr, flush=True)

    thread = Thread(target=show, daemon=True)
    thread.start()
    try:
        yield lambda words: said.__setitem__(0, words)
    finally:
        ended.set()
        thread.join()
        if monotonic() - started > PATIENCE:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
