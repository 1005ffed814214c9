"""Findings kept in the user's cache folder, by the content of what was decided, never by its name.

A file that cannot be read, is broken, or was written by others is as good as none; a folder that cannot be written is
not written. No file is ever run or unpickled.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from symattn.proof.theorem import Theorem
from symattn.theorems.content import digest
from symattn.theorems.findings import Finding
from symattn.theorems.keeping import read, written

_LARGEST = 1_000_000  # bytes


def folder() -> Path:
    """``SYMATTN_CACHE``, else symattn's folder where this system keeps the caches of its users."""
    chosen = os.environ.get("SYMATTN_CACHE")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "symattn" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "symattn"
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "symattn"


class Cache:
    """Findings by content. With ``on`` false nothing is read or written."""

    def __init__(self, on: bool = True) -> None:
        self.on = on

    def get(self, theorem: Theorem) -> Finding | None:
        """What was found before, if all that it depends on is as it was."""
        path = self._path(theorem)
        if path is None:
            return None
        try:
            if path.stat().st_size > _LARGEST:
                return None
            return read(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def put(self, theorem: Theorem, finding: Finding) -> None:
        """Keep a finding: whole or not at all."""
        path = self._path(theorem)
        if path is None:
            return
        with contextlib.suppress(OSError, TypeError):
            _write(path, written(finding))

    def _path(self, theorem: Theorem) -> Path | None:
        key = digest(theorem) if self.on else None
        try:
            return None if key is None else folder() / "theorems" / f"{key}.json"
        except RuntimeError:  # there is no home
            return None


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
