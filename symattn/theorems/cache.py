"""Findings kept in the user's cache folder, by the content of what was decided, never by its name."""

from __future__ import annotations

import contextlib

from symattn import cache
from symattn.document.keeping import read, written
from symattn.proof.theorem import Theorem
from symattn.theorems.content import digest
from symattn.theorems.findings import Finding
from symattn.theorems.reading import Read, Reading


class Cache:
    """Findings by content. With ``on`` false nothing is read or written."""

    def __init__(self, on: bool = True) -> None:
        self.on = on

    def get(self, theorem: Theorem) -> Finding | None:
        """What was found before, if all that it depends on is as it was."""
        key = digest(theorem) if self.on else None
        text = key and cache.get("theorems", key)
        try:
            return read(text, Finding, Reading, Read) if text else None
        except ValueError:
            return None

    def put(self, theorem: Theorem, finding: Finding) -> None:
        """Keep a finding: whole or not at all."""
        key = digest(theorem) if self.on else None
        if key is not None:
            with contextlib.suppress(TypeError, ValueError):
                cache.put("theorems", key, written(finding))
