"""The arguments of a command as they were typed, for a command line that writes its document again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import click

_GIVEN = (click.core.ParameterSource.COMMANDLINE, click.core.ParameterSource.DEFAULT_MAP)
_WRITING = ("path", "force", "check", "colour")
_ELSEWHERE = ("form", "fragment", "ascii", "verbose", "quiet", *_WRITING)


def typed(context: click.Context) -> list[str]:
    """Return the names of the parameters that were given."""
    names = [parameter.name or "" for parameter in context.command.params]
    return [name for name in names if context.get_parameter_source(name) in _GIVEN]


def refuse_others(context: click.Context, target: str, own: Sequence[str]) -> list[str]:
    """Return the names that were given. Raises UsageError for any neither in ``own`` nor about the output."""
    names = typed(context)
    for parameter in context.command.params:
        if parameter.name in names and parameter.name not in (*own, *_ELSEWHERE):
            option = max(parameter.opts, key=len)
            raise click.UsageError(
                f"{option} applies to a function that is called, and {target} is not one."
            )
    return names


def line(context: click.Context, without: Sequence[str] = _ELSEWHERE) -> str:
    """Return the command line, options in the order of the help, followed by what is passed on to a script."""
    from symattn.document.codec import command, join_words

    words: list[str] = []
    options: list[tuple[str, Any]] = []
    names = typed(context)
    for parameter in context.command.params:
        value: Any = context.params.get(parameter.name or "")
        if parameter.name not in names or parameter.name in without:
            continue
        if isinstance(parameter, click.Argument):
            words += map(str, value if isinstance(value, tuple) else [value])
        elif value is not False or parameter.secondary_opts:
            name = max(parameter.opts if value is not False else parameter.secondary_opts, key=len)
            options.append(
                (
                    name.removeprefix("--"),
                    list(value) if parameter.multiple else value is False or value,
                )
            )
    first = context.command_path.split()[1:]
    if context.allow_interspersed_args:
        return command(*first, *words, options=options)
    return join_words([*shlex.split(command(*first, options=options)), *words])


def again(path: object) -> str:
    """Return the command line that writes the document of the running command to a file."""
    from symattn.document.codec import quote_word

    return f"{line(click.get_current_context(), _WRITING)} -o {quote_word(str(path))}"
