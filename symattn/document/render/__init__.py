"""Documents as text, LaTeX, Markdown, HTML and JSON."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import PurePath
from typing import Literal, cast, get_args

from symattn.document.characters import escaped_controls, without_controls
from symattn.document.errors import InputError
from symattn.document.model import Document

Format = Literal["text", "latex", "markdown", "html", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)
"""The formats that ``render`` knows."""

SUFFIXES: dict[str, Format] = {
    ".txt": "text", ".text": "text", ".tex": "latex", ".ltx": "latex", ".md": "markdown", ".markdown": "markdown",
    ".html": "html", ".htm": "html", ".json": "json",
}  # fmt: skip


def render(document: Document, format: str, **options: object) -> str:
    """Render the document in a format: the same string for the same document, always ending in a newline.

    Options: text takes ``ascii``, ``colour`` and ``columns``; latex and html take ``fragment``. Raises ``InputError``
    for a format that is not in ``FORMATS``.
    """
    if format not in FORMATS:
        raise InputError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    module = import_module(f"symattn.document.render.{format}")
    shown = document if format == "json" else document.printed()
    if format not in ("json", "html"):  # pages state evidence in the margin, once for each section
        from symattn.document.render.common import with_evidence_once

        shown = with_evidence_once(shown)
    if format in ("text", "markdown"):
        # A title, a source or the name of a file may hold what a terminal would obey.
        shown = without_controls(shown)
    rendered = cast(Callable[..., str], module.render)(shown, **options)
    return escaped_controls(rendered) if format == "json" else rendered


def format_of(path: str | PurePath) -> Format:
    """Return the format of a file's suffix. Raises InputError for an unknown suffix."""
    suffix = PurePath(path).suffix.lower()
    if suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        # A typesetting of PDF is what LaTeX is for.
        hint = (
            "write .tex, and typeset it with pdflatex"
            if suffix == ".pdf"
            else f"use one of {known}, or name the format"
        )
        raise InputError(f"no format for the suffix of {str(path)!r}; hint: {hint}")
    return SUFFIXES[suffix]
