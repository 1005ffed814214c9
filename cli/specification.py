"""The options that say which attention is meant."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeVar

import click

from .choices import Choice

FIELDS = ("causal", "alignment", "mask", "padding", "scale", "heads")
_Command = TypeVar("_Command", bound=Callable[..., Any])


def _scale(_: click.Context, __: click.Parameter, text: str | None) -> Fraction | None:
    if text is None:
        return None
    try:
        return Fraction(1 if text == "none" else text)
    except (ValueError, ZeroDivisionError, OverflowError):
        raise click.BadParameter(f"{text!r} is neither a number, such as 0.125 or 1/8, nor none.") from None


def specification(command: _Command) -> _Command:
    """Give a command the options of a specification; those that were not given are None or False."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = (
    click.option("--heads", type=int, help="h, the number of heads."),
    click.option("--causal", is_flag=True, help="A query attends to no later key."),
    click.option("--alignment", type=Choice(("bottom-right", "top-left")), help="The corner that causal masks meet."),
    click.option("--mask", type=Choice(("boolean", "additive")), help="There is a mask, of this kind."),
    click.option("--padding", is_flag=True, help="There is a padding mask over the keys."),
    click.option("--scale", callback=_scale, help="Factor of the scores, or none; by default 1/sqrt(d_k)."),
)
