"""Options that say how a function is called, for each command that takes one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .choices import Choice
from .groups import under

CALL = under("How the function is called")
LAYOUTS = ("nd", "bnd", "nhd", "bhnd", "bnhd", "nc", "bnc")

_Command = TypeVar("_Command", bound=Callable[..., Any])
_OPTIONS = (
    CALL("--call", multiple=True, metavar="NAME=VALUE", help="A keyword to pass, such as is_causal=true."),
    CALL("--mask-arg", metavar="NAME", help="The parameter that takes the mask; ~NAME takes its negation."),
    CALL("--layout", type=Choice(LAYOUTS), help="Order of the axes; found by trial unless told."),
    CALL("--framework", type=Choice(("numpy", "torch")), help="What the function's arrays are."),
)


def calling(command: _Command) -> _Command:
    """Give a command the options that say how a function is called."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
