"""The families: for each ``model_type`` the rules by which its attention is read.

A row holds what configurations leave unsaid, because it stands in the code of the family: whether queries and keys are
normalised, which columns a rotation pairs, by which field the scale is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from symattn.sources.configurations.masking import by_types, causal, everywhere
from symattn.sources.configurations.rotary import rotary
from symattn.sources.configurations.rules import Rule, gpt2_scale, grouped, heads, normed, root_of, softcap

_LAYERS = ("num_hidden_layers", "n_layer")


@dataclass(frozen=True)
class Family:
    """The rules of each kind of attention that a family has, and the fields that count its layers."""

    kinds: Mapping[str, tuple[Rule, ...]]
    layers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def depth(self, kind: str) -> tuple[str, ...]:
        """The names of the field that counts the layers of this kind."""
        return self.layers.get(kind, _LAYERS)


def _plain(*rules: Rule) -> Family:
    """A family with one kind of attention."""
    return Family({"self": rules})


_DECODER = (causal, grouped, rotary())

FAMILIES: dict[str, Family] = {
    "llama": _plain(*_DECODER),
    "mistral": _plain(*_DECODER, everywhere),
    "gemma2": _plain(*_DECODER, by_types("even"), root_of("query_pre_attn_scalar"), softcap("attn_logit_softcapping")),
    "qwen3": _plain(*_DECODER, by_types("after"), normed()),
    "gpt2": _plain(causal, heads, gpt2_scale),
}
