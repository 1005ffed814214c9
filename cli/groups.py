"""Commands that list their own options under titles, and only name those of a topic explained by `symattn help`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from textwrap import wrap
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


class Titled(click.Option):
    """An option that help lists under a title, or only names if it belongs to a topic."""

    title, topic = "Options", ""


def under(title: str, topic: str = "") -> Callable[..., Callable[[Command], Command]]:
    """Return ``click.option`` for options under this title; those of a topic are explained by `symattn help TOPIC`."""
    return partial(click.option, cls=type("Under", (Titled,), {"title": title, "topic": topic}))


def all_of(options: Iterable[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    """Return a decorator that gives a command all of these options, in their order."""
    last_first = [*options][::-1]
    return lambda command: reduce(lambda inner, option: option(inner), last_first, command)


def listed(
    command: click.Command, ctx: click.Context, topic: str = ""
) -> dict[str, list[tuple[str, str]]]:
    """Return the help lines of a topic's options, by title; without a topic, those of options in no topic."""
    results: dict[str, list[tuple[str, str]]] = {} if topic else {Titled.title: []}
    for parameter in command.get_params(ctx):
        line = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
        if line is not None and getattr(parameter, "topic", "") == topic:
            results.setdefault(getattr(parameter, "title", Titled.title), []).append(line)
    return results


def topics(command: click.Command) -> dict[str, list[str]]:
    """Return the names of a command's options by their topics."""
    results: dict[str, list[str]] = {}
    for parameter in command.params:
        if topic := getattr(parameter, "topic", ""):
            results.setdefault(topic, []).append(parameter.opts[0])
    return results


def _refuse_one_file_twice(options: Iterable[click.Option], ctx: click.Context) -> None:
    """Raise UsageError if two options name one file: what one writes, the other would read or replace."""
    first: dict[str, str] = {}
    for option in options:
        if option.metavar == "FILE" and (path := ctx.params.get(option.name or "")):
            name, place = max(option.opts, key=len), os.path.realpath(path)
            if first.setdefault(place, name) != name and (
                os.path.isfile(place) or not os.path.exists(place)
            ):
                raise click.UsageError(
                    f"{first[place]} and {name} name one file, {path}; hint: name two.", ctx
                )


_UNEXPECTED = re.compile(r"unexpected extra arguments? \(-?-?([\w-]+)[=:](\S*?)[) ]")
_UNEXPECTED_NAME = re.compile(r"unexpected extra argument \(([A-Za-z]\w*)\)")


def _as_option(command: click.Command, ctx: click.Context, problem: str) -> str:
    """Suggest the option for an argument such as ``dk=4``; return "" for another problem."""
    from symattn.document.keywords import other_name  # help imports nothing of symattn

    found = _UNEXPECTED.search(problem)
    if found is None:
        return ""
    word, value = found.groups()
    options = [p for p in command.get_params(ctx) if isinstance(p, click.Option)]
    spellings = {name.lstrip("-"): option for option in options for name in option.opts}
    name = word if word in spellings else other_name(word, spellings)
    if not name:
        return ""
    flag = spellings[name].is_flag and value.lower() in ("", "1", "true", "yes", "on")
    return f"; did you mean --{name}{'' if flag else f' {value}'}?"


def _as_function(args: Sequence[str], problem: str) -> str:
    """Suggest ``attn.py:attention`` for ``attn.py attention``; return "" for another problem."""
    found = _UNEXPECTED_NAME.search(problem)
    file = next((word for word in args if word.endswith(".py")), "")
    return f"; did you mean {file}:{found[1]}?" if found and file else ""


def _refuse_options_as_values(
    command: click.Command, ctx: click.Context, args: Sequence[str]
) -> None:
    """Raise UsageError if an option stands in the place of another one's value, which click would take for it."""
    options = [p for p in command.get_params(ctx) if isinstance(p, click.Option)]
    spellings = {name for p in options for name in (*p.opts, *p.secondary_opts)}
    # No option of symattn may lack its value; --fix without one is completed before.
    valued = {name: p for p in options if not (p.is_flag or p.count) for name in p.opts}
    words = iter(args)
    for word in words:
        # What follows is passed on, to a script or as it is.
        if word == "--" or not (word.startswith("-") or ctx.allow_interspersed_args):
            return
        for _ in range(valued[word].nargs if word in valued else 0):
            value = next(words, "")
            if value in spellings:
                raise click.UsageError(
                    f"{word} has no value: {value} is an option; hint: {word} VALUE {value}", ctx
                )


class Grouped(click.Command):
    """A command whose help lists its own options under their titles, and names those of each topic."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = [*args]  # click consumes the list
        if not ctx.resilient_parsing:
            _refuse_options_as_values(self, ctx, given)
        try:
            rest = super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click leaves the command out if an option has no value
            if hint := _as_option(self, ctx, error.message) or _as_function(given, error.message):
                raise click.UsageError(error.message + hint, error.ctx) from None
            raise
        options = [
            p
            for p in self.get_params(ctx)
            if isinstance(p, click.Option) and not ctx.resilient_parsing
        ]
        for parameter in options:
            value = ctx.params.get(parameter.name or "")
            # ``--check "$FILE"`` with FILE unset would check nothing and exit with 0
            if "" in (value if isinstance(value, tuple) else (value,)):
                words = f"{parameter.opts[-1]} is empty; hint: give it a value, or leave it out."
                raise click.UsageError(words, ctx)
        _refuse_one_file_twice(options, ctx)
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, lines in listed(self, ctx).items():
            with formatter.section(title):
                formatter.write_dl(lines)
        if named := topics(self):
            folded = {topic: wrap(" ".join(names), formatter.width - 14, break_on_hyphens=False)
                     for topic, names in named.items()}  # fmt: skip
            with formatter.section("More options, explained by `symattn help TOPIC`"):
                formatter.write_dl(
                    [(topic, "\b\n" + "\n".join(names)) for topic, names in folded.items()]
                )
