"""Defaults of options from ``[tool.symattn]`` in the nearest pyproject.toml, in this folder or above it.

    [tool.symattn]
    color = "never"
    [tool.symattn.verify]
    dtype = "bfloat16"
    framework = "torch"

An entry at the top applies to every command with that option; a table applies to the command of its name.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import click

Defaults = dict[str, Any]
HELP_NAMES = ("-h", "--help")


def defaults(commands: tuple[str, ...]) -> tuple[Defaults, dict[str, Defaults]]:
    """Return defaults for all commands, and those of each command, by option. Raises ``UsageError``."""
    table_of_file = _table()
    if table_of_file is None:
        return {}, {}
    path, table = table_of_file
    own = {name: value for name, value in table.items() if isinstance(value, dict)}
    for name in own:
        if name not in commands:
            from symattn.document.errors import near  # help imports nothing of symattn

            raise click.UsageError(
                f"{path}: [tool.symattn.{name}] is not a command.{near(name, commands)}"
            )
    return {name: value for name, value in table.items() if name not in own}, own


def given(command: click.Command, name: str, commands: tuple[str, ...]) -> Defaults:
    """Return the defaults of a command's parameters, by click's names for them. Raises ``UsageError``."""
    general, own = defaults(commands)
    own_defaults = own.get(name, {})
    known = _known(command)
    for option in own_defaults:
        if option not in known:
            from symattn.document.errors import near  # help imports nothing of symattn

            suggestion = near(option, known)
            raise click.UsageError(
                f"[tool.symattn.{name}]: {option} is not an option of symattn {name}.{suggestion}"
            )
    return _applicable(command, {**general, **own_defaults})


def _applicable(command: click.Command, values: Defaults) -> Defaults:
    """Return the defaults for options of this command; for a group, those of each command in it."""
    if isinstance(command, click.Group):
        return {str(name): _applicable(inner, values) for name, inner in command.commands.items()}
    known = _known(command)
    return {
        str(known[option].name): _value(known[option], x)
        for option, x in values.items()
        if option in known
    }


def _known(command: click.Command) -> dict[str, click.Option]:
    """Return the options by name, including those of subcommands."""
    within = command.commands.values() if isinstance(command, click.Group) else ()
    own = {
        max(o.opts, key=len).lstrip("-"): o for o in command.params if isinstance(o, click.Option)
    }
    return own | {name: option for inner in within for name, option in _known(inner).items()}


def spelled(command: click.Command) -> set[str]:
    """Return every spelling of the command's options."""
    context = click.Context(command, help_option_names=[*HELP_NAMES])
    options = [*_known(command).values(), *command.get_params(context)]
    return {
        name.lstrip("-") for option in options for name in (*option.opts, *option.secondary_opts)
    }


def _value(option: click.Option, value: object) -> Any:
    """Return the value as click takes it: text except for flags, a list for an option that may be repeated."""
    if isinstance(value, bool):
        return value
    return [str(x) for x in value] if isinstance(value, list) and option.multiple else str(value)


def _table() -> tuple[Path, dict[str, Any]] | None:
    """Return the nearest pyproject.toml and its table; None if it has none."""
    here = Path.cwd()
    path = next(
        (p for folder in (here, *here.parents) if (p := folder / "pyproject.toml").is_file()), None
    )
    if path is None:
        return None
    try:
        content = path.read_bytes()
        if b"tool.symattn" not in content:
            return None
        table = tomllib.loads(content.decode()).get("tool", {}).get("symattn")
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{path} cannot be read: {error}") from None
    return (path, table) if isinstance(table, dict) else None
