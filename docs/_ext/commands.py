"""The reference of the command line, read from click while it is built: a page for each command."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from symattn_cli.main import TABLE, commands

Line = tuple[str, str]
"""An option as its help has it: how it is written, and what it does."""


@dataclass(frozen=True)
class Entry:
    """A command: its words behind ``symattn``, how it is called, what it says, and its options by their titles."""

    words: str
    usage: str
    told: str
    options: dict[str, list[Line]]


def entries(group: click.Group = commands, above: click.Context | None = None) -> Iterator[Entry]:
    """Every command, and every command of a group of commands, in the order of help."""
    context = above or click.Context(group, info_name="symattn")
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        within = click.Context(command, info_name=name, parent=context)
        usage = command.get_usage(within).removeprefix("Usage: ")
        words = within.command_path.removeprefix("symattn ")
        yield Entry(
            words,
            " ".join(usage.split()),
            inspect.cleandoc(command.help or ""),
            _options(command, within),
        )
        if isinstance(command, click.Group):
            yield from entries(command, within)


def _options(command: click.Command, context: click.Context) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for parameter in command.get_params(context):
        line = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if line is not None:
            found.setdefault(getattr(parameter, "title", "Options"), []).append(line)
    return found


def shared(all_entries: list[Entry]) -> dict[str, list[Line]]:
    """The options that several commands have under one title other than the first, each once."""
    count = Counter(title for entry in all_entries for title in entry.options)
    found: dict[str, dict[Line, None]] = {}
    for entry in all_entries:
        for title, lines in entry.options.items():
            if title != "Options" and count[title] > 1:
                found.setdefault(title, {}).update(dict.fromkeys(lines))
    return {title: list(lines) for title, lines in found.items()}


class Commands(SphinxDirective):
    """``{symattn-commands} NAME``: a command and those within it; without a name, what several commands share."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        found = list(entries())
        common = shared(found)
        if not self.arguments:
            return [self.section(title, [_list(lines)]) for title, lines in common.items()]
        name = self.arguments[0]
        inner = [e for e in found if e.words.startswith(f"{name} ")]
        own = _command(next(e for e in found if e.words == name), common)
        return [*own, *(self.section(f"symattn {e.words}", _command(e, common)) for e in inner)]

    def section(self, title: str, inner: list[nodes.Node]) -> nodes.section:
        made = nodes.section(
            "", nodes.title("", title), *inner, names=[nodes.fully_normalize_name(title)]
        )
        self.state.document.note_implicit_target(made, made)
        return made


def write_pages(app: Sphinx) -> None:
    """Write the page of each command, as autosummary writes those of the names in Python."""
    folder = Path(app.srcdir) / "reference"
    folder.mkdir(exist_ok=True)
    for name in TABLE:
        title = f"symattn {name}"
        text = f"{title}\n{'=' * len(title)}\n\n.. symattn-commands:: {name}\n"
        page = folder / f"command-{name}.rst"
        if not page.is_file() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def _command(entry: Entry, common: dict[str, list[Line]]) -> list[nodes.Node]:
    found: list[nodes.Node] = [
        nodes.literal_block(entry.usage, entry.usage, language="none"),
        *_told(entry.told),
    ]
    for title, lines in entry.options.items():
        if title in common:
            found.append(_names(title, lines))
        else:
            found += [nodes.rubric("", title.rstrip(":")), _list(lines)]
    return found


def _names(title: str, lines: list[Line]) -> nodes.paragraph:
    """The names of options that are explained elsewhere: a word each, so that a line breaks between them alone."""
    made = nodes.paragraph("", "", nodes.strong("", f"{title}: "))
    for number, (name, _) in enumerate(lines):
        made += [nodes.Text(", ")] if number else []
        made += nodes.literal("", name.split()[0].rstrip(","), classes=["option"])
    return made


def _told(text: str) -> list[nodes.Node]:
    """The paragraphs of help; what help does not wrap is shown as it stands."""
    found: list[nodes.Node] = []
    for part in re.split(r"\n\s*\n", text):
        if part.startswith("\b"):
            lines = part.removeprefix("\b").strip("\n")
            found.append(nodes.literal_block(lines, lines, language="none"))
        elif part.strip():
            found.append(_prose(part))
    return found


def _prose(text: str) -> nodes.paragraph:
    made = nodes.paragraph()
    for place, part in enumerate(" ".join(text.split()).split("`")):
        made += nodes.literal("", part) if place % 2 else nodes.Text(part)
    return made


def _list(lines: list[Line]) -> nodes.definition_list:
    items = (
        nodes.definition_list_item(
            "", nodes.term("", "", nodes.literal("", name)), nodes.definition("", _prose(told))
        )
        for name, told in lines
    )
    return nodes.definition_list("", *items)


def setup(app: Sphinx) -> dict[str, Any]:
    """What Sphinx calls."""
    app.add_directive("symattn-commands", Commands)
    app.connect("builder-inited", write_pages)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
