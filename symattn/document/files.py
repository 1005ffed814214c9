"""Files that symattn writes: atomically, and never over a file that it did not write."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Literal

from symattn.document.errors import InputError

MARK = "Made with symattn"
"""The mark of files by symattn: at the start of LaTeX and Markdown, in a comment, and at the end of text."""

# LaTeX and Markdown start with the mark in a comment, JSON with its schema, SARIF with the tool.
_HEAD = re.compile(
    rf"\A(% |<!-- |\(\* ){MARK}\b|\A\{{\s*\"schema\":\s*\d+,\s*\"kind\":\s*"
    r"|\A\{[^{}]*sarif[^{}]*\{\s*\"tool\":\s*\{\s*\"driver\":\s*\{\s*\"name\":\s*\"symattn\""
)
# Text ends with the mark under a rule.
_TAIL = re.compile(rf"^[─-]{{20,}}\n{MARK}\b[^\n]*\n*\Z", re.MULTILINE)
# PDF and PNG name their creator.
_MADE = re.compile(rf"\A%PDF-.*/Creator \({MARK}\b|\A\W?PNG\s.*?tEXtSoftware\0{MARK}\b", re.DOTALL)
# Commands read these again: a sheet may hold numbers of its reader, and certificates are evidence.
_SHEET = re.compile(r"\A\{.*\"sheet\":\s*\{", re.DOTALL)
_CERTIFICATES = re.compile(r"\A\{\"schema\":\d+,\"kind\":\"certificates\"")
# Bytes at either end of a file in which a mark may stand.
_ENOUGH = 4000
Kind = Literal["document", "certificates"]


def check(path: Path, force: bool, kind: Kind = "document") -> None:
    """Raise InputError if ``path`` cannot or must not be written; called before any work is done."""
    if path.is_dir():
        raise InputError(f"{path} is a directory; hint: name a file in it")
    if not path.parent.is_dir():
        raise InputError(
            f"the folder {path.parent} does not exist; hint: make it, or name another file"
        )
    folder = Path(os.path.realpath(path)).parent
    if (path.is_file() or not path.exists()) and not os.access(
        folder, os.W_OK
    ):  # the new file is created in it
        raise InputError(
            f"the folder {folder} is not writable; hint: change its mode, or name another file"
        )
    if not path.exists():
        return
    if not os.access(path, os.W_OK):
        raise InputError(f"{path} is not writable; hint: change its mode, or name another file")
    if path.is_file() and not force and (why := _to_be_kept(path, kind)):
        raise InputError(
            f"{path} {why}; hint: --force (in Python force=True), or name another file"
        )


def write(path: Path, content: str | bytes, force: bool, kind: Kind = "document") -> None:
    """Write text as UTF-8, or bytes, to a new file in the same folder, which then replaces ``path``."""
    check(path, force, kind)
    content = content.encode(errors="replace") if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():  # a device or a pipe is written to, never replaced
            path.write_bytes(content)
        else:
            replaced(Path(os.path.realpath(path)), content, _choose_file_mode(path))
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error


def _choose_file_mode(path: Path) -> int:
    """Return the mode of the file to be replaced, else that of a new file."""
    if path.exists():
        return path.stat().st_mode & 0o777
    # The mask of new files can only be read by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def replaced(path: Path, content: bytes, mode: int) -> None:
    """Write a temporary file in the same folder, which replaces ``path`` when it is complete."""
    import tempfile  # most runs write no file

    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        # Temporary files are private at first.
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        # The temporary file may be gone already.
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def written_by_symattn(path: Path) -> bool:
    """Return whether the file starts or ends like symattn's own, or is empty."""
    head, tail = _read_ends_of_file(path)
    return not head or bool(_HEAD.search(head) or _TAIL.search(tail) or _MADE.search(head + tail))


def _to_be_kept(path: Path, kind: Kind) -> str:
    """Return why a file is not replaced by one of ``kind``; "" if it may be."""
    head, _ = _read_ends_of_file(path)
    if not written_by_symattn(path):
        return "exists, and does not say that symattn wrote it"
    if _SHEET.search(head):
        return "is a sheet, which commands read, and you may have edited it"
    if _CERTIFICATES.search(head):
        return "" if kind == "certificates" else "holds certificates, and no document replaces them"
    return (
        "holds a document, which certificates do not replace"
        if head and kind == "certificates"
        else ""
    )


def _read_ends_of_file(path: Path) -> tuple[str, str]:
    with path.open("rb") as file:
        head = _decode_file_content(file.read(_ENOUGH))
        file.seek(max(0, file.seek(0, os.SEEK_END) - _ENOUGH))
        return head, _decode_file_content(file.read())


def _decode_file_content(content: bytes) -> str:
    return content.decode(errors="replace").replace("\r\n", "\n")
