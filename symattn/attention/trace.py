"""``Trace``: every named array of a run, which notebooks show one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from symattn.attention.notation import ARRAYS
from symattn.document.model import Block, Code, Document, Paragraph, Text
from symattn.document.printable import Shown


class Trace(dict[str, Any], Shown):
    """The arrays of a run by their names, in order: a ``dict`` that notebooks show with a small table of each.

    >>> import numpy as np
    >>> from symattn import Attention
    >>> found = Attention(scale=1).trace(np.eye(2), np.eye(2), np.eye(2))
    >>> list(found), found.document().name
    (['q', 'k', 'v', 'scores', 'scaled', 'weights', 'output'], 'trace')
    """

    def document(self) -> Document:
        """Each array under its name: what it is, and a small table of its elements."""
        return Document("listing", "trace", ("Trace",), tuple(_blocks(self)), (f"{len(self)} arrays",))


def _blocks(arrays: dict[str, Any]) -> Iterator[Block]:
    from symattn.arrays.shown import blocks

    for name, array in arrays.items():
        first, *others = blocks(array)
        yield Paragraph((*_named(name), *first.text)) if isinstance(first, Paragraph) else first
        yield from others


def _named(name: str) -> Text:
    """The name, with letter and title where papers have them; ``attention.q`` of a block has those of q."""
    known = ARRAYS.get(name.rpartition(".")[2])
    return (Code(name), ": ", *((known.symbol, f", {known.title.lower()}. ") if known else ()))
