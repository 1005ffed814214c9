"""Rotary positions by a configuration: ``rope_parameters``, or ``rope_theta`` and ``rope_scaling`` of older files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from symattn.attention.positions import rotary_fields as scaling
from symattn.attention.positions.fields import Rotary
from symattn.attention.positions.rotary_fields import Scaling
from symattn.models.configurations.field_rules import FieldRule, LayerPlace
from symattn.models.configurations.mask_rules import layer_type

Told = Mapping[str, Any]


def rotary(layout: Literal["half", "interleaved"] = "half", share: str = "", local: str = "") -> FieldRule:
    """Rotary positions of this layout.

    share   names a field that says which share of the columns is rotated
    local   names a field of older files: the base of layers that have a window, whose frequencies are not stretched
    """

    pairs = "ℓ and ℓ + r/2" if layout == "half" else "2ℓ and 2ℓ + 1"
    part = f", `{share}` of the columns" if share else ""
    part += f", in layers that slide with the base `{local}`" if local else ""
    return FieldRule(
        f"rotations of the columns {pairs}{part}",
        lambda at: {"position": position(at, parameters(at, local), layout, share)},
        before=True,
    )


def where_sliding(rule: FieldRule, otherwise: str) -> FieldRule:
    """Positions in the layers that have a window, as ``by_types`` tells them; none in the others."""

    def run(at: LayerPlace) -> Mapping[str, Any]:
        return rule(at) if layer_type(at, otherwise) == "sliding_attention" else {}

    return FieldRule(f"{rule.says}, in layers that slide; no positions in the others", run, before=True)


def unless_full(rule: FieldRule) -> FieldRule:
    """Positions in every layer of a model without windows; of one with windows, in the layers that have one."""

    def run(at: LayerPlace) -> Mapping[str, Any]:
        slides = at.c.find("sliding_window") is None or layer_type(at) == "sliding_attention"
        return rule(at) if slides else {}

    return FieldRule(f"{rule.says}; if there is a `sliding_window`, in the layers that slide alone", run, before=True)


def by_list(rule: FieldRule) -> FieldRule:
    """Positions where ``no_rope_layers`` has a 1, which is what the field says in spite of its name."""

    def run(at: LayerPlace) -> Mapping[str, Any]:
        switches = at.c.told("no_rope_layers")
        if not isinstance(switches, (list, tuple)) or len(switches) <= at.layer or switches[at.layer] not in (0, 1):
            raise at.c.refusal("no_rope_layers", switches, "a list of 0 and 1, one for each layer")
        return rule(at) if switches[at.layer] else {}

    return FieldRule(f"{rule.says}, where `no_rope_layers` has a 1; no positions where it has a 0", run, before=True)


def parameters(at: LayerPlace, local: str = "") -> Told:
    """``rope_parameters`` of the layer, or the same from ``rope_theta`` and ``rope_scaling``; ``local`` as above."""
    c, new = at.c, at.c.optional("rope_parameters") is not None
    if local and not new and layer_type(at, "but last") != "full_attention" and local in c:
        return {"rope_theta": c.find(local)}
    if not new and "rope_theta" in c and (not local or local in c):
        stretched = _object(at, c.optional("rope_scaling") or {}, "rope_scaling")
        return {"rope_theta": c.find("rope_theta"), **stretched}
    fields = _object(at, c.told("rope_parameters"), "rope_parameters")
    if any(isinstance(inner, Mapping) for inner in fields.values()):
        kind = layer_type(at)
        if not isinstance(fields.get(kind), Mapping):
            c.cannot_tell(f"rope_parameters has no entry for {kind!r}, which layer {at.layer} is")
        fields = fields[kind]
    if "rope_theta" not in fields and "rope_theta" in c:
        fields = {**fields, "rope_theta": c.find("rope_theta")}
    return fields


def _object(at: LayerPlace, value: Any, name: str) -> Told:
    if not isinstance(value, Mapping):
        raise at.c.refusal(name, value, "an object of fields")
    return value


def position(at: LayerPlace, told: Told, layout: Literal["half", "interleaved"], share: str) -> Rotary:
    """The description of these parameters."""
    base = at.c.as_number("rope_theta", told["rope_theta"] if "rope_theta" in told else at.c.find("rope_theta"))
    kind = told.get("rope_type", told.get("type", "default"))
    if not isinstance(kind, str) or kind not in _SCALINGS:
        at.c.cannot_tell(f"rope_type is {str(kind)[:40]!r}; known: {', '.join(_SCALINGS)}")
    return Rotary(base=base, width=_width(at, told, kind, share), layout=layout, scaling=_SCALINGS[kind](at, told))


def _width(at: LayerPlace, told: Told, kind: str, share: str) -> int | None:
    """How many columns are rotated, None for all of them."""
    part = told.get("partial_rotary_factor")
    if part is None and share:
        part = _share(at, share)
    if part is None or part == 1 or kind == "proportional":
        return None
    if not share and kind == "default":
        at.c.cannot_tell(f"partial_rotary_factor is {str(part)[:20]}, which rotations of this family do not look at")
    columns = int(at.d_k * at.c.as_number(share or "partial_rotary_factor", part))
    return None if columns == at.d_k else at.c.as_count("the number of rotated columns", columns, 2)


def _share(at: LayerPlace, share: str) -> Any:
    """The field, or what its class writes among ``rope_parameters`` where it is left out."""
    if at.c.optional(share) is not None:
        return at.c.find(share)
    defaults = at.c.default("rope_parameters")
    factor = defaults.get("partial_rotary_factor") if isinstance(defaults, Mapping) else None
    return at.c.find(share) if factor is None else factor


# -- scalings ----------------------------------------------------------------------------------------------------------
def _number(at: LayerPlace, told: Told, name: str, otherwise: Any = None) -> int | float:
    value = told.get(name)
    return at.c.as_number(f"rope_parameters.{name}", otherwise if value is None else value)


def _length(at: LayerPlace, told: Told) -> int:
    """The length that was trained on: beside the parameters, among them, or that of the model."""
    for value in (at.c.optional("original_max_position_embeddings"), told.get("original_max_position_embeddings")):
        if value is not None:
            return at.c.as_count("original_max_position_embeddings", value)
    return at.c.count("max_position_embeddings")


def _factor(at: LayerPlace, told: Told) -> int | float:
    """``factor``, or how much longer the model is than what was trained on."""
    if told.get("factor") is not None:
        return _number(at, told, "factor")
    return at.c.as_number("factor", at.c.count("max_position_embeddings") / _length(at, told))


def _llama3(at: LayerPlace, told: Told) -> Scaling:
    return scaling.YarnScaling(
        factor=_number(at, told, "factor"), length=_length(at, told), slow=_number(at, told, "low_freq_factor"),
        fast=_number(at, told, "high_freq_factor"), ramp="turns", weight=0,
    )  # fmt: skip


def _yarn(at: LayerPlace, told: Told) -> Scaling:
    weight, shared = told.get("mscale"), told.get("mscale_all_dim")
    both = bool(weight and shared)
    given = told.get("attention_factor")
    if given is not None and given != 1:
        at.c.cannot_tell(f"attention_factor is {str(given)[:30]}, not that of the paper, for which there is no field")
    usual = 1 if given is None else 0
    truncated = told.get("truncate", True)
    if not isinstance(truncated, bool):
        raise at.c.refusal("rope_parameters.truncate", truncated, "true or false")
    return scaling.YarnScaling(
        factor=_factor(at, told), length=_length(at, told), whole=truncated,
        slow=_number(at, told, "beta_slow", 1), fast=_number(at, told, "beta_fast", 32),
        weight=_number(at, told, "mscale") if both and usual else usual,
        shared=_number(at, told, "mscale_all_dim") if both and usual else 0,
    )  # fmt: skip


def _longrope(at: LayerPlace, told: Told) -> Scaling:
    if told.get("attention_factor") is not None:
        at.c.cannot_tell("attention_factor is given for longrope, for which there is no field")
    short, long = (_factors(at, told, name) for name in ("short_factor", "long_factor"))
    return scaling.LongRopeScaling(short=short, long=long, factor=_factor(at, told), length=_length(at, told))


def _factors(at: LayerPlace, told: Told, name: str) -> tuple[int | float, ...]:
    values = told.get(name)
    if not isinstance(values, (list, tuple)) or len(values) > 4096:
        raise at.c.refusal(f"rope_parameters.{name}", values, "a list of numbers, one for each pair of columns")
    return tuple(at.c.as_number(f"rope_parameters.{name}", x) for x in values)


def _proportional(at: LayerPlace, told: Told) -> Scaling:
    if told.get("factor") not in (None, 1, 1.0):
        at.c.cannot_tell("rope_type proportional has a factor, for which there is no field")
    return scaling.ProportionalScaling(share=_number(at, told, "partial_rotary_factor", 1))


_SCALINGS: dict[str, Callable[[LayerPlace, Told], Scaling | None]] = {
    "default": lambda at, told: None,
    "linear": lambda at, told: scaling.LinearScaling(factor=_number(at, told, "factor")),
    "dynamic": lambda at, told: scaling.NTKScaling(
        factor=_number(at, told, "factor"), length=at.c.count("max_position_embeddings")
    ),
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "su": _longrope,
    "proportional": _proportional,
}
