"""Whether a document that symattn wrote is what the command that it names writes today."""

from __future__ import annotations

import json
import re
import shlex
from html import unescape
from pathlib import Path

from symattn.errors import InputError
from symattn.render import format_of
from symattn.render.common import MARK

# What these do is told by their arguments alone; ``verify`` and ``campaign`` run code that the file would choose.
_REPEATED = ("derive", "walk", "claim", "prove", "bound", "examples", "report", "exercises", "draw")
_WRITING = ("-o", "--output", "--certificate", "--check")
_MARK = re.compile(rf"^(% |<!-- )?{MARK}: (symattn .*?)(?: -->)?$", re.MULTILINE)


def check(path: Path) -> int:
    """Repeat the command that the document names with ``--check``; the exit code of that is returned."""
    from .main import main

    text = path.read_text(encoding="utf-8")
    return main([*_words(text, path), *_form(text, path), "--check", str(path)])


def _words(text: str, path: Path) -> list[str]:
    """The words of the command behind ``symattn``. Raises InputError where it is none to repeat."""
    found = _MARK.findall(text)
    opening, command = found[-1] if found else ("", "")
    command = unescape(command) if opening == "<!-- " else command
    command = json.loads(text).get("command", "") if _format(path) == "json" else command
    try:
        words = shlex.split(command)[1:]
    except ValueError as error:
        raise InputError(f"{path}: the command {command!r} cannot be read: {error}") from None
    if not words:
        raise InputError(f"{path} does not say which command wrote it; mend: write it again")
    if words[0] not in _REPEATED or any(_runs_code(words[0], word) for word in words[1:]):
        raise InputError(f"{path} was written by `{command}`, which may run code; mend: run it yourself, with --check")
    if any(word.partition("=")[0].startswith(_WRITING) for word in words):
        raise InputError(f"{path}: a command that writes files, `{command}`, is not repeated")
    return words


def _runs_code(command: str, word: str) -> bool:
    from symattn.sources.statements import is_place

    return command == "prove" and not word.startswith("-") and is_place(word)


def _format(path: Path) -> str:
    return "svg" if path.suffix.lower() == ".svg" else format_of(path)


def _form(text: str, path: Path) -> list[str]:
    """The options that the document was written with and does not name."""
    form = _format(path)
    if form == "latex" and r"\documentclass" not in text:
        return ["--fragment"]
    return ["--ascii"] if form == "text" and text.isascii() else []
