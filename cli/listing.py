"""A document that lists what there is to choose from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symattn.document.model import Document, Text


def listing(
    name: str, title: str, columns: tuple[str, ...], rows: Iterable[tuple[Text, ...]], command: str
) -> Document:
    """A table of left-aligned columns under a title."""
    from symattn.document.model import Column, Document, Table

    heads = tuple(Column((column,), align="left") for column in columns)
    return Document("listing", name, (title,), (Table(heads, tuple(rows)),), command=command)
