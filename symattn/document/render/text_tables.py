"""Tables and arrays of values as text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from symattn.document import model as md
from symattn.document import notation as nt
from symattn.document.render.common import all_integers, as_rows, depth, entry, indexed, runs, sheets
from symattn.document.render.layout import NBSP, beside, grid, pad, stack, width, wrap
from symattn.document.text import ANSI

if TYPE_CHECKING:
    from symattn.document.render.text import Writer


_LEAST = 16  # columns of a column of words


def table(writer: Writer, block: md.Table) -> list[str]:
    """Columns aligned under their titles; shaded rows are marked before their first cell."""
    mark = writer.plain("▸")
    cells = [[writer.flat(c) for c in row] for row in block.rows]
    titles = [writer.flat(c.title) for c in block.columns]
    widths = [max(map(width, column)) for column in zip(titles, *cells, strict=True)]
    _widen_for_groups(writer, block, widths)
    _narrow(block, cells, widths, writer.columns)
    lines = _groups(writer, block, widths)
    lines += _row(block, titles, widths, " ")
    lines.append("  " + "  ".join(writer.plain("─") * w for w in widths))
    for i, row in enumerate(cells):
        lines += _row(block, row, widths, mark if i in block.shaded else " ")
    caption = writer.wrapped(block.caption, "  ") if block.caption else []
    return lines + caption


def _widen_for_groups(writer: Writer, block: md.Table, widths: list[int]) -> None:
    for title, start, end in runs(block):
        missing = width(writer.flat(title)) - (sum(widths[start:end]) + 2 * (end - start - 1))
        if missing > 0:
            widths[end - 1] += missing


def _narrow(block: md.Table, cells: list[list[str]], widths: list[int], columns: int) -> None:
    """Take what is too much from the columns of words: first from the widest that need not break a formula for it.

    A word is never broken: where words alone are too much, the table is too wide, and its columns stay straight.
    """
    words = [i for i, c in enumerate(block.columns) if c.align == "left"]
    excess = sum(widths) + 2 * len(widths) - columns
    for least in (_longest(cells, words, " "), _longest(cells, words, f"[ {NBSP}]")):
        while excess > 0 and (wide := [i for i in words if widths[i] > least[i]]):
            widths[max(wide, key=lambda i: widths[i])] -= 1
            excess -= 1


def _longest(cells: list[list[str]], columns: list[int], breaks: str) -> dict[int, int]:
    """How wide each of these columns is at least, if its lines may break where ``breaks`` matches."""
    return {i: max(_LEAST, *(width(part) for row in cells for part in re.split(breaks, row[i])), 0) for i in columns}


def _groups(writer: Writer, block: md.Table, widths: list[int]) -> list[str]:
    if not any(c.group for c in block.columns):
        return []
    names, rules = "", ""
    for title, start, end in runs(block):
        span = sum(widths[start:end]) + 2 * (end - start - 1)
        names += "  " + pad(writer.flat(title), span, "centre")
        rules += "  " + (writer.plain("─") if title else " ") * span
    return [names, rules]


def _row(block: md.Table, row: list[str], widths: list[int], mark: str) -> list[str]:
    broken = [wrap(cell, w) if width(cell) > w else [cell] for cell, w in zip(row, widths, strict=True)]
    lines = []
    for k in range(max(map(len, broken), default=0)):
        parts = [
            pad(cell[k] if k < len(cell) else "", w, column.align)
            for cell, w, column in zip(broken, widths, block.columns, strict=True)
        ]
        lines.append((mark if k == 0 else " ") + " " + "  ".join(parts))
    return lines


def values(writer: Writer, block: md.Values) -> list[str]:
    """Exact entries beside their decimals and what another arithmetic gave; beneath each other where too wide."""
    role = block.symbol.role if isinstance(block.symbol, nt.Name) else None
    called = writer.paint(writer.plain(block.name), ANSI[role]) if role else writer.plain(block.name)
    head = f"{called}  {writer.formula(block.symbol)}"
    grade = writer.grade(block.evidence.grade) if block.evidence else ""
    where = f"  [{writer.plain(str(block.evidence))}]" if block.evidence and block.evidence.where else ""
    reason = writer.flat(block.reason)
    lines = beside(head, reason if where or not grade else f"{reason}  {grade}".strip(), writer.columns)
    for index, sheet in sheets(block):
        if index:
            lines.append(f"  {writer.formula(indexed(block.symbol, index))}")
        lines += ["  " + line for line in _sheet(writer, sheet)]
    return [*lines, *([where] if where else [])]


def _sheet(writer: Writer, sheet: md.Values) -> list[str]:
    labelled = {"exact": _shown(writer, sheet.exact)}
    if not all_integers(sheet.exact):
        labelled["decimal"] = _shown(writer, sheet.decimal)
    labelled |= {writer.plain(label): _shown(writer, other) for label, other in sheet.others.items()}
    if not labelled["exact"] or not labelled["exact"][0]:
        return ["[]"]
    room = writer.columns - 2
    if len(labelled["exact"]) == 1:
        lines = _one_row(labelled, bare=depth(sheet.exact) == 0)
    else:
        lines = _beside_or_beneath(labelled, room)
    return lines if max(map(width, lines)) <= room else _entries(labelled, room)


def _one_row(labelled: dict[str, list[list[str]]], bare: bool) -> list[str]:
    """A number or a vector: exact, decimal and the others under each other, column by column."""
    rows = [other[0] for other in labelled.values()]
    lines = [line[1:-1] for line in grid(rows)] if bare else grid(rows)
    if len(lines) == 1:
        return lines
    return stack([list(labelled), lines], "  ")


def _beside_or_beneath(labelled: dict[str, list[list[str]]], room: int) -> list[str]:
    grids = [grid(rows) for rows in labelled.values()]
    if len(grids) == 1:
        return grids[0]
    lines = stack([[label, *lines] for label, lines in zip(labelled, grids, strict=True)], "   ")
    if max(map(width, lines)) <= room:
        return lines
    labels = [line for label, lines in zip(labelled, grids, strict=True) for line in (label, *[""] * (len(lines) - 1))]
    return stack([labels, [line for lines in grids for line in lines]], "  ")


def _entries(labelled: dict[str, list[list[str]]], room: int) -> list[str]:
    """One line an entry, for matrices whose rows are too long; entries too long for that have a line for each form."""
    rows = _places(labelled)
    heads = [label.split(" ") for label in labelled]  # labels of several words stand on several lines
    height = max(map(len, heads))
    titles = [["", *(h[i - height] if i >= height - len(h) else "" for h in heads)] for i in range(height)]
    widths = [max(map(width, column)) for column in zip(*titles, *rows, strict=True)]
    if sum(widths) + 2 * len(labelled) <= room:
        return ["  ".join(pad(c, w) for c, w in zip(row, widths, strict=True)) for row in (*titles, *rows)]
    return _forms(labelled, rows, room)


def _places(labelled: dict[str, list[list[str]]]) -> list[list[str]]:
    exact = labelled["exact"]
    rows = []
    for i, row in enumerate(exact):
        for j in range(len(row)):
            place = f"[{i + 1},{j + 1}]" if len(exact) > 1 else f"[{j + 1}]"
            rows.append([place, *(other[i][j] for other in labelled.values())])
    return rows


def _forms(labelled: dict[str, list[list[str]]], rows: list[list[str]], room: int) -> list[str]:
    label, column = max(map(width, labelled)), max(width(row[0]) for row in rows)
    lines = []
    for place, *forms in rows:
        for i, (name, form) in enumerate(zip(labelled, forms, strict=True)):
            start = pad("" if i else place, column) + "  " + pad(name, label) + "  "
            first, *others = wrap(form, room - width(start) - 2)
            lines += [start + first, *(" " * (width(start) + 2) + other for other in others)]
    return lines


def _shown(writer: Writer, entries: object) -> list[list[str]]:
    return [[writer.formula(entry(x)) for x in row] for row in as_rows(entries)]
