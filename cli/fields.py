"""Options that specify the attention: one for each field of ``Attention``, with the field's description as help."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, Field
from dataclasses import fields as fields_of
from fractions import Fraction
from types import NoneType
from typing import Any, get_type_hints

from symattn.attention.fields import members, words
from symattn.attention.spec_fields import Fields, descriptions
from symattn.document import characters

from .choices import Choice
from .groups import Command, all_of, under

_ROOT = re.compile(r"√(\w+)")
NAMES = tuple(descriptions())


class _Description:
    """A placeholder for the types of latents and positions, which help does not import."""


_HINTS = get_type_hints(Fields, localns={"Latent": _Description, "Position": _Description})
ATTENTION = under("Fields of the attention", "fields")


def chosen(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the fields among the parameters that were given."""
    return {name: parameters[name] for name in NAMES if parameters.get(name) is not None}


def given(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that were given, fields last. 0 counts as given, False only for a field."""
    others = {
        name: x
        for name, x in parameters.items()
        if name not in NAMES and x not in (None, ()) and x is not False
    }
    return others | chosen(parameters)


def _option(name: str) -> Callable[[Command], Command]:
    hint = _HINTS[name]
    option, kinds = name.replace("_", "-"), members(hint)
    if bool in kinds:
        return ATTENTION(f"--{option}/--no-{option}", default=None, help=_help(name))
    if _Description in kinds:
        return ATTENTION(f"--{option}", metavar="KIND[:FIELD=...]", help=_help(name))
    if words(hint) and not {int, Fraction} & set(kinds):
        known = [str(w) for w in words(hint)] + (["none"] if NoneType in kinds else [])
        return ATTENTION(f"--{option}", type=Choice(known), help=_help(name))
    metavar = "NUMBER" if Fraction in kinds else "N[,N]" if len(kinds) > 2 else "N"
    whole = kinds == (int,)  # an optional integer is text, as it may be "none"
    return ATTENTION(f"--{option}", type=int if whole else str, metavar=metavar, help=_help(name))


def kinds(name: str) -> str:
    """Return the kinds of a description, each with its fields and their defaults; empty for other fields."""
    from symattn.attention.codec.field_values import descriptions as described
    from symattn.attention.fields import field_types
    from symattn.attention.spec import Attention

    known = described(field_types(Attention).get(name))
    each = {kind: ", ".join(map(_field, fields_of(made))) for kind, made in known.items()}
    inner = "; ".join(f"{kind} ({inside})" if inside else kind for kind, inside in each.items())
    return f" Kinds: {inner}." if inner else ""


def _field(field: Field[Any]) -> str:
    plain = field.default is None or field.default is MISSING
    return field.name if plain else f"{field.name}={str(field.default).lower()}"


def _help(name: str) -> str:
    """Return the description of a field of ``Attention`` as a sentence."""
    text = descriptions()[name].replace("``", "").replace("None", "none")
    text = characters.to_ascii(_ROOT.sub(r"sqrt(\1)", text))
    start = (
        text[0] if text[1:2] == " " and text[0] != "a" else text[0].upper()
    )  # a letter of a formula stays small
    return start + text[1:].rstrip(".") + "."


fields = all_of(map(_option, NAMES))
"""Give a command an option for every field; those that were not given are None."""
