"""Docstrings as reStructuredText: parameters, results and errors in tables, fields in two columns as lists."""

from __future__ import annotations

import inspect
import re
from enum import Enum
from fractions import Fraction
from itertools import groupby
from typing import Any

import click
from meanings import MEANINGS, RETURNS, UNITS
from sphinx.application import Sphinx

_FIELD = re.compile(r"(\S+(?:,? \S+)*) {2,}(\S.*)")
_RESULTS = ("Document", "Evaluation", "Evidence", "Judgement", "Report")
_RAISES = re.compile(r"(?:^|(?<=[.] ))Raises (.+?)[.](?= [A-Z`]|$)")
_ERROR = re.compile(r"`*\b(InputError|Refused|Undecided|MissingExtra|CannotRun|FalseStep)\b`*")


def converted(lines: list[str]) -> list[str]:
    """The lines of a docstring as Sphinx reads them.

    >>> converted(["Sizes, |n| of them.", "", "n  tokens,", "   at least 1", "d  width", "", ">>> a | b"])
    ['Sizes, \\\\|n\\\\| of them.', '', '``n``', '   tokens, at least 1', '``d``', '   width', '', '>>> a | b', '']
    """
    found: list[str] = []
    for blank, group in groupby(lines, lambda line: not line.strip()):
        part = list(group)
        found += (
            part
            if blank
            else [*_paragraph(part), ""]
            if part[-1] is lines[-1]
            else _paragraph(part)
        )
    return found


def _paragraph(lines: list[str]) -> list[str]:
    if lines[0].startswith((">>> ", " ")):
        return lines
    fields = _fields(lines)
    if fields is None:
        ragged = any(line.startswith("  ") for line in lines)
        return (
            ["::", "", *("   " + line for line in lines)]
            if ragged
            else [_escaped(line) for line in lines]
        )
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
    return "``".join(
        part if place % 2 else part.replace("|", r"\|") for place, part in enumerate(parts)
    )


def parameters(value: Any, lines: list[str]) -> list[str]:
    """Return the table of the parameters of a function or class: type, shape or unit, default and meaning.

    The meaning is the field of two columns with this name, or that of ``meanings``, or the help of the command's option
    of this name, or every sentence of the docstring that names the parameter. Results and errors have no table.

    >>> def f(some: int, quick: bool = False) -> int:
    ...     "Add. ``some`` is a size. Nothing else counts."
    >>> print("\\n".join(parameters(f, [f.__doc__])[9:13]))
       * - ``some``
         - ``int``
         - required
         - ``some`` is a size.
    """
    made = isinstance(value, type) and (
        issubclass(value, (Enum, Exception)) or value.__name__ in _RESULTS
    )
    try:
        named = (
            []
            if made
            else [
                p
                for p in inspect.signature(value).parameters.values()
                if p.name not in ("self", "args", "kwargs")
            ]
        )
    except (TypeError, ValueError):
        return []
    whose = getattr(value, "__name__", "")
    helps = _helps(whose)
    rows = [_row(p, whose, lines, helps) for p in named]
    measured = any(row[2] for row in rows)
    found = [("Name", "Type", "Shape or unit", "Default", "Meaning"), *rows]
    return (
        _table("Parameters", [row if measured else (*row[:2], *row[3:]) for row in found])
        if rows
        else []
    )


def _table(title: str, rows: list[tuple[str, ...]]) -> list[str]:
    table = [
        "",
        f".. list-table:: {title}",
        "   :header-rows: 1",
        f"   :class: {title.lower()}",
        "",
    ]
    for row in rows:
        table += [
            f"   {'* -' if place == 0 else '  -'} {cell}".rstrip() for place, cell in enumerate(row)
        ]
    return [*table, ""]


def results(value: Any) -> list[str]:
    """Return the line that says what a public function returns: the type, and its meaning."""
    name = getattr(value, "__name__", "")
    if isinstance(value, type) or name not in RETURNS:
        return []
    kind = str(inspect.signature(value).return_annotation)
    return [".. rubric:: Returns", "", f"``{kind}``", f"   {RETURNS[name]}", ""]


def errors(lines: list[str]) -> tuple[list[str], list[str]]:
    """Split a docstring into the lines without the sentence "Raises …", and the table of what is raised.

    >>> rest, table = errors(["Do it. Raises InputError for", "``n`` below 1, Undecided for others."])
    >>> rest, table[-5:-1]
    (['Do it.'], ['   * - ``InputError``', '     - for ``n`` below 1', '   * - ``Undecided``', '     - for others'])
    """
    rest: list[str] = []
    rows: list[tuple[str, ...]] = [("Error", "Raised")]
    for blank, group in groupby(lines, lambda line: not line.strip()):
        part = list(group)
        text = " ".join(line.strip() for line in part)
        told = _RAISES.search(text)
        if (
            blank
            or not told
            or not _ERROR.search(told[1])
            or part[0].startswith(">>> ")
            or _fields(part)
        ):
            rest += part
            continue
        pieces = _ERROR.split(told[1])
        rows += [
            (f"``{n}``", _escaped(w.strip(" ,;")))
            for n, w in zip(pieces[1::2], pieces[2::2], strict=True)
        ]
        rest += [line for line in [f"{text[: told.start()]}{text[told.end() :]}".strip()] if line]
    return rest, _table("Errors", rows) if len(rows) > 1 else []


def _helps(name: str) -> dict[str, str]:
    """Return what the command of this name says of its options, by their names without underscores."""
    from symattn_cli.main import TABLE, commands

    command = commands.get_command(click.Context(commands), name) if name in TABLE else None
    options = [p for p in command.params if isinstance(p, click.Option)] if command else []
    return {str(p.name).replace("_", ""): p.help or "" for p in options}


def _row(
    p: inspect.Parameter, whose: str, lines: list[str], helps: dict[str, str]
) -> tuple[str, ...]:
    kind = (
        ""
        if p.annotation is p.empty
        else str(getattr(p.annotation, "__name__", p.annotation)).strip("'")
    )
    if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
        default = "required"
    else:
        default = _default(p.default)
    told = helps.get(p.name.replace("_", ""), "").split(" Default:")[0].replace("|", r"\|")
    listed = MEANINGS.get(f"{whose}.{p.name}") or _field(p.name, lines) or MEANINGS.get(p.name)
    meaning = listed or told or _sentences(p.name, lines) or "see above"
    unit = UNITS.get(f"{whose}.{p.name}") or UNITS.get(p.name, "")
    return f"``{p.name}``", f"``{kind}``" if kind else "any", unit, default, meaning


def _default(value: Any) -> str:
    """Return a default as it would be typed; a value that is made by each call has no literal.

    >>> _default(Fraction(1, 8)), _default("dot"), _default(None)
    ('``1/8``', "``'dot'``", 'none')
    """
    if (
        value in (None, inspect.Parameter.empty)
        or callable(value)
        or type(value).__name__ == "_HAS_DEFAULT_FACTORY_CLASS"
    ):
        return "none"
    return f"``{value}``" if isinstance(value, Fraction) else f"``{value!r}``"


def _paragraphs(lines: list[str]) -> list[list[str]]:
    groups = groupby(lines, lambda line: not line.strip())
    return [list(group) for blank, group in groups if not blank]


def _field(name: str, lines: list[str]) -> str:
    fields = [field for part in _paragraphs(lines) for field in _fields(part) or ()]
    return next((_escaped(told) for names, told in fields if name in _names(names)), "")


def _names(written: str) -> set[str]:
    return set(re.split(r",? ", written.replace("`", "")))


def _sentences(name: str, lines: list[str]) -> str:
    parts = [
        part
        for part in _paragraphs(lines)
        if not part[0].startswith((">>> ", " ")) and _fields(part) is None
    ]
    sentences = (s for part in parts for s in re.split(r"(?<=[.;:?]) (?=[A-Z`])", " ".join(part)))
    return _escaped(" ".join(s for s in sentences if f"``{name}``" in s))


def _process(
    _app: Sphinx, what: str, _name: str, value: Any, _options: Any, lines: list[str]
) -> None:
    own = what in ("function", "class")
    lines[:], raised = errors(lines) if own else (lines, [])
    table = parameters(value, lines) if own else []
    example = next(
        (place for place, line in enumerate(lines) if line.startswith(">>> ")), len(lines)
    )
    shown = [".. rubric:: Example", ""] if example < len(lines) and table else []
    told = [*table, *(results(value) if own else []), *raised, *shown]
    lines[:] = [
        *_without_fields(converted(lines[:example]), table),
        *told,
        *converted(lines[example:]),
    ]


def _without_fields(prose: list[str], table: list[str]) -> list[str]:
    """Take out the list of fields that a table repeats."""
    if not table:
        return prose
    listed = {line[7:].strip("`") for line in table if line.startswith("   * - ``")}
    kept, skip = [], False
    for line in prose:
        skip = (line.startswith("``") and _names(line) <= listed) or (
            skip and line.startswith("   ")
        )
        kept += [] if skip else [line]
    return kept


def setup(app: Sphinx) -> dict[str, Any]:
    """What Sphinx calls."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", _process)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
