"""What ``verify`` and ``bound`` may be asked beside the fields of an attention: models, and other definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from .fields import ATTENTION, NAMES, chosen

_Command = TypeVar("_Command", bound=Callable[..., Any])


def variants(command: _Command) -> _Command:
    """Give a command ``--like`` and ``--without``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def specified(told: dict[str, Any]) -> tuple[Any, str]:
    """The specification that the options say, which are taken out of ``told``, and what was cut of a preset."""
    from symattn import Attention
    from symattn.attention import presets
    from symattn.attention.spelling import default
    from symattn.derivations.sheets.fields import field_of

    definition = told.pop("definition", None)
    like = told.pop("like", None)
    typed = chosen(told)
    fields = {name: field_of(Attention, name, value, f"--{name.replace('_', '-')}") for name, value in typed.items()}
    for name in NAMES:
        told.pop(name, None)
    for name in told.pop("without", ()):
        fields[name] = default(name, Attention)
    spec, cut = presets.small(like, **fields) if like else (Attention(**fields), "")
    if definition is None:
        return spec, cut
    from symattn.verification.definitions.reading import read

    return read(definition, spec if fields or like else None), cut


def _names(_: click.Context, __: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    found = tuple(name.replace("-", "_") for name in names)
    for name in found:
        if name not in NAMES:
            raise click.BadParameter(f"{name!r} is no field of a specification.")
    return found


_OPTIONS = (
    ATTENTION("--like", metavar="NAME", help="The attention of a model: llama, gpt2, gemma2, ..."),
    ATTENTION("--without", multiple=True, metavar="FIELD", callback=_names,
                 help="Leave out a field of --like."),
)  # fmt: skip
