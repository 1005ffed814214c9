"""The document: what every command produces, and every renderer prints.

A document is a title and a sequence of blocks. Blocks hold words and formulas (``notation``), never TeX or HTML, and
``record`` holds what the JSON form adds to the common keys.
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
    """Opens a numbered section; of level 2, a section within the last one of level 1. ``lede`` is the sentence that a
    page puts under the title."""

    title: Text
    level: Literal[1, 2] = 1
    lede: Text = ()


@dataclass(frozen=True, slots=True)
class Contents:
    """The table of contents: the headings of the document."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text."""

    text: Text


@dataclass(frozen=True, slots=True)
class Assumption:
    """An assumption, under a label (A1) by which reasons name it."""

    label: str
    text: Text
    remark: Text = ()


@dataclass(frozen=True, slots=True)
class Assumptions:
    """The hypotheses of a document."""

    items: tuple[Assumption, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A formula, why it holds, and how that is known. Definitions carry no evidence.

    Steps of one group are aligned at their first relation sign; a ``Relation`` whose first side is the first side of
    the step before is printed without it.
    """

    formula: Node
    reason: Text = ()
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True)
class Steps:
    """A group of numbered, aligned steps."""

    items: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of the steps above, set apart, with the evidence in its title bar; ``text`` stands before it."""

    title: str
    formulas: tuple[Node, ...]
    evidence: tuple[Evidence, ...]
    text: Text = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Neighbours with the same ``group`` share a heading above their own."""

    title: Text
    align: Literal["left", "right", "centre"] = "right"
    group: Text = ()


def headers(*titles: str) -> tuple[Column, ...]:
    """Return columns with titles in words: of words on the left, of numbers, marked by ">", on the right."""
    return tuple(Column((t.removeprefix(">"),), "right" if t.startswith(">") else "left") for t in titles)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells. The rows numbered in ``shaded`` are tinted; a ``framed`` table stands apart on pages."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Text, ...], ...]
    shaded: tuple[int, ...] = ()
    caption: Text = ()
    framed: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the entries of an array, or of a part of it, come from, so that a page can show it.

    ``places`` and ``letters`` are nested as the entries are: the index of each entry, counted from 1, and the letter
    that stands for it. ``rule`` is one of ``dot``, ``rows`` (a product with the other array transposed), ``softmax``,
    ``products`` and ``each`` with the arrays that it is applied to, or empty for inputs.
    """

    array: str
    symbol: Node
    places: Any
    letters: Any
    rule: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Values:
    """A named array with its entries: exact, decimal, and what another arithmetic gave (``others``: label → entries).

    Entries are nested tuples, of nodes for ``exact`` and of digits for the rest; a vector has one level, a number none.
    ``title`` is the name in words, for pages that show no names of code; ``factors`` are arrays whose product it is,
    shown before it there.
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
    """A limit of what a document says."""

    text: Text
    title: str = "What this does not say"


@dataclass(frozen=True, slots=True)
class Note:
    """A remark that a reader must not overlook; text renderers put ``!`` before it."""

    text: Text


@dataclass(frozen=True, slots=True)
class Items:
    """A list of short texts."""

    items: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """Lines printed as they are: a command, a program, what a target wrote."""

    text: str
    language: str = ""


Block = Heading | Contents | Paragraph | Assumptions | Steps | Result | Table | Values | Caveat | Note | Items | Listing


@dataclass(frozen=True, slots=True, repr=False)
class Document(Printable):
    """A complete answer. ``command`` repeats it; ``hints`` suggest what to try next and go to stderr.

    ``page`` makes the blocks that a page shows instead of ``blocks``, where there is more room.

    >>> from symattn import derive
    >>> found = derive("shift")
    >>> print(found.text().splitlines()[0])
    Softmax sees only differences
    >>> found.holds, found.verdict_word
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
    page: Callable[[], tuple[Block, ...]] | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        graded = self.verdict is not None or "verdict" in self.record or any(self.evidence())
        said = f": {self.verdict_word}" if graded and self.kind != "listing" else ""
        return self._brief(f"{self.kind} {self.name!r}{said}")

    def document(self) -> Document:
        """The document itself."""
        return self

    def opened_by(self, *blocks: Block) -> Document:
        """Return the same document, with these blocks before its own."""
        page = self.page
        after = None if page is None else lambda: (*blocks, *page())
        return replace(self, blocks=(*blocks, *self.blocks), page=after)

    def evidence(self) -> Iterator[Evidence]:
        """Every piece of evidence in the document, in order."""
        for block in self.blocks:
            if isinstance(block, Steps):
                yield from (s.evidence for s in block.items if s.evidence)
            elif isinstance(block, Result):
                yield from block.evidence
            elif isinstance(block, Values) and block.evidence:
                yield block.evidence

    @property
    def verdict_word(self) -> str:
        """The verdict of a verification, else the weakest grade in the document, or of the theorems that it lists."""
        result: str = self.record.get("verdict", "") or weakest(self.evidence()).value
        return self.verdict.value if self.verdict else result

    @property
    def holds(self) -> bool | None:
        """Return whether what was asked holds: False for a fault or a false statement, None for an open question."""
        if self.verdict is not None:
            return {Verdict.FAULT: False, Verdict.UNDECIDED: None}.get(self.verdict, True)
        if self.kind == "claim":
            result: bool | None = self.record.get("holds")
            return result
        theorems = self.record["theorems"] if self.kind == "proof" else ()
        grades = {entry["grade"] for entry in theorems} or {evidence.grade for evidence in self.evidence()}
        if Grade.REFUTED in grades:
            return False
        weak = not all(map(at_least_checked, grades)) if self.kind == "proof" else Grade.UNDECIDED in grades
        return None if weak else True
