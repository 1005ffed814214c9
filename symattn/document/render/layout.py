"""Lines of text: widths, padding, wrapping, columns."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache

from symattn.document.text import plain

NBSP = "\u00a0"  # stands for a space within a formula while lines are wrapped


def width(line: str) -> int:
    """Return the columns that ``line`` takes: colours and combining marks none, wide East Asian letters two."""
    text = plain(line)
    return len(text) if text.isascii() else sum(map(_columns, text))


@cache
def _columns(c: str) -> int:
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
    return ["[" + gap.join(pad(c, w, "right") for c, w in zip(row, widths, strict=True)) + "]" for row in rows]


def stack(blocks: Sequence[Sequence[str]], gap: str) -> list[str]:
    """Place blocks of lines side by side."""
    height = max(map(len, blocks), default=0)
    widths = [max(map(width, block), default=0) for block in blocks]
    filled = [[*block, *[""] * (height - len(block))] for block in blocks]
    return [gap.join(pad(b[i], w) for b, w in zip(filled, widths, strict=True)).rstrip() for i in range(height)]
