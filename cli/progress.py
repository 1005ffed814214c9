"""Show the progress of a command on one line of a terminal's stderr, once it takes longer than two seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic

PATIENCE = 2.0  # seconds before anything is shown


@contextmanager
def progress(doing: str) -> Iterator[Callable[[str], None]]:
    """Show ``doing``, the words last passed to the function yielded, and the elapsed seconds, until the block ends.

    Nothing is shown if stderr is not a terminal. A thread of its own writes the line, so that it appears whatever the
    work is, and whether or not it reports progress.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda words: None
        return
    words_shown, ended, started = [""], Event(), monotonic()

    def show() -> None:
        waited = PATIENCE
        while not ended.wait(waited):
            waited = 0.5
            seconds = f"{monotonic() - started:.0f} s"
            line = (
                f"{doing}: {words_shown[0]}, {seconds}" if words_shown[0] else f"{doing}, {seconds}"
            )
            print(f"\r\x1b[K{line[:78]}", end="", file=sys.stderr, flush=True)

    thread = Thread(target=show, daemon=True)
    thread.start()
    try:
        yield lambda words: words_shown.__setitem__(0, words)
    finally:
        ended.set()
        thread.join()
        if monotonic() - started > PATIENCE:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
