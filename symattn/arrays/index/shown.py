"""Arrays whose sizes are letters as notebooks show them: the formula of the element at each place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symattn.arrays.index.expressions import Expression, Index
from symattn.arrays.index.writing import Writing, length
from symattn.document.errors import Refused
from symattn.document.model import Block, Document, Paragraph, Step, Steps, Text
from symattn.document.notation import Node, node

if TYPE_CHECKING:
    from symattn.arrays.index.array import Indexed, Places

_LONGEST = 120  # parts of an expression that is written out


def document(array: Indexed) -> Document:
    """An array whose sizes are letters, without a title."""
    from symattn.arrays.shown import sentence

    return Document(
        "listing", array.name, (), (Paragraph(sentence(array, array.shape)), *(_at(array, p) for p in array.places()))
    )


def _at(array: Indexed, places: Places) -> Block:
    """The element at a place; where it is too long to be read, how long it is."""
    found = array.at(places)
    indices = [i for _, entry in places for i in entry]
    writing = Writing([found], [i for i in indices if isinstance(i, Index)])
    parts = [f"part {b + 1}" for a, (b, _) in zip(array.shape, places, strict=True) if len(a.blocks) > 1]
    at = _listed([writing.index(i) if isinstance(i, Index) else node(i) for i in indices])
    where: Text = (f"{', '.join(parts)}, " if parts else "", "at ", *at)
    shown = _written(writing, found)
    if shown is None:
        return Paragraph(("The element ", *where, f" has {length(found)} parts, too many to be written out."))
    return Steps((Step(shown, where if indices else ("the only element",)),))


def _written(writing: Writing, x: Expression) -> Node | None:
    try:
        return writing(x) if length(x) <= _LONGEST else None
    except Refused:
        return None


def _listed(nodes: list[Node]) -> Text:
    return tuple(part for n in nodes for part in (", ", n))[1:]
