"""Deciding the theorems that a command names, with progress on a terminal."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from .progress import progress

if TYPE_CHECKING:
    from symattn.theorems.documents import Decided


def proved(names: tuple[str, ...], *, explain: bool, jobs: int, cached: bool) -> list[Decided]:
    """The theorems with these names, topics or files, decided. What a user's file prints goes to stderr."""
    from symattn.proving import decided

    with redirect_stdout(sys.stderr), progress("proving") as show:

        def told(done: int, of: int, name: str) -> None:
            show(f"{done} of {of}, {name}")

        return decided(names, explain=explain, jobs=jobs, cached=cached, progress=told)
