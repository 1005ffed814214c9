"""Commands whose help lists options under titles, so that sixty of them can be read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Titled(click.Option):
    """An option that help lists under a title."""

    title = "Options"


def under(title: str) -> Callable[..., Callable[[_Command], _Command]]:
    """What ``click.option`` is, for options that help lists under this title."""
    return partial(click.option, cls=type("Under", (Titled,), {"title": title}))


class Grouped(click.Command):
    """A command whose help lists options under their titles, its own first and those of every command last."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            rest = super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # an option without its value is told without the command
            raise
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and not ctx.resilient_parsing:
                _refuse_empty(parameter, ctx.params.get(parameter.name or ""), ctx)
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found: dict[str, list[tuple[str, str]]] = {Titled.title: []}
        for parameter in self.get_params(ctx):
            line = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if line is not None:
                found.setdefault(getattr(parameter, "title", Titled.title), []).append(line)
        for title, lines in found.items():
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)


def _refuse_empty(option: click.Option, value: Any, ctx: click.Context) -> None:
    """Refuse an empty word: ``--check "$FILE"``, of a variable that is not set, would check nothing and exit with 0."""
    if "" in (value if isinstance(value, tuple) else (value,)):
        raise click.UsageError(f"{option.opts[-1]} is empty; mend: give it a value, or leave it out.", ctx)
