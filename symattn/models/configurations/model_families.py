"""The families: for each ``model_type`` the rules by which its attention is read.

A row holds what configurations leave open because the code of the family determines it: whether queries and keys are
normalised, which columns a rotation pairs, which field is the scale, how a matrix of q, k and v is split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from symattn.models.configurations.field_rules import (
    FieldRule,
    LayerPlace,
    Subtraction,
    around,
    by_decoder,
    by_types,
    causal,
    everywhere,
    factor,
    gated,
    gpt2_scale,
    grouped,
    heads,
    if_asked,
    local,
    normed,
    root_of,
    sinks,
    softcap,
    subtracted,
    subtracting,
    two_sided,
    unscaled,
    without,
)
from symattn.models.configurations.position_rules import (
    SectionsByModule,
    absolute,
    alibi,
    buckets,
    by_list,
    disentangled,
    falcon,
    gptj,
    latent,
    mpt,
    normed_or_tempered,
    rotary,
    tempered_by_rotation,
    unless_full,
    where_sliding,
)

Packing: TypeAlias = Literal["rows", "groups"]
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HALVES = {
    "encoder": ("encoder_layers", *_LAYERS),
    "decoder": ("decoder_layers", *_LAYERS),
    "cross": ("decoder_layers", *_LAYERS),
}
_T5 = {"encoder": ("num_layers",), "decoder": ("num_decoder_layers", "num_layers"),
       "cross": ("num_decoder_layers", "num_layers")}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ModelFamily:
    """The attention of a family, as far as its configurations do not describe it.

    kinds    the rules of each kind of attention
    layers   the names of the field that counts the layers of a kind
    packing  how a matrix of q, k and v is split: ``rows``: all of q, all of k, all of v; ``groups``: for each head of
             keys its queries, its keys, its values
    scaled_before  whether queries are scaled before attention is called, with the scale 1
    gates_beside_queries  whether the projection of queries gives each head its queries, then the gate of its output
    gains    the number to add to stored gains of norms: 1 if they are stored as their distance from 1
    difference  the fields of a layer that subtracts the outputs of two calls, from a place in a model; else None
    whole    more rules, of what the model does to queries and keys before the call; they are left out where only the
             call is described
    """

    kinds: Mapping[str, tuple[FieldRule, ...]]
    layers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    packing: Packing = "rows"
    scaled_before: bool = False
    gates_beside_queries: bool = False
    gains: int = 0
    difference: Callable[[LayerPlace], Subtraction] | None = None
    whole: tuple[FieldRule, ...] = ()

    def depth(self, kind: str) -> tuple[str, ...]:
        """Return the names of the field that counts the layers of this kind."""
        return self.layers.get(kind, _LAYERS)


def _make_self_attention_family(*rules: FieldRule, packing: Packing = "rows") -> ModelFamily:
    """Return a family with one kind of attention."""
    return ModelFamily(kinds={"self": rules}, packing=packing)


def _make_encoder_decoder_family(
    layers: Mapping[str, tuple[str, ...]] = _HALVES, **kinds: tuple[FieldRule, ...]
) -> ModelFamily:
    """Return a family with an encoder and a decoder that reads it."""
    return ModelFamily(kinds=kinds, layers=layers)


_DECODER = (causal, grouped, rotary())
_GEMMA2 = (
    *_DECODER,
    by_types("even"),
    root_of("query_pre_attn_scalar"),
    softcap("attn_logit_softcapping"),
)
_GEMMA3 = (
    causal, grouped, rotary(local="rope_local_base_freq"), by_types("but last"), normed(),
    root_of("query_pre_attn_scalar"), without("attn_logit_softcapping", "Transformers' module leaves it out"),
)  # fmt: skip
_PARTLY = rotary(share="partial_rotary_factor")
# Time, height and width: how many pairs of columns each of them turns in modules, unless fields say otherwise.
_IN_BLOCKS: SectionsByModule = ("blocks", (16, 24, 24))
_INTERLEAVED: SectionsByModule = ("interleaved", (24, 20, 20))
_LAYERED = normed("layer", "layer_norm_eps", "qk_layernorm")
_EACH = "each head has a norm of its own gains"
_SEQ2SEQ = _make_encoder_decoder_family(
    encoder=(two_sided, heads), decoder=(causal, heads), cross=(two_sided, heads)
)
_OF_T5 = _make_encoder_decoder_family(
    _T5,
    encoder=(two_sided, heads, unscaled, buckets(True)),
    decoder=(causal, heads, unscaled, buckets(False)),
    cross=(two_sided, heads, unscaled),
)
_BERT = _make_self_attention_family(by_decoder, heads, absolute)
_ACROSS = normed(over="heads")

_GATED_QWEN = replace(
    _make_self_attention_family(causal, grouped, _PARTLY, by_types("interval"), normed()),
    whole=(gated,),
    gains=1,
    gates_beside_queries=True,
)

FAMILIES: dict[str, ModelFamily] = {
    # -- rotations, causal ---------------------------------------------------------------------------------------------
    "llama": _make_self_attention_family(*_DECODER),
    "mistral": _make_self_attention_family(*_DECODER, everywhere),
    "mixtral": _make_self_attention_family(*_DECODER, everywhere),
    "gemma": _make_self_attention_family(*_DECODER),
    "gemma2": _make_self_attention_family(*_GEMMA2),
    "qwen2": _make_self_attention_family(*_DECODER, by_types("after")),
    "qwen3": _make_self_attention_family(*_DECODER, by_types("after"), normed()),
    "qwen2_moe": _make_self_attention_family(*_DECODER, by_types("if asked")),
    "qwen3_moe": _make_self_attention_family(*_DECODER, if_asked, normed()),
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), _GATED_QWEN),
    "gemma3_text": replace(_make_self_attention_family(*_GEMMA3), gains=1),
    "ministral": _make_self_attention_family(*_DECODER, by_types()),
    "ministral3": replace(
        _make_self_attention_family(*_DECODER, everywhere), whole=(tempered_by_rotation,)
    ),
    "starcoder2": _make_self_attention_family(*_DECODER, everywhere),
    "granite": _make_self_attention_family(*_DECODER, factor("attention_multiplier")),
    "olmo": _make_self_attention_family(
        *_DECODER, without("clip_qkv", "queries, keys and values are cut")
    ),
    "olmo2": _make_self_attention_family(*_DECODER, _ACROSS),
    "olmo3": _make_self_attention_family(*_DECODER, by_types(), _ACROSS),
    "olmoe": _make_self_attention_family(
        *_DECODER, without("clip_qkv", "queries, keys and values are cut"), _ACROSS
    ),
    "flex_olmo": _make_self_attention_family(*_DECODER, _ACROSS),
    "minimax_m2": _make_self_attention_family(
        causal, grouped, rotary(columns="rotary_dim"), _ACROSS
    ),
    "exaone4": _make_self_attention_family(
        causal, grouped, unless_full(rotary()), by_types(), normed()
    ),
    "diffllama": replace(
        _make_self_attention_family(*_DECODER), difference=subtracting, whole=(subtracted,)
    ),
    "arcee": _make_self_attention_family(*_DECODER),
    "seed_oss": _make_self_attention_family(*_DECODER),
    "jais2": _make_self_attention_family(*_DECODER),
    **dict.fromkeys(
        ("qwen2_vl_text", "qwen2_5_vl_text"),
        _make_self_attention_family(
            causal, grouped, rotary(sections=_IN_BLOCKS), by_types("after")
        ),
    ),
    "qwen3_vl_text": _make_self_attention_family(
        causal, grouped, rotary(sections=_INTERLEAVED), normed()
    ),
    "helium": _make_self_attention_family(causal, grouped, rotary("interleaved")),
    "ernie4_5_moe": _make_self_attention_family(causal, grouped, rotary("interleaved")),
    "cwm": _make_self_attention_family(*_DECODER, by_types()),
    "apertus": _make_self_attention_family(*_DECODER, normed()),
    "dots1": _make_self_attention_family(*_DECODER, by_types(), normed()),
    "granitemoe": _make_self_attention_family(*_DECODER, factor("attention_multiplier")),
    "glm4_moe": _make_self_attention_family(causal, grouped, _PARTLY, normed(switch="use_qk_norm")),
    "hunyuan_v1_dense": replace(
        _make_self_attention_family(causal, grouped, rotary(alpha="alpha")),
        whole=(normed(place="after"),),
    ),
    "stablelm": _make_self_attention_family(
        causal, grouped, _PARTLY, without("qk_layernorm", _EACH)
    ),
    "phi": _make_self_attention_family(causal, grouped, _PARTLY, _LAYERED),
    "persimmon": _make_self_attention_family(causal, heads, _PARTLY, _LAYERED, packing="groups"),
    "gptj": _make_self_attention_family(causal, heads, gptj),
    "nemotron": _make_self_attention_family(causal, grouped, _PARTLY),
    "cohere": _make_self_attention_family(
        causal, grouped, rotary("interleaved"), without("use_qk_norm", _EACH)
    ),
    "cohere2": _make_self_attention_family(
        causal, grouped, where_sliding(rotary("interleaved"), "but last"), by_types("but last")
    ),
    "glm": _make_self_attention_family(
        causal, grouped, rotary("interleaved", "partial_rotary_factor")
    ),
    "glm4": _make_self_attention_family(
        causal, grouped, rotary("interleaved", "partial_rotary_factor")
    ),
    "ernie4_5": _make_self_attention_family(causal, grouped, rotary("interleaved")),
    "smollm3": _make_self_attention_family(
        causal, grouped, by_list(rotary()), by_types("if asked")
    ),
    "phi3": _make_self_attention_family(
        causal, grouped, rotary(share="partial_rotary_factor"), everywhere
    ),
    "gpt_oss": _make_self_attention_family(*_DECODER, by_types("even"), sinks),
    "gpt_neox": _make_self_attention_family(
        causal, heads, rotary(share="rotary_pct"), packing="groups"
    ),
    "deepseek_v3": _make_self_attention_family(causal, latent),
    "falcon": _make_self_attention_family(causal, falcon, packing="groups"),
    "llama4_text": replace(
        _make_self_attention_family(causal, grouped, by_list(rotary("interleaved")), by_types()),
        whole=(normed_or_tempered,),
    ),
    # -- other positions -----------------------------------------------------------------------------------------------
    "gpt2": _make_self_attention_family(causal, heads, gpt2_scale),
    "bloom": _make_self_attention_family(causal, heads, alibi, packing="groups"),
    "mpt": _make_self_attention_family(causal, heads, mpt),
    "opt": replace(_make_self_attention_family(causal, heads), scaled_before=True),
    "biogpt": _make_self_attention_family(causal, heads),
    "gpt_neo": _make_self_attention_family(causal, heads, unscaled, local),
    # -- encoders, if they are no decoders -----------------------------------------------------------------------------
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "camembert": _BERT,
    "electra": _BERT,
    "albert": _make_self_attention_family(two_sided, heads, absolute),
    "distilbert": _make_self_attention_family(two_sided, heads),
    "modernbert": _make_self_attention_family(two_sided, heads, rotary(), around),
    "deberta-v2": _make_self_attention_family(two_sided, heads, disentangled),
    # -- two halves ----------------------------------------------------------------------------------------------------
    "t5": _OF_T5,
    "mt5": _OF_T5,
    "bart": _SEQ2SEQ,
    "mbart": _SEQ2SEQ,
    "pegasus": _SEQ2SEQ,
    "marian": _SEQ2SEQ,
    "m2m_100": _SEQ2SEQ,
    "whisper": replace(_SEQ2SEQ, scaled_before=True),
}


def table() -> str:
    """Return a Markdown table: family, kind of attention, and the descriptions of its rules."""
    lines = ["| `model_type` | kind | what is read, and what is assumed |", "|---|---|---|"]
    for name, family in FAMILIES.items():
        # Every kind of attention of a family has a row.
        for kind, rules in family.kinds.items():
            says = [rule.says for rule in (*rules, *family.whole)]
            lines.append(f"| `{name}` | {kind} | {'; '.join(says)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
