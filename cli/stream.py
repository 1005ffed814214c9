"""Standard output: the same UTF-8 bytes on every system, no colour unless a terminal shows it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from typing import Literal, TextIO

Colour = Literal["auto", "always", "never"]


def speaks_utf8() -> bool:
    """Return whether whoever reads stdout expects UTF-8."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    return encoding.lower().replace("-", "").replace("_", "") in ("utf8", "utf8sig", "cp65001")


def colours(wish: Colour) -> bool:
    """Return whether to colour what stdout gets: on a terminal, unless ``NO_COLOR`` is set or the terminal is dumb."""
    if wish != "auto":
        return wish == "always"
    terminal = sys.stdout is not None and sys.stdout.isatty()
    return terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def columns() -> int:
    """How wide a text may be: as the terminal, within reason; 80 where stdout is none."""
    if sys.stdout is None or not sys.stdout.isatty():
        return 80
    return min(max(shutil.get_terminal_size().columns, 60), 160)


def write(text: str) -> None:
    """Write ``text`` to stdout as UTF-8. A reader that has gone (``| head``) is no error."""
    from symattn.document.errors import InputError

    if sys.stdout is None:
        raise InputError("standard output is closed; hint: -o FILE")
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode(errors="replace"))  # a name of a file need not be text
        sys.stdout.flush()
    except BrokenPipeError:
        hang_up()
    except OSError as error:
        hang_up()
        raise InputError(f"standard output cannot be written: {error.strerror}") from error


def tell(line: str) -> None:
    """Write ``line`` to stderr. Where stderr is closed or cannot be written it is lost, and changes no exit code."""
    if sys.stderr is None:
        return
    try:
        print(line, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        hang_up(sys.stderr)


def hang_up(stream: TextIO | None = None) -> None:
    """Point a stream, by default stdout, nowhere, so that the interpreter's last flush finds no closed pipe."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, (stream or sys.stdout).fileno())
        os.close(nowhere)
