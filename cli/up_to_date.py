"""Compare a document that symattn wrote with the output of its command today."""

from __future__ import annotations

import re
import shlex
from html import unescape
from pathlib import Path

from symattn.attention.codec.json_text import decoded
from symattn.document.errors import InputError
from symattn.document.files import MARK
from symattn.document.keywords import other_name
from symattn.document.render import SUFFIXES

# The arguments of these determine what they do; ``verify`` and ``campaign`` run code that the file would choose.
_REPEATED = (
    "derive", "walk", "explore", "claim", "prove", "bound", "examples", "report", "exercises", "draw", "faults"
)  # fmt: skip
_JUDGED = {"verify": 1, "compare": 2}  # how many targets they judge; traces run no code
_WRITING = ("output", "certificate", "check", "write-test", "write-baseline")
_MARK = re.compile(rf"^(% |<!-- )?{MARK}: (symattn .*?)(?: -->)?$", re.MULTILINE)
_PDF = re.compile(rf"/Creator \({MARK}: (symattn (?:[^()\\]|\\.)*)\)")
# How a document of each format begins, whatever the suffix of its file is; others are text.
_OPENINGS = {
    "latex": "% Made", "html": "<!-- .*\n<(!doctype html|style)", "svg": "<!-- .*\n<svg", "markdown": "<!-- ",
    "json": r"\{", "pdf": "%PDF", "png": r"\W?PNG\s", "coq": r"\(\* ",
}  # fmt: skip
_PNG = re.compile(rb"(.{4})tEXtSoftware\0", re.DOTALL)


def check(path: Path) -> int:
    """Repeat the command that the document names with ``--check``, and return its exit code."""
    from .main import main

    content = path.read_bytes()
    text = content.decode(errors="replace").replace("\r\n", "\n")
    form = next((form for form, opening in _OPENINGS.items() if re.match(opening, text)), "text")
    if form == "coq":
        raise InputError(f"{path} is a file for Coq; hint: coqc checks it")
    return main(
        [
            *_words(_command(text, content, form, path), path),
            *_options(text, form, path),
            "--check",
            str(path),
        ]
    )


def _command(text: str, content: bytes, form: str, path: Path) -> str:
    """Return the command that the document names; "" if it names none. Raises InputError for broken JSON."""
    if form == "json":
        return str(decoded(content, str(path), exact=False).get("command", ""))
    if form == "pdf":
        return re.sub(r"\\(.)", r"\1", "".join(_PDF.findall(text)[:1]))
    if form == "png":
        chunk = _PNG.search(content)
        size = int.from_bytes(chunk[1], "big") - len("Software\0") if chunk else 0
        return content[chunk.end() :][:size].decode("latin-1").partition(": ")[2] if chunk else ""
    marks = _MARK.findall(text)
    opening, command = marks[-1] if marks else ("", "")
    return unescape(command) if opening == "<!-- " else command


def _words(command: str, path: Path) -> list[str]:
    """Return the command's words after ``symattn``. Raises InputError for a command that must not be repeated."""
    try:
        words = shlex.split(command)[1:]
    except ValueError as error:
        raise InputError(f"{path}: the command {command!r} cannot be read: {error}") from None
    if not words:
        raise InputError(f"{path} does not say which command wrote it; hint: write it again")
    if _runs_code(*words):
        raise InputError(
            f"{path} was written by `{command}`, which may run code; hint: run it yourself, with --check"
        )
    if any(map(_writes, words)):
        raise InputError(f"{path}: a command that writes files, `{command}`, is not repeated")
    return words


def _runs_code(command: str, *words: str) -> bool:
    from symattn.programs.names import is_trace
    from symattn.proving import is_place

    if command in _JUDGED:
        targets = words[: _JUDGED[command]]
        return len(targets) < _JUDGED[command] or not all(map(is_trace, targets))
    places = command == "prove" and any(
        is_place(word) for word in words if not word.startswith("-")
    )
    return command not in _REPEATED or places


def _writes(word: str) -> bool:
    option = word.partition("=")[0]
    return word.startswith("-o") or (
        option.startswith("--") and bool(other_name(option[2:], _WRITING))
    )


def _options(text: str, form: str, path: Path) -> list[str]:
    """Return the options that the document was written with and its command does not name."""
    suffix = path.suffix.lower()
    whole = {"latex": r"\documentclass", "html": "<!doctype html>", "svg": 'class="paper"'}
    options = [] if form == SUFFIXES.get(suffix, suffix[1:]) else ["-f", form]
    if whole.get(form, "") not in text:
        return [*options, "--fragment"]
    return [*options, "--ascii"] if form == "text" and text.isascii() else options
