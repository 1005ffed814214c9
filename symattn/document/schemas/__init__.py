"""JSON Schemas of what symattn writes and reads: ``document`` (``-f json``), ``judgement`` (what ``judge`` gives) and
``sheet`` (what ``walk`` takes; ``symattn.attention.codec.sheet_schema`` adds the fields of an attention)."""

from __future__ import annotations

from importlib.resources import files

NAMES = ("document", "judgement", "sheet")


def text(name: str) -> str:
    """Return the schema of this name, as JSON text.

    >>> '"$schema": "https://json-schema.org/draft/2020-12/schema"' in text("document")
    True
    """
    return files(__package__).joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
