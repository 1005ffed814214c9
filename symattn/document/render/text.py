"""A document as text of at most 80 columns where its formulas allow it."""

from __future__ import annotations

from symattn.document import model as md
from symattn.document import notation as nt
from symattn.document.characters import to_ascii
from symattn.document.evidence import Grade
from symattn.document.render import text_formulas, text_tables
from symattn.document.render.common import headings, ledger, made, numbered, steps_are
from symattn.document.render.layout import NBSP, beside, pad, width, wrap
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
        return self.paint(grade.value, text_formulas.GRADE_COLOURS[grade])

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
                return text_formulas.steps(self, block, number)
            case md.Result():
                return text_formulas.result(self, block)
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
