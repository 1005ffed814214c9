"""Exit codes, and error messages of one line on stderr."""

from __future__ import annotations

import os
from enum import IntEnum
from errno import EDQUOT, ENOSPC

import click

from .stream import tell

_OF_EXAMPLES = ("walk", "explore", "examples")  # commands that take the name of an example
# Longer words are cut: of a number of thousands of digits the beginning is enough.
_LONGEST, _LEFT = 400, 60


class Status(IntEnum):
    """The exit codes and their meanings."""

    HOLDS = 0  # no fault, or a true claim
    FAULT = 1  # a fault, a false claim, a stale file
    USAGE = 2  # wrong usage or bad input
    UNDECIDED = 3
    TARGET = 4  # the target cannot be imported, raises on every input, or never returns
    DEFECT = 70  # a defect of symattn
    INTERRUPTED = 130


def report(error: BaseException) -> int:
    """Print one line about the error on stderr, and return the exit code."""
    if isinstance(error, BrokenPipeError):  # a reader such as ``head`` has seen enough
        from .stream import hang_up

        hang_up()
        return Status.HOLDS
    if os.environ.get("SYMATTN_DEBUG"):
        import traceback

        traceback.print_exception(error)
    status, line = _status_and_line(error)
    say(line)
    return status


def say(line: str) -> None:
    """Print one line on stderr, whatever the text contains: line ends, control codes, very long words."""
    tell(" ".join(map(_shown, line.split())))


def _shown(word: str) -> str:
    short = word if len(word) <= _LONGEST else f"{word[:_LEFT]}…({len(word)} characters)"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in short)


def _status_and_line(error: BaseException) -> tuple[Status, str]:
    from symattn.document.errors import CannotRun, SymattnError, Undecided

    if isinstance(error, (KeyboardInterrupt, EOFError, click.Abort)):
        return Status.INTERRUPTED, "symattn: interrupted"
    if isinstance(error, click.ClickException):
        return Status.USAGE, _usage(error)
    if isinstance(error, Undecided):
        return Status.UNDECIDED, f"symattn: undecided: {error}"
    if isinstance(error, CannotRun):
        return Status.TARGET, f"symattn: {error}"
    if isinstance(error, SymattnError):
        from .python_hints import in_options

        return Status.USAGE, f"symattn: {in_options(str(error))}"
    if isinstance(error, SystemExit):
        return (
            Status.TARGET,
            f"symattn: the code that was run ended the process: SystemExit: {error.code}",
        )
    if isinstance(error, MemoryError):
        return (
            Status.USAGE,
            f"symattn: there is not enough memory; hint: smaller sizes. {error}".rstrip(),
        )
    if isinstance(error, OSError) and _refused_by_system(error):
        return (
            Status.USAGE,
            f"symattn: {error.filename or 'a file'} cannot be used: {error.strerror}",
        )
    return Status.DEFECT, _defect(error)


def _refused_by_system(error: OSError) -> bool:
    """Return whether the system refused a file: a name too long, no permission to enter a folder, a full disk.

    A missing file of symattn's own is a defect.
    """
    import symattn

    if error.filename is None:
        return error.errno in (ENOSPC, EDQUOT)
    own = tuple(os.path.dirname(str(file)) for file in (symattn.__file__, __file__))
    return not os.path.abspath(os.fsdecode(error.filename)).startswith(own)


def _usage(error: click.ClickException) -> str:
    from symattn.document.keywords import PICKED, TOLERANCES
    from symattn.document.render import SUFFIXES

    context = getattr(error, "ctx", None)
    path = context.command_path if context else "symattn"
    if type(error).__name__ == "NoArgsIsHelpError" and context:  # its message is the whole help
        return f"{path}: a command is missing: {', '.join(context.command.commands)} (see {path} --help)"
    option = error.option_name.lstrip("-") if isinstance(error, click.NoSuchOption) else ""
    if option in TOLERANCES:
        return f"{path}: {PICKED}"
    if option == "list" and path.rpartition(" ")[2] in _OF_EXAMPLES:
        return f"{path}: there is no --list; `symattn examples list` lists the examples"
    if option in ("spec", "specification", "attention") and _has_parameter(context, "heads"):
        others = ", and other definitions are given as --definition 'Gradient(…)'"
        more = others if _has_parameter(context, "definition") else ""
        return (
            f"{path}: there is no --{option}; fields of Attention are options, such as --heads 2{more} "
            f"(see {path} --help)"
        )
    forms = (
        next((p.type for p in context.command.params if p.name == "form"), None)
        if context
        else None
    )
    form = SUFFIXES.get(f".{option}", option)
    if form in getattr(forms, "choices", ()):
        return f"{path}: there is no --{option}; write -f {form} (see {path} --help)"
    return f"{path}: {error.format_message().removesuffix('.')} (see {path} --help)"


def _has_parameter(context: click.Context | None, name: str) -> bool:
    return context is not None and name in [p.name for p in context.command.params]


def _defect(error: BaseException) -> str:
    from traceback import extract_tb

    frames = [
        frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith("<")
    ]
    where = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    return (
        f"symattn: a defect of symattn, not of your input: {type(error).__name__}: {error}{where}; "
        "please report it with this command and what it prints under SYMATTN_DEBUG=1"
    )
