"""The document: what every command produces and every renderer prints.

A document is a title and a sequence of blocks. Blocks contain words and formulas (``notation``), never TeX or HTML, and
``record`` contains what the JSON form adds to the common keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from symattn.document.evidence import Evidence, Grade, Verdict, at_least_checked, weakest
from symattn.document.notation import Node
from symattn.document.printable import Printable as Printable
from symattn.document.printable import WithVerdict as WithVerdict


@dataclass(frozen=True, slots=True)
class Emph:
    """Stressed words."""

    text: str


@dataclass(frozen=True, slots=True)
class Code:
    """A command, a name or a value as typed."""

    text: str


Inline = str | Node | Emph | Code
Text = tuple[Inline, ...]
Kind = Literal["derivation", "walk", "proof", "verification", "bound", "claim", "audit", "listing"]


@dataclass(frozen=True, slots=True)
class Heading:
    """The start of a numbered section; sections of level 2 are parts of the last one of level 1. Pages print ``lede``
    under the title. An excerpt keeps the ``number`` of the section in the whole document."""

    title: Text
    level: Literal[1, 2] = 1
    lede: Text = ()
    number: str = ""


@dataclass(frozen=True, slots=True)
class Contents:
    """The table of contents: the headings of the document."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text."""

    text: Text


@dataclass(frozen=True, slots=True)
class Assumption:
    """An assumption, with a label (A1) to which reasons refer."""

    label: str
    text: Text
    remark: Text = ()


@dataclass(frozen=True, slots=True)
class Assumptions:
    """The hypotheses of a document."""

    items: tuple[Assumption, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A formula, the reason why it holds, and the evidence. Definitions have no evidence.

    Steps of a group are aligned at their first relation sign; a ``Relation`` with the same first side as the step
    before is printed without it.
    """

    formula: Node
    reason: Text = ()
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True)
class Steps:
    """A group of numbered, aligned steps. An excerpt keeps the ``numbers`` of its steps in the whole document."""

    items: tuple[Step, ...]
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """The result of the steps above, in a box with the evidence in its title bar; ``text`` precedes the formulas."""

    title: str
    formulas: tuple[Node, ...]
    evidence: tuple[Evidence, ...]
    text: Text = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Neighbouring columns with the same ``group`` share a heading above their own."""

    title: Text
    align: Literal["left", "right", "centre"] = "right"
    group: Text = ()


def headers(*titles: str) -> tuple[Column, ...]:
    """Return columns with these titles: aligned to the left, or, for numbers, marked by ">", to the right."""
    return tuple(
        Column((t.removeprefix(">"),), "right" if t.startswith(">") else "left") for t in titles
    )


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells. The rows numbered in ``shaded`` are tinted; a ``framed`` table has a frame on pages."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Text, ...], ...]
    shaded: tuple[int, ...] = ()
    caption: Text = ()
    framed: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of the entries of an array, or of a part of it, which a page can show.

    ``places`` and ``letters`` are nested like the entries: the index of each entry, counted from 1, and its letter.
    ``rule`` is one of ``dot``, ``rows`` (a product with the other array transposed), ``softmax``, ``products`` and
    ``each`` with the arrays that it is applied to, or empty for inputs.
    """

    array: str
    symbol: Node
    places: Any
    letters: Any
    rule: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Values:
    """A named array with its entries: exact, decimal, and in other arithmetic (``others``: label → entries).

    Entries are nested tuples, of nodes for ``exact`` and of digits for the rest; a vector has one level, a number none.
    ``title`` is the name in words, for pages; ``factors`` are arrays of which it is the product, which pages print
    before it.
    """

    name: str
    symbol: Node
    exact: Any
    decimal: Any
    others: Mapping[str, Any] = field(default_factory=dict)
    reason: Text = ()
    evidence: Evidence | None = None
    title: str = ""
    origin: Origin | None = None
    factors: tuple[Values, ...] = ()


@dataclass(frozen=True, slots=True)
class Heat(Values):
    """Weights that a page shows as a heat map, with the sum of each row and arrows from it to the columns."""

    rows: tuple[Node, ...] = ()
    columns: tuple[Node, ...] = ()
    sums: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Caveat:
    """A limitation of what a document says."""

    text: Text
    title: str = "What this does not say"


@dataclass(frozen=True, slots=True)
class Note:
    """A remark that a reader must not overlook, marked by ``!`` in text."""

    text: Text


@dataclass(frozen=True, slots=True)
class Items:
    """A list of short texts."""

    items: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """Lines printed verbatim: a command, a program, the output of a target."""

    text: str
    language: str = ""


Block = (
    Heading
    | Contents
    | Paragraph
    | Assumptions
    | Steps
    | Result
    | Table
    | Values
    | Caveat
    | Note
    | Items
    | Listing
)


def _with_option(command: str, option: str) -> str:
    """Return a command line with an option: a short one stands first, as what follows a script is the script's."""
    if option.startswith("--"):
        return f"{command} {option}"
    program, name, *rest = command.split(" ", 2)
    return " ".join((program, name, option, *rest))


# Grades of which one makes a whole document an open question.
_OPEN = {Grade.UNDECIDED, Grade.SEARCHED}


@dataclass(frozen=True, slots=True, repr=False)
class Document(Printable):
    """A complete answer. ``command`` reproduces it; ``hints`` suggest what to try next and go to stderr.

    ``reason`` follows the verdict, on the first line below the title. ``brief`` is what every format but JSON prints of
    a long document, unless ``whole`` is printed, as the command does with ``option``; it is empty for others.
    ``page`` returns the blocks that a page shows instead of ``blocks``, as it has more room.

    >>> from symattn import derive
    >>> document = derive("shift")
    >>> print(document.text().splitlines()[0])
    Softmax sees only differences
    >>> document.holds, document.verdict_word
    (True, 'checked')
    """

    kind: Kind
    name: str
    title: Text
    blocks: tuple[Block, ...]
    subtitle: Text = ()
    command: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)
    verdict: Verdict | None = None
    hints: tuple[str, ...] = ()
    brief: tuple[Block, ...] = ()
    page: Callable[[], tuple[Block, ...]] | None = field(default=None, compare=False)
    reason: Text = ()
    option: str = "--all"

    def __repr__(self) -> str:
        graded = self.verdict is not None or "verdict" in self.record or any(self.evidence())
        verdict_words = f": {self.verdict_word}" if graded and self.kind != "listing" else ""
        return self._make_brief_repr(f"{self.kind} {self.name!r}{verdict_words}")

    def document(self) -> Document:
        """Return the document itself."""
        return self

    def whole(self) -> Document:
        """Return the same document, which prints every block.

        >>> from symattn import derive
        >>> document = derive("scaling", d_k=4)
        >>> len(document.text().splitlines()) <= 50 < len(document.whole().text().splitlines())
        True
        """
        if not self.brief:
            return self
        command = self.command and _with_option(self.command, self.option)
        of_option = f"{self.option} "
        hints = tuple(hint for hint in self.hints if not hint.startswith(of_option))
        return replace(self, brief=(), command=command, hints=hints)

    def printed(self) -> Document:
        """Return the document of the blocks that print: ``brief`` if there is one."""
        return replace(self, blocks=self.brief, brief=()) if self.brief else self

    def opened_by(self, *blocks: Block) -> Document:
        """Return the same document, with these blocks before its own."""
        page = self.page
        after = None if page is None else lambda: (*blocks, *page())
        return replace(self, blocks=(*blocks, *self.blocks), page=after)

    def evidence(self) -> Iterator[Evidence]:
        """Yield every piece of evidence in the document, in order."""
        for block in self.blocks:
            if isinstance(block, Steps):
                yield from (s.evidence for s in block.items if s.evidence)
            elif isinstance(block, Result):
                yield from block.evidence
            elif isinstance(block, Values) and block.evidence:
                yield block.evidence

    @property
    def verdict_word(self) -> str:
        """The verdict of a verification, else the weakest grade in the document or of its theorems."""
        result: str = self.record.get("verdict", "") or weakest(self.evidence()).value
        return self.verdict.value if self.verdict else result

    @property
    def holds(self) -> bool | None:
        """Return whether what was asked holds: False for a fault or a false statement, None for an open question.

        A statement that is only ``searched`` is an open question; ``holds_if`` accepts it on request.
        """
        return self.holds_if()

    def holds_if(self, *accepted: Grade) -> bool | None:
        """Return what ``holds`` returns if grades that it counts as open, such as ``searched``, are ``accepted``."""
        if self.verdict is not None:
            return self.verdict.holds
        if self.kind == "claim":
            result: bool | None = self.record.get("holds")
            grades = {evidence.grade for evidence in self.evidence()}
            return (
                True
                # An open claim holds if its grade is accepted and nothing is undecided.
                if result is None and Grade.UNDECIDED not in grades and grades & {*accepted}
                else result
            )
        theorems = self.record["theorems"] if self.kind == "proof" else ()
        grades = {entry["grade"] for entry in theorems} or {
            evidence.grade for evidence in self.evidence()
        }
        # One refuted part decides.
        if Grade.REFUTED in grades:
            return False
        left = grades - {*accepted}
        weak = not all(map(at_least_checked, left)) if self.kind == "proof" else bool(left & _OPEN)
        return None if weak else True
