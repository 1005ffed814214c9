"""Choices that answer a mistyped word with a suggestion."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from .stream import tell

if TYPE_CHECKING:  # generic for type checkers; older versions of click have no brackets at run time
    _Choice = click.Choice[str]
    _Numbers = click.ParamType[tuple[int, ...]]
else:
    _Choice, _Numbers = click.Choice, click.ParamType


def understood(known: Collection[str], word: str) -> str:
    """Return the command's name for an option: ``d_k`` and ``d-k`` are dk, ``num_heads`` is heads. Print a hint."""
    if word in known:
        return word
    from symattn.document.keywords import other_name  # help imports nothing of symattn

    name = other_name(word, known) or word.replace("_", "-")
    if name in known and word not in _hinted:
        _hinted.add(word)
        tell(f"symattn: --{word} is written --{name}")
    return name


_hinted: set[str] = set()


class Whole(click.IntRange):
    """A whole number within bounds, called an integer in messages and lists."""

    name = "integer"


class Wholes(_Numbers):
    """Whole numbers of at most nine digits, with commas between them."""

    name = "text"

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        parts = [part.strip() for part in str(value).split(",")]
        if not all(
            p.isdecimal() and len(p) < 10 and self.low <= int(p) <= self.high for p in parts
        ):
            wrong = f"{str(value)[:40]!r} is not an integer from {self.low} to {self.high}, or a list such as 3,4"
            self.fail(wrong, param, ctx)
        return tuple(map(int, parts))


class Choice(_Choice):
    """One of several words."""

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        """Return it unchanged: only the names of options may be spelled in other ways."""
        return str(choice)

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        if value not in self.choices:
            from symattn.document.errors import near  # help imports nothing of symattn
            from symattn.document.keywords import format_name, layout_name
            from symattn.document.render import SUFFIXES

            name = SUFFIXES.get(f".{value}", format_name(str(value)))
            if name in self.choices:
                return name

            listed = ", ".join(self.choices)
            layout = layout_name(str(value), self.choices)
            meant = f" Did you mean {layout!r}?" if layout else near(str(value), self.choices)
            self.fail(f"{value!r} is not one of {listed}.{meant}", param, ctx)
        return str(value)
