"""Files that symattn writes: whole or not at all, and never over something that it did not write."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path

from symattn.document.errors import InputError

MARK = "Made with symattn"
"""Opens every LaTeX and Markdown file, in a comment, and closes every text, so that a file can be known as ours."""

# LaTeX and Markdown open with the mark in a comment, JSON with its schema; text ends with the mark under a rule.
_HEAD = re.compile(rf"\A(% |<!-- |\(\* ){MARK}\b|\A\{{\s*\"schema\": \d+,\s*\"kind\": ")
_TAIL = re.compile(rf"^[─-]{{20,}}\n{MARK}\b[^\n]*\n*\Z", re.MULTILINE)
# PDF and PNG name who made them.
_MADE = re.compile(rf"\A%PDF-.*/Creator \({MARK}\b|\A\W?PNG\s.*?tEXtSoftware\0{MARK}\b", re.DOTALL)
_ENOUGH = 4000


def check(path: Path, force: bool) -> None:
    """Raise ``InputError`` where ``path`` cannot or must not be written; called before any work is done."""
    if path.is_dir():
        raise InputError(f"{path} is a directory; hint: name a file in it")
    if not path.parent.is_dir():
        raise InputError(f"the folder {path.parent} does not exist; hint: make it, or name another file")
    folder = Path(os.path.realpath(path)).parent
    if (path.is_file() or not path.exists()) and not os.access(folder, os.W_OK):  # the new file is made in it
        raise InputError(f"the folder {folder} is not writable; hint: change its mode, or name another file")
    if not path.exists():
        return
    if not os.access(path, os.W_OK):
        raise InputError(f"{path} is not writable; hint: change its mode, or name another file")
    if path.is_file() and not force and not written_by_symattn(path):
        raise InputError(
            f"{path} exists, and does not say that symattn wrote it; hint: --force (in Python force=True), or name "
            "another file"
        )


def write(path: Path, content: str | bytes, force: bool) -> None:
    """Write text as UTF-8, or bytes: into a new file beside ``path``, which then takes its place."""
    check(path, force)
    content = content.encode(errors="replace") if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():  # a device or a pipe is written to, never replaced
            path.write_bytes(content)
        else:
            replaced(Path(os.path.realpath(path)), content, _mode(path))
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error


def _mode(path: Path) -> int:
    """The mode of the file to be replaced, else what a new file gets."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def replaced(path: Path, content: bytes, mode: int) -> None:
    """Write a file beside ``path`` that takes its place when it is whole."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def written_by_symattn(path: Path) -> bool:
    """Return whether the file opens or ends as symattn's own do; an empty one belongs to nobody and may be filled."""
    with path.open("rb") as file:
        head = _text(file.read(_ENOUGH))
        file.seek(max(0, file.seek(0, os.SEEK_END) - _ENOUGH))
        tail = _text(file.read())
    return not head or bool(_HEAD.search(head) or _TAIL.search(tail) or _MADE.search(head + tail))


def _text(content: bytes) -> str:
    return content.decode(errors="replace").replace("\r\n", "\n")
