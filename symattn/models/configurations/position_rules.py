"""Positions by a configuration: rotary ones by ``rope_parameters``, or older fields, and those of single families."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import log, sqrt
from typing import Any, Literal

from symattn.attention.latent import Latent
from symattn.attention.positions import rotary_fields as scaling
from symattn.attention.positions.position_fields import Alibi, Buckets, Disentangled, Rotary
from symattn.attention.positions.rotary_fields import Scaling, YarnScaling
from symattn.models.configurations.field_rules import (
    FieldRule,
    Fields,
    LayerPlace,
    fixed,
    layer_type,
    normed,
    rule,
)

JsonObject = Mapping[str, Any]
SectionOrder = Literal["blocks", "interleaved"]
SectionsByModule = tuple[SectionOrder, tuple[int, ...]]


def rotary(
    layout: Literal["half", "interleaved"] = "half",
    share: str = "",
    local: str = "",
    alpha: str = "",
    columns: str = "",
    sections: SectionsByModule | None = None,
) -> FieldRule:
    """Return a rule for rotary positions of this layout.

    share   the name of a field for the share of the columns that is rotated
    local   the name of a field of older files: the base of layers with a window, whose frequencies are not stretched
    alpha   the name of a field α of ``dynamic`` rotations: with it the base is α^(d/(d − 2)) times as large at every
            length
    columns  the name of a field of older files for how many columns are rotated
    sections  the order of the sections of ``mrope_section``, each with a row of the positions, and those of the module
             if there is no such field
    """

    pairs = "ℓ and ℓ + r/2" if layout == "half" else "2ℓ and 2ℓ + 1"
    part = f", `{share}` of the columns" if share else ""
    part += f", `partial_rotary_factor` of the columns, or `{columns}` of them" if columns else ""
    part += f", in layers that slide with the base `{local}`" if local else ""
    part += f", the base times `{alpha}`^(d/(d − 2)) if that is given" if alpha else ""
    of_sections = {"blocks": "in blocks", "interleaved": "interleaved"}
    part += f", sections by `mrope_section`, {of_sections[sections[0]]}" if sections else ""
    return FieldRule(
        f"rotations of the columns {pairs}{part}",
        lambda at: {
            "position": rope_of(at, local).position(layout, share, alpha, columns, sections)
        },
        before=True,
    )


def _restrict_rule_to_layers(
    rule: FieldRule, says: str, holds: Callable[[LayerPlace], bool]
) -> FieldRule:
    """Return a rule for positions only in layers for which ``holds`` is true."""
    return FieldRule(f"{rule.says}{says}", lambda at: rule(at) if holds(at) else {}, before=True)


def where_sliding(rule: FieldRule, otherwise: str) -> FieldRule:
    """Return a rule for positions only in layers that have a window, as in ``by_types``."""
    says = ", in layers that slide; no positions in the others"
    return _restrict_rule_to_layers(
        rule, says, lambda at: layer_type(at, otherwise) == "sliding_attention"
    )


def unless_full(rule: FieldRule) -> FieldRule:
    """Return a rule for positions in every layer of a model without windows, else in the layers that have one."""
    says = "; if there is a `sliding_window`, in the layers that slide alone"
    return _restrict_rule_to_layers(
        rule,
        says,
        lambda at: at.c.find("sliding_window") is None or layer_type(at) == "sliding_attention",
    )


def by_list(rule: FieldRule) -> FieldRule:
    """Return a rule for positions in layers where ``no_rope_layers`` has a 1, which means that in spite of its name."""
    return _restrict_rule_to_layers(
        rule, ", where `no_rope_layers` has a 1; no positions where it has a 0", _is_switched_on
    )


def _is_switched_on(at: LayerPlace) -> bool:
    """Return whether ``no_rope_layers`` has a 1 for the layer."""
    switches = at.c.required("no_rope_layers")
    if (
        not isinstance(switches, (list, tuple))
        or len(switches) <= at.layer
        or switches[at.layer] not in (0, 1)
    ):
        raise at.c.refusal("no_rope_layers", switches, "a list of 0 and 1, one for each layer")
    return bool(switches[at.layer])


@rule(
    "with rotations queries and keys are normalised (rms) head by head, after rotations, with ε = `rms_norm_eps`, if "
    "`use_qk_norm`; without them queries have temperatures 1 + `attn_scale` log(⌊p/`floor_scale`⌋ + 1) by their place "
    "p, from 1 on, if `attn_temperature_tuning`"
)
def normed_or_tempered(at: LayerPlace) -> Fields:
    if _is_switched_on(at):
        return normed(switch="use_qk_norm", place="after")(at)
    # Older files have a number, which stands for true.
    if not at.c.find("attn_temperature_tuning"):
        return {}
    rate = at.c.as_count("floor_scale", at.c.find("floor_scale"))
    return {"temperature": at.c.number("attn_scale"), "temperature_rate": rate}


@rule(
    "queries have temperatures 1 + β log(⌊p/f⌋ + 1) by their place p, from 0 on, for β = `llama_4_scaling_beta` and "
    "f = `original_max_position_embeddings` of `rope_parameters`"
)
def tempered_by_rotation(at: LayerPlace) -> Fields:
    rope, name = rope_of(at), "original_max_position_embeddings"
    rate = at.c.as_count(f"rope_parameters.{name}", rope.fields.get(name))
    slope = rope.number("llama_4_scaling_beta")
    return {"temperature": slope, "temperature_rate": rate, "temperature_start": 0}


def rope_of(at: LayerPlace, local: str = "") -> RopeFields:
    """Return a layer's ``rope_parameters``, or of ``rope_theta`` and ``rope_scaling``; ``local``: see ``rotary``."""
    c, new = at.c, at.c.optional("rope_parameters") is not None
    if local and not new and layer_type(at, "but last") != "full_attention" and local in c:
        return RopeFields(at, {"rope_theta": c.find(local)})
    # Fields of older files, unless the base that this family needs besides is missing.
    if not new and "rope_theta" in c and (not local or local in c):
        stretched = _require_object_of_fields(at, c.optional("rope_scaling") or {}, "rope_scaling")
        return RopeFields(at, {"rope_theta": c.find("rope_theta"), **stretched})
    fields = _require_object_of_fields(at, c.required("rope_parameters"), "rope_parameters")
    # The entries differ by the type of the layer.
    if any(isinstance(inner, Mapping) for inner in fields.values()):
        kind = layer_type(at)
        if not isinstance(fields.get(kind), Mapping):
            c.cannot_tell(f"rope_parameters has no entry for {kind!r}, which layer {at.layer} is")
        fields = fields[kind]
    # The base may stand outside of ``rope_parameters``.
    if "rope_theta" not in fields and "rope_theta" in c:
        fields = {**fields, "rope_theta": c.find("rope_theta")}
    return RopeFields(at, fields)


def _require_object_of_fields(at: LayerPlace, value: object, name: str) -> JsonObject:
    if not isinstance(value, Mapping):
        raise at.c.refusal(name, value, "an object of fields")
    return value


@dataclass(frozen=True)
class RopeFields:
    """The fields for the rotation of a layer's queries and keys."""

    at: LayerPlace
    fields: JsonObject

    def position(
        self,
        layout: Literal["half", "interleaved"],
        share: str = "",
        alpha: str = "",
        columns: str = "",
        sections: SectionsByModule | None = None,
    ) -> Rotary:
        """Return the positions that these fields describe; ``share`` to ``sections`` as in ``rotary``."""
        c, fields = self.at.c, self.fields
        base = c.as_number(
            "rope_theta", fields["rope_theta"] if "rope_theta" in fields else c.find("rope_theta")
        )
        kind = fields.get("rope_type", fields.get("type", "default"))
        if not isinstance(kind, str) or kind not in _SCALINGS:
            c.cannot_tell(f"rope_type is {str(kind)[:40]!r}; known: {', '.join(_SCALINGS)}")
        # As Transformers does: such frequencies depend on no length, in spite of their type.
        if alpha and kind == "dynamic" and fields.get(alpha):
            base, kind = base * self._stretch_of_base(alpha), "default"
        result = Rotary(
            base=base,
            width=self._count_rotated_columns(kind, share, columns),
            layout=layout,
            scaling=_SCALINGS[kind](self),
        )
        return result if sections is None else self._with_sections(result, *sections)

    def _with_sections(
        self, rotation: Rotary, order: SectionOrder, otherwise: tuple[int, ...]
    ) -> Rotary:
        """Return the rotation with the sections of ``mrope_section``, whose pairs are those that are rotated."""
        c, sections = self.at.c, self.fields.get("mrope_section", otherwise)
        name, pairs = "rope_parameters.mrope_section", (rotation.width or self.at.d_k) // 2
        wanted = f"a list of numbers of pairs, {pairs} together"
        if not isinstance(sections, (list, tuple)) or not 2 <= len(sections) <= 8:
            raise c.refusal(name, sections, wanted)
        counts = tuple(c.as_count(name, count) for count in sections)
        if sum(counts) != pairs:
            raise c.refusal(name, sections, wanted)
        return replace(rotation, given="positions", sections=counts, section_order=order)

    def _stretch_of_base(self, alpha: str) -> float:
        """Return α^(d/(d − 2)), d the number of columns."""
        c, columns = self.at.c, self.at.d_k
        value = self.number(alpha)
        if columns <= 2:
            c.cannot_tell(f"{alpha} is given, and has no meaning for {columns} columns")
        return float(value ** (columns / (columns - 2)))

    def _count_rotated_columns(self, kind: str, share: str, counted: str) -> int | None:
        """Return how many columns are rotated, None for all of them."""
        c, part = self.at.c, self.fields.get("partial_rotary_factor")
        if part is None and share:
            part = self._read_rotated_share(share)
        if part is None and counted:
            part = self._read_counted_share(counted)
        # Proportional frequencies are a scaling of all columns.
        if part is None or part == 1 or kind == "proportional":
            return None
        if not (share or counted) and kind == "default":
            c.cannot_tell(
                f"partial_rotary_factor is {str(part)[:20]}, which rotations of this family ignore"
            )
        # Rounded down, as Transformers does.
        columns = int(self.at.d_k * c.as_number(share or "partial_rotary_factor", part))
        return (
            None
            if columns == self.at.d_k
            else c.as_count("the number of rotated columns", columns, 2)
        )

    def _read_rotated_share(self, share: str) -> object:
        """Return the field, or the default of its class, which may be within ``rope_parameters``."""
        c = self.at.c
        if c.optional(share) is not None:
            return c.find(share)
        defaults = c.default("rope_parameters")
        factor = defaults.get("partial_rotary_factor") if isinstance(defaults, Mapping) else None
        return c.find(share) if factor is None else factor

    def _read_counted_share(self, counted: str) -> object:
        """Return the share outside of ``rope_parameters``, or the count of rotated columns as one; None for neither."""
        c = self.at.c
        # As Transformers does: the share comes first.
        if (part := c.optional("partial_rotary_factor")) is not None:
            return part
        if c.optional(counted) is None:
            return None
        return c.as_count(counted, c.find(counted), 2) / self.at.d_k

    def number(self, name: str, otherwise: int | None = None) -> int | float:
        """Return one of the fields as a number."""
        value = self.fields.get(name)
        return self.at.c.as_number(f"rope_parameters.{name}", otherwise if value is None else value)

    @property
    def length(self) -> int:
        """The length in training: outside of these fields, among them, or that of the model."""
        name, c = "original_max_position_embeddings", self.at.c
        for value in (c.optional(name), self.fields.get(name)):
            if value is not None:
                return c.as_count(name, value)
        return c.count("max_position_embeddings")

    @property
    def factor(self) -> int | float:
        """``factor``, or the ratio of the model's length to that in training."""
        if self.fields.get("factor") is not None:
            return self.number("factor")
        return self.at.c.as_number(
            "factor", self.at.c.count("max_position_embeddings") / self.length
        )

    def factors(self, name: str) -> tuple[int | float, ...]:
        """Return a field with a number for each pair of columns."""
        values, field = self.fields.get(name), f"rope_parameters.{name}"
        if not isinstance(values, (list, tuple)) or len(values) > 4096:
            raise self.at.c.refusal(
                field, values, "a list of numbers, one for each pair of columns"
            )
        return tuple(self.at.c.as_number(field, x) for x in values)


# -- scalings ----------------------------------------------------------------------------------------------------------
def _read_llama3_scaling(rope: RopeFields) -> Scaling:
    return scaling.YarnScaling(
        factor=rope.number("factor"), length=rope.length, slow=rope.number("low_freq_factor"),
        fast=rope.number("high_freq_factor"), ramp="turns", weight=0,
    )  # fmt: skip


def _read_yarn_scaling(rope: RopeFields) -> Scaling:
    c, fields = rope.at.c, rope.fields
    both, own_factor = (
        bool(fields.get("mscale") and fields.get("mscale_all_dim")),
        fields.get("attention_factor"),
    )
    if own_factor is not None and own_factor != 1:
        c.cannot_tell(
            f"attention_factor is {str(own_factor)[:30]}, not that of the paper, for which there is no field"
        )
    usual = 1 if own_factor is None else 0
    truncated = fields.get("truncate", True)
    if not isinstance(truncated, bool):
        raise c.refusal("rope_parameters.truncate", truncated, "true or false")
    return scaling.YarnScaling(
        factor=rope.factor,
        length=rope.length,
        whole=truncated,
        slow=rope.number("beta_slow", 1),
        fast=rope.number("beta_fast", 32),
        weight=rope.number("mscale") if both and usual else usual,
        shared=rope.number("mscale_all_dim") if both and usual else 0,
    )


def _read_longrope_scaling(rope: RopeFields) -> Scaling:
    if rope.fields.get("attention_factor") is not None:
        rope.at.c.cannot_tell("attention_factor is given for longrope, for which there is no field")
    short, long = (rope.factors(name) for name in ("short_factor", "long_factor"))
    return scaling.LongRopeScaling(short=short, long=long, factor=rope.factor, length=rope.length)


def _read_proportional_scaling(rope: RopeFields) -> Scaling:
    if rope.fields.get("factor") not in (None, 1, 1.0):
        rope.at.c.cannot_tell("rope_type proportional has a factor, for which there is no field")
    return scaling.ProportionalScaling(share=rope.number("partial_rotary_factor", 1))


# The scaling of each ``rope_type``; "su" is an older name of "longrope".
_SCALINGS: dict[str, Callable[[RopeFields], Scaling | None]] = {
    "default": lambda rope: None,
    # The sections are no scaling, and older files call them a type.
    "mrope": lambda rope: None,
    "linear": lambda rope: scaling.LinearScaling(factor=rope.number("factor")),
    "dynamic": lambda rope: scaling.NTKScaling(
        factor=rope.number("factor"), length=rope.at.c.count("max_position_embeddings")
    ),
    "llama3": _read_llama3_scaling,
    "yarn": _read_yarn_scaling,
    "longrope": _read_longrope_scaling,
    "su": _read_longrope_scaling,
    "proportional": _read_proportional_scaling,
}


# -- rules of single families: latents of DeepSeek, heads of Falcon, and positions other than rotations ----------------
# -- latents -----------------------------------------------------------------------------------------------------------
@rule(
    "keys and values from a latent, queries too unless `q_lora_rank` is null; latents have RMSNorm with ε = 10⁻⁶; "
    "pairs by `rope_interleave`; the scale times (1 + w log(s)/10)² for w = `mscale_all_dim` of YaRN"
)
def latent(at: LayerPlace) -> Fields:
    c = at.c
    columns = c.count("qk_nope_head_dim") + c.count("qk_rope_head_dim")
    place = rope_of(at).position("interleaved" if c.flag("rope_interleave") else "half")
    latent = Latent(queries=c.find("q_lora_rank") is not None, norm="rms", eps=1e-6)
    scaling, scale = place.scaling, None  # None is 1/√d_k
    if isinstance(scaling, YarnScaling) and scaling.shared and scaling.factor > 1:
        magnitude = 1 + 0.1 * scaling.shared * log(scaling.factor)
        # Queries and keys are both scaled by the magnitude, hence its square.
        scale = float(magnitude**2 / sqrt(columns))
    return {"heads": at.heads, "latent": latent, "position": place, "scale": scale}


# -- Falcon ------------------------------------------------------------------------------------------------------------
@rule(
    "one head of keys if `multi_query`, `num_kv_heads` of them if `new_decoder_architecture`, else as many as heads; "
    "rotations of the columns ℓ and ℓ + r/2; with `alibi` it is refused, since the slopes are divided by √d_k"
)
def falcon(at: LayerPlace) -> Fields:
    # The newer architecture has its own field for heads of keys.
    if at.c.flag("new_decoder_architecture"):
        keys = at.c.count("num_kv_heads")
    else:
        keys = 1 if at.c.flag("multi_query") else at.heads
    shared = at.sharing("num_kv_heads", keys)
    # A slope divided by √d_k is no slope of ``Alibi``.
    if at.c.flag("alibi"):
        at.c.cannot_tell("Falcon divides the slopes of ALiBi by √d_k, for which there is no field")
    return {**shared, "position": rope_of(at).position("half")}


# -- other positions ---------------------------------------------------------------------------------------------------
@rule("a `position_embedding_type` other than `absolute` is refused")
def absolute(at: LayerPlace) -> Fields:
    if (kind := at.c.optional("position_embedding_type")) not in (None, "absolute"):
        at.c.cannot_tell(
            f"position_embedding_type is {str(kind)[:40]!r}, whose terms this adapter does not know"
        )
    return {}


alibi = fixed("ALiBi with computed slopes", position=Alibi())


@rule("rotations of the columns 2ℓ and 2ℓ + 1, `rotary_dim` of them, with the base 10000")
def gptj(at: LayerPlace) -> Fields:
    width = at.c.find("rotary_dim")
    if width is None:
        at.c.cannot_tell(
            "rotary_dim is null: frequencies are those of the model's width, for which there is no field"
        )
    columns = at.c.as_count("rotary_dim", width, 2)
    return {"position": Rotary(width=None if columns == at.d_k else columns, layout="interleaved")}


def buckets(two_sided: bool) -> FieldRule:
    """Return a rule for the buckets of T5, which its first layer computes for all."""

    sides = "of both directions" if two_sided else "of one direction"

    @rule(f"a bias for each bucket of distances, {sides}; all layers read the table of the first")
    def run(at: LayerPlace) -> Fields:
        number = at.c.count("relative_attention_num_buckets")
        far = at.c.count("relative_attention_max_distance")
        return {"position": Buckets(number=number, max_distance=far, bidirectional=two_sided)}

    return run


@rule(
    "ALiBi by `attn_config.alibi`; a cut, a scale, a prefix or other slopes in `attn_config` are refused"
)
def mpt(at: LayerPlace) -> Fields:
    fields = at.c.find("attn_config")
    if not isinstance(fields, Mapping):
        # The field may be an object, or fields of the file.
        fields = fields.to_dict() if hasattr(fields, "to_dict") else {}
    if fields.get("attn_type") not in (None, "multihead_attention"):
        at.c.cannot_tell(
            f"attn_type is {str(fields['attn_type'])[:40]!r}; known: multihead_attention"
        )
    # Options that change the result, and have no field here.
    for name in ("clip_qkv", "softmax_scale", "prefix_lm", "qk_ln", "attn_uses_sequence_id"):
        if fields.get(name):
            at.c.cannot_tell(f"attn_config has {name}, which this adapter does not know")
    if fields.get("alibi") not in (True, False):
        at.c.cannot_tell("attn_config does not say whether there is ALiBi")
    if fields["alibi"] and fields.get("alibi_bias_max", 8) != 8:
        at.c.cannot_tell(
            "attn_config has an alibi_bias_max other than 8, for whose slopes there is no field"
        )
    return {"position": Alibi() if fields["alibi"] else None}


@rule(
    "disentangled terms by `pos_att_type`, in `position_buckets` buckets up to `max_relative_positions`; the term of "
    "keys takes the row of i − j"
)
def disentangled(at: LayerPlace) -> Fields:
    c = at.c
    if not c.flag("relative_attention"):
        return {}
    terms = c.find("pos_att_type") or []
    terms = terms.split("|") if isinstance(terms, str) else terms
    if not isinstance(terms, (list, tuple)) or not set(map(str, terms)) <= {"c2p", "p2c"}:
        raise c.refusal("pos_att_type", terms, "a list of c2p and p2c")
    if not terms:
        return {}
    far = c.find("max_relative_positions")
    # Both numbers stand for the length of the model.
    far = (
        c.count("max_position_embeddings")
        if far in (-1, 0)
        else c.as_count("max_relative_positions", far)
    )
    near = c.optional("position_buckets", -1)
    buckets = c.as_count("position_buckets", near) if near not in (-1, 0, None) else None
    place = Disentangled(
        span=buckets or far, max_distance=far if buckets else None, to_position="c2p" in terms,
        to_content="p2c" in terms, backwards=False,
    )  # fmt: skip
    return {"position": place}
