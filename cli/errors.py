"""Exit codes, and how an error becomes one line on stderr."""

from __future__ import annotations

import os
import sys
from enum import IntEnum

import click


class Status(IntEnum):
    """What an exit code means."""

    HOLDS = 0  # what was asked holds
    FAULT = 1  # a fault, a false claim, a stale file
    USAGE = 2  # wrong usage or bad input
    UNDECIDED = 3
    TARGET = 4  # the target cannot be imported, raises on every input, or never returns
    DEFECT = 70  # of symattn
    INTERRUPTED = 130


def report(error: BaseException) -> int:
    """Say on stderr, in one line, what went wrong; the exit code is returned."""
    if isinstance(error, BrokenPipeError):  # a reader such as ``head`` has seen enough
        from .stream import hang_up

        hang_up()
        return Status.HOLDS
    if os.environ.get("SYMATTN_DEBUG"):
        import traceback

        traceback.print_exception(error)
    status, line = _told(error)
    say(line)
    return status


def say(line: str) -> None:
    """One line on stderr, whatever line ends the text has."""
    print(" ".join(line.split()), file=sys.stderr)


def _told(error: BaseException) -> tuple[Status, str]:
    from symattn.errors import SymattnError, Undecided

    if isinstance(error, (KeyboardInterrupt, EOFError, click.Abort)):
        return Status.INTERRUPTED, "symattn: interrupted"
    if isinstance(error, click.ClickException):
        return Status.USAGE, _usage(error)
    if isinstance(error, Undecided):
        return Status.UNDECIDED, f"symattn: undecided: {error}"
    if isinstance(error, SymattnError):
        return Status.USAGE, f"symattn: {error}"
    return Status.DEFECT, _defect(error)


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "symattn"
    if isinstance(error, click.NoSuchOption) and error.option_name in ("--tolerance", "--tol", "--atol", "--rtol"):
        return f"{path}: no tolerance is picked: symattn bound prints the one that follows from the arithmetic"
    return f"{path}: {error.format_message()} (see {path} --help)"


def _defect(error: BaseException) -> str:
    from traceback import extract_tb

    frames = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    where = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    return (
        f"symattn: a defect of symattn, not of your input: {type(error).__name__}: {error}{where}; "
        "please report it with this command and what it prints under SYMATTN_DEBUG=1"
    )
