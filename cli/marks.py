"""By what a file is known to be one that symattn wrote."""

from __future__ import annotations

import re
from pathlib import Path

# A comment of LaTeX or Markdown with the command that makes the file; the opening of the JSON form.
_MARKS = re.compile(r"^(% |<!-- )(Written by )?symattn[ :]|\A\{\s*\"schema\": \d+,", re.MULTILINE)
_HEAD = 2000


def written_by_symattn(path: Path) -> bool:
    """Whether the file opens as symattn's own documents do; an empty file belongs to nobody."""
    with path.open("rb") as file:
        head = file.read(_HEAD).decode(errors="replace").replace("\r\n", "\n")
    return not head or _MARKS.search(head) is not None
