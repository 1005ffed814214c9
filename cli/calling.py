"""Options that say how a function is called and how much is tried, for each command that judges one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from .choices import Choice, Whole
from .fields import ATTENTION
from .groups import under

CALL = under("How the function is called")
DTYPES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
LAYOUTS = ("nd", "bnd", "nhd", "bhnd", "bnhd", "nc", "bnc")

_SEARCH = under("How much is tried")

_Command = TypeVar("_Command", bound=Callable[..., Any])
_OPTIONS = (
    CALL("--call", multiple=True, metavar="NAME=VALUE", help="A keyword to pass, such as is_causal=true."),
    CALL("--mask-arg", metavar="NAME", help="The parameter that takes the mask; ~NAME takes its negation."),
    CALL("--layout", type=Choice(LAYOUTS), help="Order of the axes; found by trial unless told."),
    CALL("--framework", type=Choice(("numpy", "torch")), help="What the function's arrays are."),
)
_JUDGING = (
    click.option("--dtype", type=Choice(DTYPES), default="float32", help="Type of the inputs; by default float32."),
    ATTENTION(
        "--definition", metavar="NAME[(FIELD=VALUE, ...)]",
        help="In place of attention: lse, gradient, cached, LayerNorm, RMSNorm(eps=1e-6), Rotary, LinearAttention, "
        "Block, merge, softmax.",
    ),
    CALL("--contract", type=Choice(("eager", "fused")), help="Are scores stored in the input type, or wider?"),
    CALL("--time-limit", type=float, metavar="SECONDS", help="Longest processor time for one call; by default 10."),
    _SEARCH("--examples", type=Whole(0), help="Number of inputs at random; by default 100."),
    _SEARCH("--budget", type=float, metavar="SECONDS", help="Most processor time for a function; by default 120."),
    _SEARCH("--seed", type=int, help="Seed of the inputs that are tried."),
)  # fmt: skip


def calling(command: _Command) -> _Command:
    """Give a command the options that say how a function is called."""
    return _given(command, _OPTIONS)


def judging(command: _Command) -> _Command:
    """Give a command the options that say what a function is held to, and how much is tried."""
    return _given(command, _JUDGING)


def _given(command: _Command, options: tuple[Callable[[_Command], _Command], ...]) -> _Command:
    for option in reversed(options):
        command = option(command)
    return command
