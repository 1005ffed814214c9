"""A document as text of at most 80 columns where its formulas allow it."""

from __future__ import annotations

from symattn.document import model as md
from symattn.document import notation as nt
from symattn.document.characters import ASCII_SIGNS, to_ascii
from symattn.document.evidence import Grade, weakest
from symattn.document.render import text_tables
from symattn.document.render.common import chain, headings, ledger, made, numbered, packed, steps_are
from symattn.document.render.layout import NBSP, beside, grid, pad, width, wrap
from symattn.document.text import text


def render(document: md.Document, *, ascii: bool = False, colour: bool = False, columns: int = 80) -> str:
    """The document as text. ``ascii`` spells every sign in ASCII; ``colour`` adds ANSI colours for a terminal.

    Tables and arrays may fill ``columns``; running text stays within a measure that can be read.
    """
    lines = Writer(ascii, colour, columns).document(document)
    return "\n".join(line.rstrip() for line in lines) + "\n"


_MEASURE = 96  # columns of running text


class Writer:
    """How words, formulas and grades look in one document."""

    def __init__(self, ascii: bool, colour: bool, columns: int) -> None:
        self.ascii = ascii
        self.colour = colour
        self.columns = columns
        self.measure = min(columns, _MEASURE)

    def plain(self, words: str) -> str:
        return to_ascii(words) if self.ascii else words

    def formula(self, x: nt.Node) -> str:
        return text(x, ascii=self.ascii, colours=self.colour)

    def paint(self, words: str, code: str) -> str:
        return f"\x1b[{code}m{words}\x1b[0m" if self.colour and words else words

    def prose(self, words: md.Text) -> str:
        """Running text with its formulas kept whole until lines are broken."""
        return "".join(self.inline(part) for part in words)

    def inline(self, part: md.Inline) -> str:
        if isinstance(part, nt.Node):
            return self.formula(part).replace(" ", NBSP)
        if isinstance(part, md.Code):
            return self.plain(part.text).replace(" ", NBSP)
        return " ".join(self.plain(part.text if isinstance(part, md.Emph) else part).split("\n"))

    def wrapped(self, words: md.Text, first: str = "", then: str | None = None) -> list[str]:
        """Paragraph lines, the first after ``first`` and the others after as many spaces (or ``then``)."""
        then = " " * width(first) if then is None else then
        lines = wrap(self.prose(words).strip(), self.measure - width(first))
        return [(then if i else first) + line for i, line in enumerate(lines)]

    def grade(self, grade: Grade) -> str:
        return self.paint(grade.value, GRADE_COLOURS[grade])

    def document(self, document: md.Document) -> list[str]:
        title = self.paint(self.flat(document.title), "1")
        rule = self.plain("─") * self.measure
        lines = [*beside(title, self.flat(document.subtitle), self.measure), rule] if document.title else []
        sections = headings(document)
        numbers = iter(sections)
        for block, number in numbered(document):
            if isinstance(block, md.Contents):
                lines += ["", *self.contents(sections)]
            elif isinstance(block, md.Heading):
                lines += ["", *self.wrapped((f"{next(numbers)[0]}  ", *block.title), "")]
            else:
                lines += ["", *self.block(block, number)]
        lines += self.evidence(document)
        if document.verdict is not None:
            lines += ["", self.paint(document.verdict.value.upper(), "1")]
        return [*lines, "", rule, self.plain(made(document.command))]

    def flat(self, words: md.Text) -> str:
        return self.prose(words).replace(NBSP, " ")

    def contents(self, sections: list[tuple[str, md.Heading]]) -> list[str]:
        return [line for n, h in sections for line in self.wrapped(h.title, "  " * h.level + f"{n}  ")]

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
                return text_tables.table(self, block)
            case md.Values():
                return text_tables.values(self, block)
            case md.Caveat():
                return [f"{self.paint(self.plain(block.title), '1')}.", *self.wrapped(block.text, "  ")]
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
            lines += [*body[:-1], *beside(body[-1], remark, self.measure)]
        return lines

    def evidence(self, document: md.Document) -> list[str]:
        result = ledger(document)
        if not result:
            return []
        return ["", *(line for e, n in result for line in self.wrapped((f"{steps_are(n)} {e}",), "", "  "))]


# -- steps and results -------------------------------------------------------------------------------------------------
GRADE_COLOURS = {
    Grade.COQ: "32", Grade.PROVED: "32", Grade.ARGUED: "32", Grade.CHECKED: "32", Grade.TESTED: "36",
    Grade.ENCLOSED: "36",
    Grade.SAMPLED: "33", Grade.REFUTED: "31", Grade.UNDECIDED: "31",
}  # fmt: skip
_NUMBER = 5  # columns before a step: its number and two spaces
_LONGEST_SIDE = 20  # a longer first side stands on a line of its own
_REASON_FROM, _REASON_TO = 36, 54  # where the column of reasons may begin


def steps(writer: Writer, block: md.Steps, number: int) -> list[str]:
    """The steps of a group: number, formula aligned at its first sign, reason, grade."""
    indent = _first_sides(writer, block)
    grades = max((width(s.evidence.grade.value) for s in block.items if s.evidence), default=-2)
    room = writer.columns - (grades + 2)
    before: md.Step | None = None
    formulas = []
    for i, step in enumerate(block.items):
        first, *others = lines_of(writer, step, before, indent, writer.columns - _NUMBER)
        formulas.append([pad(f"{number + i:>3}", _NUMBER) + first, *(" " * _NUMBER + line for line in others)])
        before = step
    pairs = list(zip(block.items, formulas, strict=True))
    layouts = [
        [line for step, left in pairs for line in _with_reason(writer, step, left, column, room)]
        for column in range(_REASON_FROM, _REASON_TO + 1)
    ]
    return min(layouts, key=len)


def _first_sides(writer: Writer, block: md.Steps) -> int:
    sides = [width(writer.formula(s.formula.first)) for s in block.items if isinstance(s.formula, nt.Relation)]
    return max((w for w in sides if w <= _LONGEST_SIDE), default=0)


def _with_reason(writer: Writer, step: md.Step, left: list[str], column: int, room: int) -> list[str]:
    reason = wrap(writer.prose(step.reason), room - column) if step.reason else []
    grade = writer.grade(step.evidence.grade) if step.evidence else ""
    if (reason or grade) and width(left[-1]) > column - 2:
        short = not reason and width(left[-1]) <= room
        left = left if short else [*left, ""]
    lines = left[:-1]
    for i, words in enumerate(reason or [""]):
        line = pad(pad(left[-1] if i == 0 else "", column) + words, room) if words or i or grade else left[-1]
        lines.append(line + "  " + grade if i == 0 and grade else line)
    return lines


def lines_of(writer: Writer, step: md.Step, before: md.Step | None, indent: int, columns: int) -> list[str]:
    """The formula of a step: on one line if it fits, else broken before signs, then before + and −."""
    first, links, whole = chain(step, before)
    if isinstance(whole, nt.Row):
        return [writer.formula(r) for r in packed(whole, lambda r: width(writer.formula(r)) <= columns)]
    if whole is not None:
        return wrap(writer.formula(whole), columns)
    head = "" if first is None else writer.formula(first)
    lines = [head] if width(head) > indent else []
    start = "" if lines else head
    texts = [_link(writer, sign, side) for sign, side in links]
    if indent + 1 + sum(width(t) + 1 for t in texts) <= columns:
        return [*lines, pad(start, indent) + " " + " ".join(texts)]
    for i, (_, side) in enumerate(links):
        for j, part in enumerate(_break(writer, texts[i], side, columns - indent - 1)):
            lines.append(pad(start if i == j == 0 else "", indent) + " " + part)
    return lines


def _link(writer: Writer, sign: str, side: nt.Node) -> str:
    shown = writer.formula(side)
    sign = ASCII_SIGNS.get(sign, sign) if writer.ascii else sign
    return f"{sign} ({shown})" if isinstance(side, (nt.Relation, nt.Row)) else f"{sign} {shown}"


def _break(writer: Writer, shown: str, side: nt.Node, columns: int) -> list[str]:
    sign = shown[: shown.index(" ")]
    if isinstance(side, nt.Matrix) and len(side.rows) > 1:
        rows = grid([[writer.formula(entry) for entry in row] for row in side.rows])
        return [f"{'' if i else sign:{len(sign)}} {row}" for i, row in enumerate(rows)]
    if width(shown) <= columns or not isinstance(side, nt.Sum):
        return [shown]
    lines = [sign]
    for i, term in enumerate(side.terms):
        signed = writer.formula(nt.Sum((nt.node(0), term)))[2:] if i else writer.formula(term)  # 0 + x → + x
        if width(lines[-1]) + 1 + width(signed) > columns and i:
            lines.append("   " + signed)
        else:
            lines[-1] += " " + signed
    return lines


def result(writer: Writer, block: md.Result) -> list[str]:
    """The title with its evidence, and the formulas beneath."""
    title = writer.paint(writer.plain(block.title), "1")
    evidence = writer.plain("; ".join(str(e) for e in block.evidence))
    colour = GRADE_COLOURS[weakest(block.evidence)]
    lines = [title]
    if evidence and width(title) + 4 + width(evidence) <= writer.columns:
        lines = [f"{title}  [{writer.paint(evidence, colour)}]"]
    elif evidence:
        lines += [f"  {writer.paint(line, colour)}" for line in wrap(f"[{evidence}]", writer.columns - 2)]
    lines += writer.wrapped(block.text, "    ") if block.text else []
    for formula in block.formulas:
        step = md.Step(formula)
        broken = lines_of(writer, step, None, _first_sides(writer, md.Steps((step,))), writer.columns - 4)
        lines += ["    " + line for line in broken]
    return lines
