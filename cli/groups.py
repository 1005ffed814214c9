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
