"""The families: for each ``model_type`` the rules by which its attention is read.

A row holds what configurations leave unsaid, because it stands in the code of the family: whether queries and keys are
normalised, which columns a rotation pairs, by which field the scale is told, how a matrix of q, k and v is split.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from symattn.sources.configurations.masking import by_decoder, by_types, causal, everywhere, two_sided
from symattn.sources.configurations.rotary import rotary
from symattn.sources.configurations.rules import (
    Rule,
    gpt2_scale,
    grouped,
    heads,
    normed,
    root_of,
    sinks,
    softcap,
    unscaled,
)
from symattn.sources.configurations.special import absolute, alibi, buckets, disentangled, falcon, latent, mpt

Packing: TypeAlias = Literal["rows", "groups"]
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers")
_HALVES = {
    "encoder": ("encoder_layers", *_LAYERS),
    "decoder": ("decoder_layers", *_LAYERS),
    "cross": ("decoder_layers", *_LAYERS),
}
_T5 = {"encoder": ("num_layers",), "decoder": ("num_decoder_layers", "num_layers"),
       "cross": ("num_decoder_layers", "num_layers")}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Family:
    """What is known of a family beside its configurations.

    kinds    the rules of each kind of attention
    layers   the names of the field that counts the layers of a kind
    packing  how a matrix of q, k and v is split: ``rows``: all of q, all of k, all of v; ``groups``: for each head of
             keys its queries, its keys, its values
    scaled_before  whether queries are scaled before attention is called, with the scale 1
    """

    kinds: Mapping[str, tuple[Rule, ...]]
    layers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    packing: Packing = "rows"
    scaled_before: bool = False

    def depth(self, kind: str) -> tuple[str, ...]:
        """The names of the field that counts the layers of this kind."""
        return self.layers.get(kind, _LAYERS)


def _plain(*rules: Rule, packing: Packing = "rows") -> Family:
    """A family with one kind of attention."""
    return Family(kinds={"self": rules}, packing=packing)


def _halves(layers: Mapping[str, tuple[str, ...]] = _HALVES, **kinds: tuple[Rule, ...]) -> Family:
    """A family with an encoder and a decoder that reads it."""
    return Family(kinds=kinds, layers=layers)


_DECODER = (causal, grouped, rotary())
_GEMMA2 = (*_DECODER, by_types("even"), root_of("query_pre_attn_scalar"), softcap("attn_logit_softcapping"))
_SEQ2SEQ = _halves(encoder=(two_sided, heads), decoder=(causal, heads), cross=(two_sided, heads))
_OF_T5 = _halves(
    _T5,
    encoder=(two_sided, heads, unscaled, buckets(True)),
    decoder=(causal, heads, unscaled, buckets(False)),
    cross=(two_sided, heads, unscaled),
)
_BERT = _plain(by_decoder, heads, absolute)

FAMILIES: dict[str, Family] = {
    # -- rotations, causal ---------------------------------------------------------------------------------------------
    "llama": _plain(*_DECODER),
    "mistral": _plain(*_DECODER, everywhere),
    "mixtral": _plain(*_DECODER, everywhere),
    "gemma": _plain(*_DECODER),
    "gemma2": _plain(*_GEMMA2),
    "qwen2": _plain(*_DECODER, by_types("after")),
    "qwen3": _plain(*_DECODER, by_types("after"), normed()),
    "phi3": _plain(causal, grouped, rotary(share="partial_rotary_factor"), everywhere),
    "gpt_oss": _plain(*_DECODER, by_types("even"), sinks),
    "gpt_neox": _plain(causal, heads, rotary(share="rotary_pct"), packing="groups"),
    "deepseek_v3": _plain(causal, latent),
    "falcon": _plain(causal, falcon, packing="groups"),
    # -- other positions -----------------------------------------------------------------------------------------------
    "gpt2": _plain(causal, heads, gpt2_scale),
    "bloom": _plain(causal, heads, alibi, packing="groups"),
    "mpt": _plain(causal, heads, mpt),
    "opt": _plain(causal, heads),
    # -- encoders, if they are no decoders -----------------------------------------------------------------------------
    "bert": _BERT,
    "roberta": _BERT,
    "deberta-v2": _plain(two_sided, heads, disentangled),
    # -- two halves ----------------------------------------------------------------------------------------------------
    "t5": _OF_T5,
    "bart": _SEQ2SEQ,
    "whisper": replace(_SEQ2SEQ, scaled_before=True),
}
