"""A document as text of at most 80 columns if its formulas permit."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache

from symattn.document import characters
from symattn.document import model as md
from symattn.document import notation as nt
from symattn.document.evidence import Grade, weakest
from symattn.document.render import common
from symattn.document.text import ANSI, plain, text


def render(
    document: md.Document, *, ascii: bool = False, colour: bool = False, columns: int = 80
) -> str:
    """Render the document as text. ``ascii`` spells every sign in ASCII; ``colour`` adds ANSI colours for a terminal.

    Tables and arrays may fill ``columns``; running text has at most ``_MEASURE`` columns.
    """
    lines = Writer(ascii, colour, columns).document(document)
    return "\n".join(line.rstrip() for line in lines) + "\n"


_MEASURE = 96  # columns of running text


class Writer:
    """A writer of words, formulas and grades for one document."""

    def __init__(self, ascii: bool, colour: bool, columns: int) -> None:
        self.ascii = ascii
        self.colour = colour
        self.columns = columns
        self.measure = min(columns, _MEASURE)

    def plain(self, words: str) -> str:
        return characters.to_ascii(words) if self.ascii else words

    def formula(self, x: nt.Node) -> str:
        return text(x, ascii=self.ascii, colours=self.colour)

    def paint(self, words: str, code: str) -> str:
        return f"\x1b[{code}m{words}\x1b[0m" if self.colour and words else words

    def prose(self, words: md.Text) -> str:
        """Return running text with non-breaking spaces in its formulas, until lines are broken."""
        return "".join(self.inline(part) for part in words)

    def inline(self, part: md.Inline) -> str:
        if isinstance(part, nt.Node):
            return self.formula(part).replace(" ", NBSP)
        if isinstance(part, md.Code):
            return self.plain(part.text).replace(" ", NBSP)
        words = part.text if isinstance(part, md.Emph) else part
        return " ".join(self.plain(words).split("\n"))

    def wrapped(self, words: md.Text, first: str = "", then: str | None = None) -> list[str]:
        """Return the lines of a paragraph, the first after ``first``, the others after as many spaces, or ``then``."""
        then = " " * width(first) if then is None else then
        room = self.measure - width(first)
        lines = wrap(self.prose(words).strip(), room)
        return [(then if i else first) + line for i, line in enumerate(lines)]

    def grade(self, grade: Grade) -> str:
        return self.paint(grade.value, GRADE_COLOURS[grade])

    def document(self, document: md.Document) -> list[str]:
        title = self.paint(self.flat(document.title), "1")
        rule = self.plain("─") * self.measure
        lines = (
            [*left_and_right(title, self.flat(document.subtitle), self.measure), rule]
            if document.title
            else []
        )
        lines += self.verdict(document)
        sections = common.headings(document)
        numbers = iter(sections)
        for block, number in common.numbered(document):
            if isinstance(block, md.Contents):
                lines += ["", *self.contents(sections)]
            elif isinstance(block, md.Heading):
                # Headings have the numbers of the contents.
                heading = (f"{next(numbers)[0]}  ", *block.title)
                lines += ["", *self.wrapped(heading, "")]
            else:
                lines += ["", *self.block(block, number)]
        lines += self.evidence(document)
        return [*lines, "", rule, self.plain(common.made(document.command))]

    def verdict(self, document: md.Document) -> list[str]:
        """Return the lines of the verdict and its reason; the verdict itself is bold on a terminal."""
        lines = self.wrapped(common.verdict(document))
        if document.verdict is None or not lines:
            return []
        word = document.verdict.value.upper()
        rest_of_first = lines[0].removeprefix(word)
        return [self.paint(word, "1") + rest_of_first, *lines[1:]]

    def flat(self, words: md.Text) -> str:
        return self.prose(words).replace(NBSP, " ")

    def contents(self, sections: list[tuple[str, md.Heading]]) -> list[str]:
        entries = ((h.title, "  " * h.level + f"{n}  ") for n, h in sections)
        return [line for title, start in entries for line in self.wrapped(title, start)]

    def block(self, block: md.Block, number: int) -> list[str]:
        match block:
            case md.Paragraph():
                return self.wrapped(block.text)
            case md.Assumptions():
                return self.assumptions(block)
            case md.Steps():
                return steps(self, block, number)
            case md.Result():
                return result(self, block)
            case md.Table():
                return table(self, block)
            case md.Values():
                return values(self, block)
            case md.Caveat():
                return [
                    f"{self.paint(self.plain(block.title), '1')}.",
                    *self.wrapped(block.text, "  "),
                ]
            case md.Note():
                return self.wrapped(block.text, "! ")
            case md.Items():
                dash = self.plain("– ")
                return [line for item in block.items for line in self.wrapped(item, "  " + dash)]
            case md.Listing():
                return ["    " + self.plain(line) for line in block.text.splitlines()]
            case md.Heading() | md.Contents():
                raise TypeError("headings are numbered by the document")

    def assumptions(self, block: md.Assumptions) -> list[str]:
        labels = max((width(a.label) for a in block.items), default=0)
        lines = []
        for i, item in enumerate(block.items):
            first = ("Assume  " if i == 0 else " " * 8) + pad(item.label, labels) + "  "
            body = self.wrapped(item.text, first)
            remark = f"({self.flat(item.remark)})" if item.remark else ""
            last = left_and_right(body[-1], remark, self.measure)
            lines += [*body[:-1], *last]
        return lines

    def evidence(self, document: md.Document) -> list[str]:
        result = common.ledger(document)
        if not result:
            return []
        return [
            "",
            *(
                line
                for e, n in result
                for line in self.wrapped((f"{common.steps_are(n)} {e}",), "", "  ")
            ),
        ]


# -- steps and results -------------------------------------------------------------------------------------------------
GRADE_COLOURS = {
    Grade.COQ: "32",
    Grade.PROVED: "32",
    Grade.ARGUED: "32",
    Grade.CHECKED: "32",
    Grade.TESTED: "36",
    Grade.SEARCHED: "33",
    Grade.ENCLOSED: "36",
    Grade.SAMPLED: "33",
    Grade.REFUTED: "31",
    Grade.UNDECIDED: "31",
}
_NUMBER = 5  # columns before a step: its number and two spaces
_LONGEST_SIDE = 20  # a longer first side gets its own line
_REASON_FROM, _REASON_TO = 36, 54  # where the column of reasons may begin


def steps(writer: Writer, block: md.Steps, number: int) -> list[str]:
    """Return the steps of a group: number, formula aligned at its first sign, reason, grade."""
    indent = _first_sides(writer, block)
    # −2, so that without grades no columns are reserved for them.
    evidences = (step.evidence for step in block.items if step.evidence)
    grades = max((width(evidence.grade.value) for evidence in evidences), default=-2)
    room = writer.columns - (grades + 2)
    before: md.Step | None = None
    formulas = []
    for step, own in zip(block.items, common.numbers_of(block, number), strict=True):
        first, *others = lines_of(writer, step, before, indent, writer.columns - _NUMBER)
        numbered = pad(f"{own:>3}", _NUMBER) + first
        indented = (" " * _NUMBER + line for line in others)
        formulas.append([numbered, *indented])
        before = step
    pairs = list(zip(block.items, formulas, strict=True))
    layouts = [
        [line for step, left in pairs for line in _with_reason(writer, step, left, column, room)]
        for column in range(_REASON_FROM, _REASON_TO + 1)
    ]
    # Of all places for the column of reasons, take the one with the fewest lines.
    return min(layouts, key=len)


def _first_sides(writer: Writer, block: md.Steps) -> int:
    sides = [
        width(writer.formula(s.formula.first))
        for s in block.items
        if isinstance(s.formula, nt.Relation)
    ]
    return max((w for w in sides if w <= _LONGEST_SIDE), default=0)


def _with_reason(
    writer: Writer, step: md.Step, left: list[str], column: int, room: int
) -> list[str]:
    reason = wrap(writer.prose(step.reason), room - column) if step.reason else []
    grade = writer.grade(step.evidence.grade) if step.evidence else ""
    # The reason has no room beside a long formula.
    if (reason or grade) and width(left[-1]) > column - 2:
        short = not reason and width(left[-1]) <= room
        left = left if short else [*left, ""]
    lines = left[:-1]
    for i, words in enumerate(reason or [""]):
        line = (
            pad(pad(left[-1] if i == 0 else "", column) + words, room)
            if words or i or grade
            else left[-1]
        )
        lines.append(line + "  " + grade if i == 0 and grade else line)
    return lines


def lines_of(
    writer: Writer, step: md.Step, before: md.Step | None, indent: int, columns: int
) -> list[str]:
    """Return the formula of a step: on one line if it fits, else broken before signs, then before + and −."""
    first, links, whole = common.chain(step, before)
    if isinstance(whole, nt.Row):
        return [
            writer.formula(r)
            for r in common.packed(whole, lambda r: width(writer.formula(r)) <= columns)
        ]
    if whole is not None:
        return wrap(writer.formula(whole), columns)
    head = "" if first is None else writer.formula(first)
    # A long first side has a line of its own.
    lines = [head] if width(head) > indent else []
    start = "" if lines else head
    texts = [_write_linked_side(writer, sign, side) for sign, side in links]
    if indent + 1 + sum(width(t) + 1 for t in texts) <= columns:
        return [*lines, pad(start, indent) + " " + " ".join(texts)]
    for i, (_, side) in enumerate(links):
        for j, part in enumerate(
            _break_side_into_lines(writer, texts[i], side, columns - indent - 1)
        ):
            lines.append(pad(start if i == j == 0 else "", indent) + " " + part)
    return lines


def _write_linked_side(writer: Writer, sign: str, side: nt.Node) -> str:
    shown = writer.formula(side)
    sign = characters.ASCII_SIGNS.get(sign, sign) if writer.ascii else sign
    if isinstance(side, (nt.Relation, nt.Row)):
        return f"{sign} ({shown})"
    return f"{sign} {shown}"


def _break_side_into_lines(writer: Writer, shown: str, side: nt.Node, columns: int) -> list[str]:
    sign = shown[: shown.index(" ")]
    if isinstance(side, nt.Matrix) and len(side.rows) > 1:
        rows = grid([[writer.formula(entry) for entry in row] for row in side.rows])
        return [f"{'' if i else sign:{len(sign)}} {row}" for i, row in enumerate(rows)]
    if width(shown) <= columns or not isinstance(side, nt.Sum):
        return [shown]
    lines = [sign]
    for i, term in enumerate(side.terms):
        # 0 + x → + x
        signed = writer.formula(nt.Sum((nt.node(0), term)))[2:] if i else writer.formula(term)
        if width(lines[-1]) + 1 + width(signed) > columns and i:
            lines.append("   " + signed)
        else:
            lines[-1] += " " + signed
    return lines


def result(writer: Writer, block: md.Result) -> list[str]:
    """Return the title with its evidence, and the formulas below it."""
    title = writer.paint(writer.plain(block.title), "1")
    evidence = writer.plain("; ".join(str(e) for e in block.evidence))
    colour = GRADE_COLOURS[weakest(block.evidence)]
    lines = [title]
    # Evidence stands beside the title if there is room.
    if evidence and width(title) + 4 + width(evidence) <= writer.columns:
        lines = [f"{title}  [{writer.paint(evidence, colour)}]"]
    elif evidence:
        words = wrap(f"[{evidence}]", writer.columns - 2)
        lines += [f"  {writer.paint(line, colour)}" for line in words]
    lines += writer.wrapped(block.text, "    ") if block.text else []
    for formula in block.formulas:
        step = md.Step(formula)
        broken = lines_of(
            writer, step, None, _first_sides(writer, md.Steps((step,))), writer.columns - 4
        )
        lines += ["    " + line for line in broken]
    return lines


# -- tables and arrays of values ---------------------------------------------------------------------------------------
_LEAST = 16  # the least width of a column of words
LEAST_WIDTH_OF_NAMES = 10  # the same where dotted names must be broken
_SEPARATED = re.compile(r"(?<=[._:/#-])(?=.)")  # where names and paths may be broken


def table(writer: Writer, block: md.Table) -> list[str]:
    """Return columns aligned under their titles; shaded rows are marked before their first cell."""
    mark = writer.plain("▸")
    cells = [[writer.flat(c) for c in row] for row in block.rows]
    titles = [writer.flat(c.title) for c in block.columns]
    widths = [max(map(width, column)) for column in zip(titles, *cells, strict=True)]
    for title, start, end in common.runs(block):  # a group is at least as wide as its title
        gaps = 2 * (end - start - 1)
        present = sum(widths[start:end]) + gaps
        missing = width(writer.flat(title)) - present
        widths[end - 1] += max(missing, 0)
    _narrow_columns_of_words(block, cells, widths, writer.columns)
    lines = _write_text_column_groups(writer, block, widths)
    lines += _write_text_table_row(block, titles, widths, " ")
    lines.append("  " + "  ".join(writer.plain("─") * w for w in widths))
    for i, row in enumerate(cells):
        lines += _write_text_table_row(block, row, widths, mark if i in block.shaded else " ")
    caption = writer.wrapped(block.caption, "  ") if block.caption else []
    return lines + caption


def _narrow_columns_of_words(
    block: md.Table, cells: list[list[str]], widths: list[int], columns: int
) -> None:
    """Narrow the columns of words until the table fits: first the widest that can shrink without breaking a formula.

    If words alone are too wide, names and paths are broken after their separators, if the table then fits. Other words
    never are: the columns of a table that is still too wide stay aligned.
    """
    words = [i for i, c in enumerate(block.columns) if c.align == "left"]
    # Two spaces stand before each column.
    excess = sum(widths) + 2 * len(widths) - columns
    with_formulas, without = (
        _find_least_column_widths(cells, words, " "),
        _find_least_column_widths(cells, words, f"[ {NBSP}]"),
    )
    in_names = {i: min(without[i], LEAST_WIDTH_OF_NAMES) for i in words}
    in_names |= {i: max(n, _longest_part(cells, i)) for i, n in in_names.items()}
    for least in (with_formulas, without, in_names):
        if least is in_names and excess > sum(max(widths[i] - least[i], 0) for i in words):
            return
        while excess > 0 and (wide := [i for i in words if widths[i] > least[i]]):
            widths[max(wide, key=lambda i: widths[i])] -= 1
            excess -= 1


def _find_least_column_widths(
    cells: list[list[str]], columns: list[int], breaks: str
) -> dict[int, int]:
    """Return the least width of each of these columns, if its lines may break where ``breaks`` matches."""
    return {
        i: max(_LEAST, *(width(part) for row in cells for part in re.split(breaks, row[i])), 0)
        for i in columns
    }


def _longest_part(cells: list[list[str]], column: int) -> int:
    """Return the width of the longest part of a name in a column."""
    parts = (
        part for row in cells for word in row[column].split() for part in _SEPARATED.split(word)
    )
    return max(map(width, parts), default=0)


def _wrap_cell(cell: str, columns: int) -> list[str]:
    """Break a cell into lines; names that are wider than the column are broken after their separators."""
    lines: list[str] = []
    for line in wrap(cell, columns):
        # Only a name without spaces is broken within.
        parts = _SEPARATED.split(line) if width(line) > columns and " " not in line else [line]
        lines.append(parts[0])
        for part in parts[1:]:
            if width(lines[-1]) + width(part) <= columns:
                lines[-1] += part
            else:
                lines.append(part)
    return lines


def _write_text_column_groups(writer: Writer, block: md.Table, widths: list[int]) -> list[str]:
    if not any(c.group for c in block.columns):
        return []
    names, rules = "", ""
    for title, start, end in common.runs(block):
        span = sum(widths[start:end]) + 2 * (end - start - 1)
        names += "  " + pad(writer.flat(title), span, "centre")
        rules += "  " + (writer.plain("─") if title else " ") * span
    return [names, rules]


def _write_text_table_row(
    block: md.Table, row: list[str], widths: list[int], mark: str
) -> list[str]:
    broken = [
        _wrap_cell(cell, w) if width(cell) > w else [cell]
        for cell, w in zip(row, widths, strict=True)
    ]
    lines = []
    # As many lines as the highest cell has.
    for k in range(max(map(len, broken), default=0)):
        parts = [
            pad(cell[k] if k < len(cell) else "", w, column.align)
            for cell, w, column in zip(broken, widths, block.columns, strict=True)
        ]
        lines.append((mark if k == 0 else " ") + " " + "  ".join(parts))
    return lines


def values(writer: Writer, block: md.Values) -> list[str]:
    """Return exact entries next to their decimals and those in other arithmetic, or one below the other if too wide."""
    role = block.symbol.role if isinstance(block.symbol, nt.Name) else None
    called = (
        writer.paint(writer.plain(block.name), ANSI[role]) if role else writer.plain(block.name)
    )
    symbol = writer.formula(block.symbol)
    head = symbol if common.names_itself(block) else f"{called}  {symbol}"
    grade = writer.grade(block.evidence.grade) if block.evidence else ""
    where = (
        f"  [{writer.plain(str(block.evidence))}]"
        if block.evidence and block.evidence.where
        else ""
    )
    reason = writer.flat(block.reason)
    lines = left_and_right(
        head, reason if where or not grade else f"{reason}  {grade}".strip(), writer.columns
    )
    for index, sheet in common.sheets(block):
        if index:
            lines.append(f"  {writer.formula(common.indexed(block.symbol, index))}")
        lines += ["  " + line for line in _write_text_matrix_sheet(writer, sheet)]
    return [*lines, *([where] if where else [])]


def _write_text_matrix_sheet(writer: Writer, sheet: md.Values) -> list[str]:
    labelled = {"exact": _write_rows_of_entries(writer, sheet.exact)}
    if not common.all_integers(sheet.exact):
        labelled["decimal"] = _write_rows_of_entries(writer, sheet.decimal)
    labelled |= {
        writer.plain(label): _write_rows_of_entries(writer, other)
        for label, other in sheet.others.items()
    }
    if not labelled["exact"] or not labelled["exact"][0]:
        return ["[]"]
    room = writer.columns - 2
    if len(labelled["exact"]) == 1:
        # one below the other, aligned in columns
        lines = grid([other[0] for other in labelled.values()])
        if common.depth(sheet.exact) == 0:
            lines = [line[1:-1] for line in lines]
        if len(lines) > 1:
            lines = stack([list(labelled), lines], "  ")
    else:
        lines = _beside_or_beneath(labelled, room)
    return lines if max(map(width, lines)) <= room else _write_line_per_entry(labelled, room)


def _beside_or_beneath(labelled: dict[str, list[list[str]]], room: int) -> list[str]:
    grids = [grid(rows) for rows in labelled.values()]
    if len(grids) == 1:
        return grids[0]
    pairs = zip(labelled, grids, strict=True)
    lines = stack([[label, *lines] for label, lines in pairs], "   ")
    # Side by side if there is room, else one below the other.
    if max(map(width, lines)) <= room:
        return lines
    labels = [
        line
        for label, lines in zip(labelled, grids, strict=True)
        for line in (label, *[""] * (len(lines) - 1))
    ]
    return stack([labels, [line for lines in grids for line in lines]], "  ")


def _write_line_per_entry(labelled: dict[str, list[list[str]]], room: int) -> list[str]:
    """Return one line per entry, for matrices with long rows; longer entries have one line for each form."""
    rows = _list_entries_by_place(labelled)
    heads = [label.split(" ") for label in labelled]  # labels of several words take several lines
    height = max(map(len, heads))
    titles = [
        ["", *(h[i - height] if i >= height - len(h) else "" for h in heads)] for i in range(height)
    ]
    columns = zip(*titles, *rows, strict=True)
    widths = [max(map(width, column)) for column in columns]
    if sum(widths) + 2 * len(labelled) <= room:
        return [
            "  ".join(pad(c, w) for c, w in zip(row, widths, strict=True))
            for row in (*titles, *rows)
        ]
    label = max(map(width, labelled))
    column = max(width(row[0]) for row in rows)
    lines = []
    for place, *forms in rows:
        for i, (name, form) in enumerate(zip(labelled, forms, strict=True)):
            start = pad("" if i else place, column) + "  " + pad(name, label) + "  "
            first, *others = wrap(form, room - width(start) - 2)
            indent = " " * (width(start) + 2)
            lines += [start + first, *(indent + other for other in others)]
    return lines


def _list_entries_by_place(labelled: dict[str, list[list[str]]]) -> list[list[str]]:
    exact = labelled["exact"]
    rows = []
    for i, row in enumerate(exact):
        for j in range(len(row)):
            place = f"[{i + 1},{j + 1}]" if len(exact) > 1 else f"[{j + 1}]"
            entries_of_row = (other[i][j] for other in labelled.values())
            rows.append([place, *entries_of_row])
    return rows


def _write_rows_of_entries(writer: Writer, entries: object) -> list[list[str]]:
    entry_rows = common.as_rows(entries)
    return [[writer.formula(common.entry(x)) for x in row] for row in entry_rows]


# -- widths, padding, wrapping, columns --------------------------------------------------------------------------------
NBSP = "\u00a0"  # stands for a space within a formula while lines are wrapped


def width(line: str) -> int:
    """Return the columns that ``line`` takes: colours and combining marks none, wide East Asian letters two."""
    text = plain(line)
    return len(text) if text.isascii() else sum(map(_count_character_columns, text))


@cache
def _count_character_columns(c: str) -> int:
    if unicodedata.combining(c):
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


def pad(line: str, columns: int, align: str = "left") -> str:
    """Fill ``line`` with spaces to ``columns``."""
    space = max(columns - width(line), 0)
    before = {"left": 0, "right": space, "centre": space // 2}[align]
    return " " * before + line + " " * (space - before)


def wrap(text: str, columns: int) -> list[str]:
    """Break text into lines of at most ``columns`` if its words permit; only formulas longer than a line are broken."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and width(lines[-1]) + 1 + width(word) <= columns:
            lines[-1] += " " + word
        # No-break spaces are within formulas, which are broken only if they must be.
        elif width(word) > columns and NBSP in word:
            inner = wrap(word.replace(NBSP, " "), columns)
            lines += inner
        else:
            lines.append(word)
    return [line.replace(NBSP, " ") for line in lines]


def left_and_right(left: str, right: str, columns: int) -> list[str]:
    """Return ``left`` and, flush right, ``right``, on one line if they fit."""
    if not right:
        return [left]
    if width(left) + 2 + width(right) <= columns:
        return [pad(left, columns - width(right)) + right]
    return [*wrap(left, columns), pad(right, columns, "right")]


def grid(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows in square brackets, with entries aligned to the right in columns."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    gap = "  "
    return [
        "[" + gap.join(pad(c, w, "right") for c, w in zip(row, widths, strict=True)) + "]"
        for row in rows
    ]


def stack(blocks: Sequence[Sequence[str]], gap: str) -> list[str]:
    """Place blocks of lines side by side."""
    height = max(map(len, blocks), default=0)
    widths = [max(map(width, block), default=0) for block in blocks]
    filled = [[*block, *[""] * (height - len(block))] for block in blocks]
    rows: list[str] = []
    for i in range(height):
        cells = zip(filled, widths, strict=True)
        row = gap.join(pad(block[i], w) for block, w in cells)
        rows.append(row.rstrip())
    return rows
