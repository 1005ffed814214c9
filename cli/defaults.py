"""Defaults of options from ``[tool.symattn]`` in the pyproject.toml of the folder, or of one above it.

    [tool.symattn]
    color = "never"
    [tool.symattn.verify]
    dtype = "bfloat16"
    framework = "torch"

An entry at the top is for every command that has such an option; a table is for the command of its name.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import click

Defaults = dict[str, Any]


def defaults(commands: tuple[str, ...]) -> tuple[Defaults, dict[str, Defaults]]:
    """The defaults for every command, and those of each command, by the names of options. Raises ``UsageError``."""
    found = _table()
    if found is None:
        return {}, {}
    path, table = found
    own = {name: value for name, value in table.items() if isinstance(value, dict)}
    for name in own:
        if name not in commands:
            from symattn.document.errors import near  # help imports nothing of symattn

            raise click.UsageError(f"{path}: [tool.symattn.{name}] is not a command.{near(name, commands)}")
    return {name: value for name, value in table.items() if name not in own}, own


def given(command: click.Command, name: str, commands: tuple[str, ...]) -> Defaults:
    """The defaults of a command's parameters, by the names that click has for them. Raises ``UsageError``."""
    general, own = defaults(commands)
    mine = own.get(name, {})
    known = _known(command)
    for option in mine:
        if option not in known:
            from symattn.document.errors import near  # help imports nothing of symattn

            suggestion = near(option, known)
            raise click.UsageError(f"[tool.symattn.{name}]: {option} is not an option of symattn {name}.{suggestion}")
    return _taken(command, {**general, **mine})


def _taken(command: click.Command, told: Defaults) -> Defaults:
    """Return the defaults that the command has options for; of a group, for each command in it."""
    if isinstance(command, click.Group):
        return {str(name): _taken(inner, told) for name, inner in command.commands.items()}
    known = _known(command)
    return {str(known[option].name): _value(known[option], x) for option, x in told.items() if option in known}


def _known(command: click.Command) -> dict[str, click.Option]:
    """The options by their names, those of commands within it too."""
    within = command.commands.values() if isinstance(command, click.Group) else ()
    own = {max(o.opts, key=len).lstrip("-"): o for o in command.params if isinstance(o, click.Option)}
    return own | {name: option for inner in within for name, option in _known(inner).items()}


def spelled(command: click.Command) -> set[str]:
    """Every name by which an option of the command is given."""
    options = [*_known(command).values(), *command.get_params(click.Context(command))]
    return {name.lstrip("-") for option in options for name in (*option.opts, *option.secondary_opts)}


def _value(option: click.Option, value: object) -> Any:
    """As click takes it: words but for flags, and lists for what may be given several times."""
    if isinstance(value, bool):
        return value
    return [str(x) for x in value] if isinstance(value, list) and option.multiple else str(value)


def _table() -> tuple[Path, dict[str, Any]] | None:
    """The file and its table; none where the nearest pyproject.toml has none."""
    here = Path.cwd()
    path = next((p for folder in (here, *here.parents) if (p := folder / "pyproject.toml").is_file()), None)
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
