"""Options of ``verify`` and ``bound`` besides the fields of an attention: models, and other definitions."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from .fields import NAMES, chosen
from .groups import all_of, under

if TYPE_CHECKING:
    from symattn.attention.spec import Attention
    from symattn.programs.request import RequestOrigin
    from symattn.programs.specifications import Specification
    from symattn.verification.definitions.linear import LinearAttention

MODEL = under("Which attention, besides its fields")


class Specified(NamedTuple):
    """The specification that the options describe, a note on heads cut, and the preset or configuration, if any."""

    spec: Any
    cut: str
    origin: RequestOrigin | None


def specified(settings: dict[str, Any], whole: bool = False) -> Specified:
    """Return the specification, and remove its settings. A model's heads are cut to few, unless ``whole``."""
    from symattn.attention.codec.field_values import field_of
    from symattn.attention.presets import few_heads
    from symattn.attention.spec import Attention

    recurrence = _recurrence(settings)
    if recurrence is not None:
        return Specified(recurrence, "", None)
    definition, origin = settings.pop("definition", None), _origin(settings)
    typed = chosen(settings)
    values = {
        name: field_of(Attention, name, value, f"--{name.replace('_', '-')}")
        for name, value in typed.items()
    }
    for name in NAMES:
        settings.pop(name, None)
    for name in settings.pop("without", ()):
        values[name] = getattr(Attention(), name)
    spec, cut = replace(Attention() if origin is None else origin.spec, **values), ""
    if origin is not None and not whole and not {"heads", "kv_heads"} & set(values):
        spec, cut = few_heads(spec)
    if definition is None:
        return Specified(spec, cut, origin)
    return Specified(read(definition, spec if values or origin else None), cut, origin)


def _recurrence(settings: dict[str, Any]) -> LinearAttention | None:
    """Return the linear attention that ``--like`` names, and remove its settings; None for an attention."""
    name = settings.get("like")
    if name is None:
        return None
    from symattn.attention.presets import PRESETS
    from symattn.document.errors import InputError, among
    from symattn.verification.definitions.linear_names import RECURRENCES

    if name not in RECURRENCES and name not in PRESETS:
        raise InputError(f"unknown model {name!r}{among(name, (*PRESETS, *RECURRENCES))}")
    if name not in RECURRENCES:
        return None
    others = {"definition": settings.get("definition"), "config": settings.get("config")}
    given = [option for option, value in others.items() if value is not None]
    given += [
        field.replace("_", "-") for field in (*chosen(settings), *settings.get("without", ()))
    ]
    if given:
        raise click.UsageError(
            f"--like {name} has no options of an attention; leave out --{given[0]}."
        )
    for removed in (*NAMES, *_OF_MODELS, "definition"):
        settings.pop(removed, None)
    from symattn.verification.definitions.linear import LinearAttention

    return LinearAttention.named(name)


#: What Python's users write for the definition of a model.
_OF_NAMED_MODEL = re.compile(r"""\w+\.(?:named|like)\((['"])(?P<model>[\w.-]+)\1\)""")
#: Settings of models.
_OF_MODELS = ("like", "config", "layer", "kind", "without")


def read(text: str, attention: Attention | None = None) -> Specification:
    """Return the definition written as a text such as ``rmsnorm(eps=0)``, of ``attention`` if it is not None.

    Nothing is evaluated: fields are literals, fractions such as 1/8, and descriptions. Raises InputError.
    """
    from symattn.attention.codec.field_values import parsed
    from symattn.document.errors import InputError
    from symattn.programs.specifications import BY_WORD

    linear = BY_WORD["LinearAttention"]
    more = {linear.word: lambda **fields: linear.build(fields, None)}
    of_model = _OF_NAMED_MODEL.fullmatch(text.strip())
    if of_model:
        raise InputError(
            f"--definition {text}: no call is evaluated; hint: --like {of_model['model']}"
        )
    word, values = parsed(text, BY_WORD, more)
    return BY_WORD[word].build(values, attention)  # type: ignore[no-any-return]


def _origin(settings: dict[str, Any]) -> RequestOrigin | None:
    like, config, layer, kind = (
        settings.pop(name, None) for name in ("like", "config", "layer", "kind")
    )
    if config is None:
        if layer is not None or kind is not None:
            raise click.UsageError(
                f"--{'kind' if layer is None else 'layer'} belongs to --config, which is not given."
            )
        if like is None:
            return None
    elif like is not None:
        raise click.UsageError("--like and --config are two models; give one of them.")
    from symattn.attention import presets
    from symattn.programs.request import RequestOrigin

    if config is None:
        return RequestOrigin({"like": like}, presets.like(like))
    from symattn.models.configurations import attention

    options = {"config": config, "layer": layer or None, "kind": kind if kind != "self" else None}
    return RequestOrigin(options, attention(config, layer, kind or "self"))


def _names(_: click.Context, __: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    field_names = tuple(name.replace("-", "_") for name in names)
    for name in field_names:
        if name not in NAMES:
            raise click.BadParameter(f"{name!r} is not a field of a specification.")
    return field_names


variants = all_of((
    MODEL("--like", metavar="NAME", help="A model by name: llama, gpt2, gemma2, gla, ..."),
    MODEL("--config", metavar="FILE", help="Your model: its config.json, or its folder."),
    MODEL("--layer", type=int, metavar="N", help="Layer of --config, counted from 0."),
    MODEL("--kind", metavar="KIND", help="Part of --config: self, encoder, decoder, cross."),
    MODEL("--without", multiple=True, metavar="FIELD", callback=_names, help="Drop a field of --like or --config."),
))  # fmt: skip
"""Give a command ``--like``, ``--config`` with ``--layer`` and ``--kind``, and ``--without``."""
