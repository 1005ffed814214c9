"""Where code that a user wrote has failed, in a line: the error, and the file and line to look at."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from pathlib import Path

from symattn.document.errors import InputError

_NOT_USERS = ("<", str(Path(__file__).parent) + os.sep)
LIBRARY = str(Path(os.__file__).parent) + os.sep


class NotCallable(InputError):
    """Raised if a target exists, but cannot be called as it is."""


def one_line(error: BaseException) -> str:
    """Return the type of an exception and the first line of its message, like the last line of a traceback."""
    try:
        message = error.msg if isinstance(error, SyntaxError) else str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # an exception that cannot even be printed
        message = ""
    lines = message.strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def where(error: BaseException) -> str:
    """Return ``file.py:line`` of the innermost frame in the user's code, else of the outermost in installed code."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{Path(error.filename).name}:{error.lineno}"
    return users_frame([(f.filename, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__)])


def installed(file: str) -> bool:
    """Return whether a file belongs to an installed package."""
    return "site-packages" in file


def own_frame(file: str) -> bool:
    """Return whether a file belongs neither to symattn nor to Python's standard library."""
    return not file.startswith(_NOT_USERS) and (installed(file) or not file.startswith(LIBRARY))


def users_frame(frames: Sequence[tuple[str, int]]) -> str:
    """Return ``file.py:line`` of the frame to show to a user; frames are ordered from the outermost inwards."""
    known = [f for f in frames if own_frame(f[0])]
    own = [f for f in known if not installed(f[0])]
    result = own[-1:] or known[:1]
    return f"{Path(result[0][0]).name}:{result[0][1]}" if result else ""
