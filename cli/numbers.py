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
