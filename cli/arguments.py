"""The arguments of a command as they were typed, for the command line that gives its document again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import click

_GIVEN = (click.core.ParameterSource.COMMANDLINE, click.core.ParameterSource.DEFAULT_MAP)
_ELSEWHERE = ("form", "path", "force", "fragment", "check", "ascii", "colour")


def typed(context: click.Context) -> list[str]:
    """The names of the parameters that were given."""
    names = [parameter.name or "" for parameter in context.command.params]
    return [name for name in names if context.get_parameter_source(name) in _GIVEN]


def refuse_others(context: click.Context, target: str, own: Sequence[str]) -> list[str]:
    """The names that were given; those that are neither in ``own`` nor about the document are refused."""
    names = typed(context)
    for parameter in context.command.params:
        if parameter.name in names and parameter.name not in (*own, *_ELSEWHERE):
            option = max(parameter.opts, key=len)
            raise click.UsageError(f"{option} is for a function that is called, and {target} is none.")
    return names


def line(context: click.Context) -> str:
    """The command line again: what was given, in the order of the help."""
    words, names = ["symattn", str(context.info_name)], typed(context)
    for parameter in context.command.params:
        if parameter.name in names and parameter.name not in _ELSEWHERE:
            words += _words(parameter, context.params.get(parameter.name or ""))
    return shlex.join(words)


def _words(parameter: click.Parameter, value: Any) -> list[str]:
    if isinstance(parameter, click.Argument):
        return [str(value)]
    name = parameter.opts[0]
    if isinstance(value, bool):
        return [name if value else parameter.secondary_opts[0]]
    if parameter.multiple:
        return [word for one in value for word in (name, str(one))]
    listed = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return [name, listed]
