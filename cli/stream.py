"""Standard output: the same UTF-8 bytes on every system, coloured only on a terminal."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from typing import Literal, TextIO

Colour = Literal["auto", "always", "never"]


def speaks_utf8() -> bool:
    """Return whether the reader of stdout expects UTF-8."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    return encoding.lower().replace("-", "").replace("_", "") in ("utf8", "utf8sig", "cp65001")


def colours(wish: Colour) -> bool:
    """Return whether to colour stdout: by default on a terminal, unless ``NO_COLOR`` is set or it is dumb."""
    if wish != "auto":
        return wish == "always"
    terminal = sys.stdout is not None and sys.stdout.isatty()
    return terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def columns() -> int:
    """Return the width of a text: that of the terminal, within 60 to 160; 80 if stdout is not a terminal."""
    if sys.stdout is None or not sys.stdout.isatty():
        return 80
    return min(max(shutil.get_terminal_size().columns, 60), 160)


def write(text: str) -> None:
    """Write ``text`` to stdout as UTF-8. A reader that stopped reading (``| head``) is no error."""
    from symattn.document.errors import InputError

    if sys.stdout is None:
        raise InputError("standard output is closed; hint: -o FILE")
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(
            text.encode(errors="replace")
        )  # a file name may not be valid Unicode
        sys.stdout.flush()
    except BrokenPipeError:
        hang_up()
    except OSError as error:
        hang_up()
        raise InputError(f"standard output cannot be written: {error.strerror}") from error


def tell(line: str) -> None:
    """Write ``line`` to stderr. If that is impossible the line is lost, and the exit code stays the same."""
    if sys.stderr is None:
        return
    try:
        print(line, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        hang_up(sys.stderr)


def hang_up(stream: TextIO | None = None) -> None:
    """Redirect a stream, by default stdout, to the null device, so that the interpreter's last flush succeeds."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, (stream or sys.stdout).fileno())
        os.close(nowhere)
