"""By what a file is known to be one that symattn wrote."""

from __future__ import annotations

import os
import re
from pathlib import Path

from symattn.render.common import MARK

# LaTeX and Markdown open with the mark in a comment, JSON with its schema; text ends with the mark under a rule.
_HEAD = re.compile(rf"\A(% |<!-- ){MARK}\b|\A\{{\s*\"schema\": \d+,\s*\"kind\": ")
_TAIL = re.compile(rf"^[─-]{{20,}}\n{MARK}\b[^\n]*\n*\Z", re.MULTILINE)
_ENOUGH = 4000


def written_by_symattn(path: Path) -> bool:
    """Whether the file opens or ends as symattn's own do; an empty one belongs to nobody and may be filled."""
    with path.open("rb") as file:
        head = _text(file.read(_ENOUGH))
        file.seek(max(0, file.seek(0, os.SEEK_END) - _ENOUGH))
        tail = _text(file.read())
    return not head or bool(_HEAD.search(head) or _TAIL.search(tail))


def _text(content: bytes) -> str:
    return content.decode(errors="replace").replace("\r\n", "\n")
