"""Docstrings as reStructuredText: fields in two columns become lists, and a bar stays a bar."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any

from sphinx.application import Sphinx

_FIELD = re.compile(r"(\S+(?:,? \S+)*) {2,}(\S.*)")


def converted(lines: list[str]) -> list[str]:
    """The lines of a docstring as Sphinx reads them.

    >>> converted(["Sizes, |n| of them.", "", "n  tokens,", "   at least 1", "d  width", "", ">>> a | b"])
    ['Sizes, \\\\|n\\\\| of them.', '', '``n``', '   tokens, at least 1', '``d``', '   width', '', '>>> a | b', '']
    """
    found: list[str] = []
    for blank, group in groupby(lines, lambda line: not line.strip()):
        part = list(group)
        found += part if blank else [*_paragraph(part), ""] if part[-1] is lines[-1] else _paragraph(part)
    return found


def _paragraph(lines: list[str]) -> list[str]:
    if lines[0].startswith((">>> ", " ")):
        return lines
    fields = _fields(lines)
    if fields is None:
        ragged = any(line.startswith("  ") for line in lines)
        return ["::", "", *("   " + line for line in lines)] if ragged else [_escaped(line) for line in lines]
    return [line for name, told in fields for line in (_literal(name), "   " + _escaped(told))]


def _fields(lines: list[str]) -> list[tuple[str, str]] | None:
    """Names and what they are, if that is what the lines are: two columns, the second going on under itself."""
    found: list[tuple[str, str]] = []
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field:
            found.append((field[1], field[2]))
        elif line.startswith("  ") and found:
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
        else:
            return None
    return found


def _literal(name: str) -> str:
    return name if "`" in name else f"``{name}``"


def _escaped(line: str) -> str:
    """Bars mean substitution to reStructuredText, but for those in literals."""
    parts = line.split("``")
    return "``".join(part if place % 2 else part.replace("|", r"\|") for place, part in enumerate(parts))


def _process(_app: Sphinx, _what: str, _name: str, _found: Any, _options: Any, lines: list[str]) -> None:
    lines[:] = converted(lines)


def setup(app: Sphinx) -> dict[str, Any]:
    """What Sphinx calls."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", _process)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
