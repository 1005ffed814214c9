"""A scene: lines, boxes, marks and labels on a sheet 480 units wide, independent of file formats.

Words of a label may have letters in braces: ``{q}`` is q in its colour, ``{q_king}`` has an index, ``{^1/2}`` is
raised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

Role = Literal["ink", "mute", "rule", "tint", "paper", "q", "k", "v", "score", "weight", "output"]
Anchor = Literal["start", "middle", "end"]
Point = tuple[float, float]

WIDTH = 480.0
TEXT, SMALL = 15.0, 13.0
"""Sizes of text: 11 and 9.6 pixels if the picture is as wide as a phone."""
RAISED = 0.72
"""The size of an index relative to its letter."""

_ROLES: dict[str, Role] = {
    **dict.fromkeys("qQ", "q"),
    **dict.fromkeys("kK", "k"),
    **dict.fromkeys("vV", "v"),
    **dict.fromkeys("sS", "score"),
    **dict.fromkeys(("a", "A", "p"), "weight"),
    **dict.fromkeys("oOy", "output"),
}
_INDICES = tuple("ijkmnqv")
_POWER = re.compile(r"e([+-]?)0*(\d+)$")
BRACES = re.compile(r"\{(\^?)([^_{}]*)(?:_([^{}]*))?\}")
# Advance widths of a wide serif (DejaVu Serif), rounded up, in hundredths of the size; others count as wide as M.
_WIDTHS = {
    28: "'′", 32: "jil,. ·|", 35: "-/:;\\", 40: "f()[]tIJ!²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃", 52: '"r*_`°–s∂', 54: "z⁻?",
    60: "cvxyeaoθ", 65: "k0123456789bdghnpqu$√μℓ", 68: "LYπPTσ", 73: "FSZX∑AVBE", 78: "∈KRC",
    85: "DGOQω∞U#+<=>^~−≤≥→←×±≈", 90: "wHN&",
}  # fmt: skip
# In parts of the font size.
_WIDTH_OF = {letter: width / 100 for width, letters in _WIDTHS.items() for letter in letters}


@dataclass(frozen=True, slots=True)
class LetterRun:
    """Letters of one kind within a label: ``level`` −1 for an index, 1 for an exponent."""

    text: str
    role: Role
    italic: bool = False
    level: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points; ``head`` ends it with the head of an arrow."""

    points: tuple[Point, ...]
    role: Role = "ink"
    width: float = 2.0
    dash: str = ""
    head: bool = False


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle, filled in the colour of a role with the opacity ``share``, and with an edge in that of another."""

    x: float
    y: float
    width: float
    height: float
    fill: Role | None = None
    edge: Role | None = None
    share: float = 1.0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """A point of a series, a disc or a square; ``note``, with its numbers, is its tooltip."""

    x: float
    y: float
    role: Role = "ink"
    shape: Literal["disc", "square"] = "disc"
    size: float = 3.0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """One line of words, at its baseline; ``upwards`` turns it by a quarter."""

    x: float
    y: float
    words: str
    size: float = TEXT
    role: Role = "ink"
    anchor: Anchor = "start"
    upwards: bool = False

    def runs(self) -> Iterator[LetterRun]:
        """Yield the words in runs of one kind of letters."""
        at = 0
        for match in BRACES.finditer(self.words):
            if match.start() > at:
                yield LetterRun(self.words[at : match.start()], self.role)
            raised, base, index = match.groups()
            own = self.role if raised else _ROLES.get(base, self.role)
            yield LetterRun(base, own, italic=not raised, level=1 if raised else 0)
            if index and not raised:
                yield LetterRun(index, own, italic=index in _INDICES, level=-1)
            at = match.end()
        if at < len(self.words):
            yield LetterRun(self.words[at:], self.role)

    @property
    def width(self) -> float:
        """An upper bound of the width of the words in common serif fonts."""
        return sum(
            advance(run.text) * self.size * (RAISED if run.level else 1) for run in self.runs()
        )

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of the words."""
        before = {"start": 0.0, "middle": self.width / 2, "end": self.width}[self.anchor]
        # The shares of a line of text above and below its baseline.
        up, down = 0.78 * self.size, 0.22 * self.size
        if self.upwards:
            top = self.y - self.width + before
            return self.x - up, top, self.x + down, self.y + before
        left = self.x - before
        return left, self.y - up, left + self.width, self.y + down


Item = Line | Box | Mark | Label


@dataclass
class Scene:
    """The items of a picture in drawing order, on ``WIDTH`` × ``height``, with a ``title`` and a ``description``."""

    title: str
    description: str = ""
    height: float = 300.0
    items: list[Item] = field(default_factory=list)

    def add(self, *items: Item) -> None:
        """Draw items above the existing ones."""
        self.items += items

    def line(
        self,
        *points: Point,
        role: Role = "ink",
        width: float = 2.0,
        dash: str = "",
        head: bool = False,
    ) -> None:
        """Draw a line through points."""
        self.add(Line(points, role, width, dash, head))

    def label(
        self,
        x: float,
        y: float,
        words: str,
        size: float = TEXT,
        role: Role = "ink",
        anchor: Anchor = "start",
    ) -> None:
        """Write words at a baseline."""
        self.add(Label(x, y, words, size, role, anchor))

    @property
    def labels(self) -> list[Label]:
        """The labels in drawing order."""
        return [item for item in self.items if isinstance(item, Label)]


def advance(text: str) -> float:
    """Return an upper bound of the width of a text, in units of its size."""
    return sum(_WIDTH_OF.get(letter, 1.03) for letter in text)


def small(
    scene: Scene, x: float, y: float, words: str, role: Role = "mute", anchor: Anchor = "start"
) -> None:
    """Write a note in the smaller size."""
    scene.label(x, y, words, SMALL, role, anchor)


def wrapped(scene: Scene, y: float, words: str, x: float = 10.0) -> float:
    """Write a note over as many lines as it needs, and return the baseline below it."""
    line = ""
    for word in words.split():
        longer = f"{line} {word}".strip()
        # A word that is wider than the sheet gets a line of its own.
        if Label(x, y, longer, SMALL).box[2] > WIDTH - 6 and line:
            small(scene, x, y, line)
            y, longer = y + 18, word
        line = longer
    small(scene, x, y, line)
    return y + 18


def apart(wanted: Sequence[float], gap: float, least: float = float("-inf")) -> list[float]:
    """Return the numbers moved so that any two are at least ``gap`` apart, in the same order, none below ``least``."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed: list[float] = []
    for i in order:
        lowest = placed[-1] + gap if placed else least
        placed.append(max(wanted[i], lowest))
    # Placing only raises numbers, so all are lowered by the mean raise, unless the first would fall below ``least``.
    pairs = zip(order, placed, strict=True)
    total_shift = sum(wanted[i] - y for i, y in pairs)
    shift = total_shift / max(len(placed), 1)
    moved = (
        [y + min(shift, 0) for y in placed]
        if placed and placed[0] + min(shift, 0) >= least
        else placed
    )
    result = dict(zip(order, moved, strict=True))
    return [result[i] for i in range(len(wanted))]


def powered(digits: str) -> str:
    """Return 2.35e-07 as 2.35·10⁻⁷.

    >>> powered("2.35e-07")
    '2.35·10{^−7}'
    """
    return _POWER.sub(lambda m: "·10{^" + ("−" if m[1] == "-" else "") + m[2] + "}", digits)


def plain(words: str) -> str:
    """Return the words of a label without braces, for descriptions."""
    return BRACES.sub(lambda m: ("^" if m[1] else "") + m[2] + (f" {m[3]}" if m[3] else ""), words)
