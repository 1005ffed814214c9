"""The formulas of a model's attention, from its configuration: ``symattn derive attention --config config.json``."""

from __future__ import annotations

import os
from dataclasses import fields as fields_of
from dataclasses import replace

from symattn.attention.positions.position_fields import Rotary
from symattn.attention.positions.rotary_fields import LongRopeScaling
from symattn.attention.presets import few_heads
from symattn.attention.spec import Attention
from symattn.derivations.attention import FLAGS, SIZES
from symattn.derivations.attention.attention_document import derivation
from symattn.derivations.sheets.sheet import overridden
from symattn.document.codec import command
from symattn.document.errors import InputError
from symattn.document.model import Document, Note
from symattn.models.configurations import promised_layers
from symattn.models.configurations.configuration import configuration

_MOST_HEADS = 6
_OPTIONS = (*SIZES, "size", *FLAGS)


def formulas(source: object, layer: int = 0, kind: str = "self", **wishes: object) -> Document:
    """Return every step of the attention that a configuration specifies for a layer, with each formula's grade.

    The formulas do not depend on the numbers of heads and columns: few are written out, and a note says what was
    cut. ``wishes`` are sizes (``dk``, ``tokens``, …) and fields of ``Attention`` that replace those of the model.
    Raises InputError as ``attention`` does.

    >>> gpt2 = {"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "scale_attn_weights": True,
    ...         "scale_attn_by_inverse_layer_idx": False}
    >>> formulas(gpt2).command
    'symattn derive attention --config config.json'
    """
    unknown = [
        name
        for name in wishes
        if name not in _OPTIONS and name not in {f.name for f in fields_of(Attention)}
    ]
    if unknown:
        raise InputError(f"{unknown[0]!r} is neither a size nor a field of attention")
    c = configuration(source)
    changed = {name: value for name, value in wishes.items() if name not in _OPTIONS}
    spec = promised_layers.attention(c, layer, kind)
    spec = overridden(spec, changed) if changed else spec
    shown, words = cut(spec)
    sizes = {name: value for name, value in wishes.items() if name in _OPTIONS}
    if kind == "cross":
        sizes.setdefault("cross", True)
    if isinstance(shown.position, Rotary) and shown.position.width:
        sizes.setdefault("dk", shown.position.width + 2)
    results = {
        f.name: getattr(shown, f.name)
        for f in fields_of(Attention)
        if getattr(shown, f.name) != f.default
    }
    results["scale"] = "1/sqrt(d_k)" if shown.scale is None else shown.scale
    where = {
        "config": place_of(source),
        "layer": layer or None,
        "kind": kind if kind != "self" else None,
    }
    page = derivation(command("derive", "attention", options=where | wishes), **results, **sizes)
    notes = [f"{c.model_type}, layer {layer}{'' if kind == 'self' else ', ' + kind}: {spec!r}."]
    notes += [f"Of the model's sizes few are written out: {'; '.join(words)}."] if words else []
    return page.opened_by(*(Note((words,)) for words in notes))


def cut(spec: Attention) -> tuple[Attention, list[str]]:
    """Return the specification with few heads and rotated columns, and phrases that say what was cut."""
    shown, heads_cut = (
        few_heads(spec, alone=2, shared=2) if spec.heads > _MOST_HEADS else (spec, "")
    )
    words, place = [heads_cut] if heads_cut else [], shown.position
    if isinstance(place, Rotary):
        if place.width and place.width > 2:
            words.append(f"{place.width} rotated columns are cut to 2")
            place = replace(place, width=2)
        if isinstance(place.scaling, LongRopeScaling):
            words.append(f"factors of {len(place.scaling.short)} pairs are cut to the first")
            first = replace(
                place.scaling, short=place.scaling.short[:1], long=place.scaling.long[:1]
            )
            place = replace(place, scaling=first)
        shown = replace(shown, position=place)
    return shown, words


def place_of(source: object) -> str:
    """Return the name of a configuration on a command line."""
    return os.fspath(source) if isinstance(source, (str, os.PathLike)) else "config.json"
