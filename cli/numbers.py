"""Commands whose arguments are numbers, so that ``-1`` is a number and no option."""

from __future__ import annotations

import re
from typing import TypeVar

import click

from .groups import Grouped

# A minus sign, then what can open a number: click would take these for short options.
_NEGATIVE = re.compile(r"^-(?=[\d.(√]|sqrt|exp|log)")
_Value = TypeVar("_Value", str, tuple[str, ...])


class WithNumbers(Grouped):
    """A command that takes ``-1``, ``-.5`` and ``-sqrt(2)`` as arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [_NEGATIVE.sub("−", word) for word in args])


def plain(_: click.Context, __: click.Parameter, value: _Value) -> _Value:
    """The arguments with the minus sign of the keyboard again."""
    return value.replace("−", "-") if isinstance(value, str) else tuple(word.replace("−", "-") for word in value)


def ids(text: str) -> list[int]:
    """``5,7``: tokens by their numbers. Raises ``UsageError``."""
    words = text.split(",")
    if not all(word.strip().isdecimal() and len(word) < 10 for word in words):
        raise click.UsageError(f"--ids must be integers of at most nine digits, such as 0,1,2, got {text[:40]!r}")
    return [int(word) for word in words]
