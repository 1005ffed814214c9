"""Rules of single families: latents of DeepSeek, heads of Falcon, and positions that are no rotations."""

from __future__ import annotations

from collections.abc import Mapping
from math import log, sqrt
from typing import Any

from symattn.attention.latent import Latent
from symattn.attention.positions.fields import Alibi, Buckets, Disentangled, Rotary
from symattn.attention.positions.rotary_fields import YarnScaling
from symattn.models.configurations.field_rules import FieldRule, LayerPlace, fixed, rule
from symattn.models.configurations.rotary_rules import parameters, position

_MILLIONTH = 1e-6


# -- latents -----------------------------------------------------------------------------------------------------------
@rule(
    "keys and values from a latent, queries too unless `q_lora_rank` is null; latents have RMSNorm with ε = 10⁻⁶; "
    "pairs by `rope_interleave`; the scale times (1 + w log(s)/10)² for w = `mscale_all_dim` of YaRN"
)
def latent(at: LayerPlace) -> dict[str, Any]:
    c = at.c
    columns = c.count("qk_nope_head_dim") + c.count("qk_rope_head_dim")
    interleaved = c.flag("rope_interleave")
    place = position(at, parameters(at), "interleaved" if interleaved else "half", "")
    queries = c.find("q_lora_rank") is not None
    return {
        "heads": at.heads,
        "latent": Latent(queries=queries, norm="rms", eps=_MILLIONTH),
        "position": place,
        "scale": _stretched(place, columns),
    }


def _stretched(place: Rotary, columns: int) -> float | None:
    """(1 + w log(s)/10)² / √d_k for YaRN of the weight w = ``mscale_all_dim``; None is 1/√d_k."""
    scaling = place.scaling
    if not isinstance(scaling, YarnScaling) or not scaling.shared or scaling.factor <= 1:
        return None
    return float((1 + 0.1 * scaling.shared * log(scaling.factor)) ** 2 / sqrt(columns))


# -- Falcon ------------------------------------------------------------------------------------------------------------
@rule(
    "one head of keys if `multi_query`, `num_kv_heads` of them if `new_decoder_architecture`, else as many as heads; "
    "rotations of the columns ℓ and ℓ + r/2; with `alibi` it is refused, since the slopes are divided by √d_k"
)
def falcon(at: LayerPlace) -> dict[str, Any]:
    if at.c.flag("new_decoder_architecture"):
        keys = at.c.count("num_kv_heads")
    else:
        keys = 1 if at.c.flag("multi_query") else at.heads
    shared = at.sharing("num_kv_heads", keys)
    if at.c.flag("alibi"):
        at.c.cannot_tell("Falcon divides the slopes of ALiBi by √d_k, for which there is no field")
    return {**shared, "position": position(at, parameters(at), "half", "")}


# -- other positions ---------------------------------------------------------------------------------------------------
@rule("a `position_embedding_type` other than `absolute` is refused")
def absolute(at: LayerPlace) -> dict[str, Any]:
    if (kind := at.c.optional("position_embedding_type")) not in (None, "absolute"):
        at.c.cannot_tell(f"position_embedding_type is {str(kind)[:40]!r}, whose terms this adapter does not know")
    return {}


alibi = fixed("ALiBi with computed slopes", position=Alibi())


@rule("rotations of the columns 2ℓ and 2ℓ + 1, `rotary_dim` of them, with the base 10000")
def gptj(at: LayerPlace) -> dict[str, Any]:
    width = at.c.find("rotary_dim")
    if width is None:
        at.c.cannot_tell("rotary_dim is null: all columns turn by the width of the model, for which there is no field")
    columns = at.c.as_count("rotary_dim", width, 2)
    return {"position": Rotary(width=None if columns == at.d_k else columns, layout="interleaved")}


def buckets(two_sided: bool) -> FieldRule:
    """The buckets of T5, which its first layer makes for all."""

    sides = "of both directions" if two_sided else "of one direction"

    @rule(f"a bias for each bucket of distances, {sides}; all layers read the table of the first")
    def run(at: LayerPlace) -> dict[str, Any]:
        number = at.c.count("relative_attention_num_buckets")
        far = at.c.count("relative_attention_max_distance")
        return {"position": Buckets(number=number, max_distance=far, bidirectional=two_sided)}

    return run


@rule("ALiBi by `attn_config.alibi`; a cut, a scale, a prefix or other slopes in `attn_config` are refused")
def mpt(at: LayerPlace) -> dict[str, Any]:
    fields = at.c.find("attn_config")
    if not isinstance(fields, Mapping):
        fields = fields.to_dict() if hasattr(fields, "to_dict") else {}
    if fields.get("attn_type") not in (None, "multihead_attention"):
        at.c.cannot_tell(f"attn_type is {str(fields['attn_type'])[:40]!r}; known: multihead_attention")
    for name in ("clip_qkv", "softmax_scale", "prefix_lm", "qk_ln", "attn_uses_sequence_id"):
        if fields.get(name):
            at.c.cannot_tell(f"attn_config has {name}, of which this adapter knows nothing")
    if fields.get("alibi") not in (True, False):
        at.c.cannot_tell("attn_config does not say whether there is ALiBi")
    if fields["alibi"] and fields.get("alibi_bias_max", 8) != 8:
        at.c.cannot_tell("attn_config has an alibi_bias_max other than 8, for whose slopes there is no field")
    return {"position": Alibi() if fields["alibi"] else None}


@rule(
    "disentangled terms by `pos_att_type`, in `position_buckets` buckets up to `max_relative_positions`; the term of "
    "keys takes the row of i − j"
)
def disentangled(at: LayerPlace) -> dict[str, Any]:
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
    far = c.count("max_position_embeddings") if far in (-1, 0) else c.as_count("max_relative_positions", far)
    near = c.optional("position_buckets", -1)
    buckets = c.as_count("position_buckets", near) if near not in (-1, 0, None) else None
    place = Disentangled(
        span=buckets or far, max_distance=far if buckets else None, to_position="c2p" in terms,
        to_content="p2c" in terms, backwards=False,
    )  # fmt: skip
    return {"position": place}
