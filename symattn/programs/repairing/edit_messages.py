"""Edits as one text, in which a process that is not trusted may send thousands of them.

Read as objects, field by field, they would take as long as it takes to try them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields

from symattn.programs.repairing.edits import Edit
from symattn.verification.repair import Replacement

_FIELDS = tuple(f.name for f in fields(Edit))
_FIELDS_OF_REPLACEMENT = tuple(f.name for f in fields(Replacement))
_PLACE_OF_REPLACEMENTS = _FIELDS.index("replacements")


def write_edits(edits: Sequence[Edit]) -> str:
    """Return edits as one text."""
    rows = [[getattr(edit, name) for name in _FIELDS] for edit in edits]
    return json.dumps(rows, default=_fields_of_replacement)


def read_edits(text: str) -> list[Edit]:
    """Return the edits of a text, whose fields may have other types. Raises ``ValueError`` if it has another form.

    >>> edit = Edit("axis", 1, 0, (Replacement(3, 0, 3, 1, "1"),), "0", "1")
    >>> read_edits(write_edits([edit])) == [edit]
    True
    """
    try:
        return [_read_edit(row) for row in json.loads(text)]
    except (TypeError, IndexError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _read_edit(row: list[object]) -> Edit:
    replacements = row[_PLACE_OF_REPLACEMENTS]
    if not isinstance(replacements, list):
        raise ValueError("an edit without replacements")
    row[_PLACE_OF_REPLACEMENTS] = tuple(Replacement(*r) for r in replacements)
    return Edit(*row)  # type: ignore[arg-type]


def _fields_of_replacement(replacement: Replacement) -> list[object]:
    return [getattr(replacement, name) for name in _FIELDS_OF_REPLACEMENT]
