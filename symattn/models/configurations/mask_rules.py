"""Masks of a layer: causal or two-sided, windows by the kinds of layers that configurations tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symattn.models.configurations.field_rules import FieldRule, LayerPlace, fixed, rule


@rule("causal")
def causal(at: LayerPlace) -> dict[str, Any]:
    if at.c.optional("use_bidirectional_attention"):
        at.c.cannot_tell("use_bidirectional_attention is set; which queries see later keys is unknown")
    if at.c.optional("is_causal") is False:
        at.c.cannot_tell("is_causal is false, which the rows of causal families do not know")
    return {"causal": True}


@rule("causal if `is_decoder`, else every query sees every key")
def by_decoder(at: LayerPlace) -> Mapping[str, Any]:
    return causal(at) if at.c.switched("is_decoder") else {}


two_sided = fixed("every query sees every key")


def window_of(at: LayerPlace) -> int | None:
    """``sliding_window``: of a causal mask so many keys, that of the query among them; null is none."""
    width = at.c.find("sliding_window")
    return None if width is None else at.c.as_count("sliding_window", width)


@rule("`sliding_window` keys, that of the query among them, in every layer; null for all")
def everywhere(at: LayerPlace) -> dict[str, Any]:
    return {"window": window_of(at)}


@rule("`sliding_window` keys in every layer if `use_sliding_window`")
def if_asked(at: LayerPlace) -> Mapping[str, Any]:
    return everywhere(at) if at.c.flag("use_sliding_window") else {}


@rule("`window_size` keys, that of the query among them, where `attention_layers` says local")
def local(at: LayerPlace) -> dict[str, Any]:
    kind = at.c.words("attention_layers", at.layer + 1)[at.layer]
    if kind not in ("global", "local"):
        at.c.cannot_tell(f"layer {at.layer} is {kind[:40]!r}; known: global, local")
    return {"window": at.c.count("window_size")} if kind == "local" else {}


@rule("a window of ⌊`local_attention`/2⌋ keys on either side where `layer_types` says sliding")
def around(at: LayerPlace) -> dict[str, Any]:
    half = at.c.count("local_attention") // 2
    return {"window": (half, half)} if layer_type(at) == "sliding_attention" else {}


def by_types(otherwise: str = "") -> FieldRule:
    """The window of a layer by ``layer_types``, or where that is not written by an older field.

    otherwise   ``even``: layers 0, 2, … have the window; ``after``: those from ``max_window_layers`` on, if
                ``use_sliding_window``; ``but last``: all but the last of each ``sliding_window_pattern``; ``if
                asked``: none unless ``use_sliding_window``; empty: as told
    """

    older = {
        "even": "; without them layers 0, 2, … slide",
        "after": "; without them layers from `max_window_layers` on slide, if `use_sliding_window`",
        "if asked": "; without them none slides unless `use_sliding_window`",
        "but last": "; without them all slide but the last of each `sliding_window_pattern`",
    }
    says = f"windows by `layer_types`{older.get(otherwise, '')}"
    return FieldRule(says, lambda at: of_type(at, layer_type(at, otherwise)))


def layer_type(at: LayerPlace, otherwise: str = "") -> str:
    """``sliding_attention``, ``full_attention`` or another word that the configuration has for a layer."""
    if at.c.optional("layer_types") is not None:
        return at.c.words("layer_types", at.layer + 1)[at.layer]
    if otherwise == "if asked" and not at.c.flag("use_sliding_window"):
        return "full_attention"
    slides = {
        "even": lambda: at.layer % 2 == 0,
        "but last": lambda: (at.layer + 1) % at.c.count("sliding_window_pattern") != 0,
        "after": lambda: at.c.flag("use_sliding_window") and at.layer >= at.c.as_count(
            "max_window_layers", at.c.find("max_window_layers"), 0
        ),
    }.get(otherwise)  # fmt: skip
    if slides is None or (otherwise == "but last" and "sliding_window_pattern" not in at.c):
        return at.c.words("layer_types", at.layer + 1)[at.layer]
    return "sliding_attention" if slides() else "full_attention"


def of_type(at: LayerPlace, kind: str) -> dict[str, Any]:
    """The fields of a layer of this type. Raises CannotTell for a layer that is no attention of this kind."""
    if kind == "full_attention":
        return {}
    if kind == "sliding_attention":
        return {"window": window_of(at)}
    if kind == "chunked_attention":
        return {"block": at.c.count("attention_chunk_size")}
    at.c.cannot_tell(f"layer {at.layer} is {kind[:40]!r}; known: full_attention, sliding_attention, chunked_attention")
