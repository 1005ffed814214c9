"""Layers of one model with other numbers of heads: read from lists and from fields of layers, and audited."""

from typing import Any
from unittest.mock import patch

import pytest

from symattn import Attention, InputError, Rotary, audit, configurations

HEADS, KEYS = (4, 8, 4), (2, 4, 1)
LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 32, "head_dim": 8, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "rope_theta": 10000.0,
}  # fmt: skip
BY_LAYER = {"1": {"num_attention_heads": 8, "num_key_value_heads": 4}, "2": {"num_key_value_heads": 1}}


@pytest.mark.parametrize(
    "fields", [{"num_attention_heads": [*HEADS], "num_key_value_heads": [*KEYS]}, {"per_layer_config": BY_LAYER}]
)
def test_each_layer_has_its_own_heads(fields: dict[str, Any]) -> None:
    for layer, (heads, keys) in enumerate(zip(HEADS, KEYS, strict=True)):
        promised = Attention(causal=True, heads=heads, kv_heads=keys, position=Rotary())
        assert configurations.attention({**LLAMA, **fields}, layer) == promised


def test_fields_of_layers_that_cannot_be_read_are_refused() -> None:
    for fields, says in (
        ({"num_key_value_heads": [2, 4]}, "a list of 3 numbers or more"),
        ({"num_attention_heads": [4, 4, 6], "num_key_value_heads": 4}, "a divisor of 6"),
        ({"per_layer_config": [1]}, "per_layer_config must be an object"),
        ({"per_layer_config": {"2": 3}}, "per_layer_config.2 must be an object"),
    ):
        with pytest.raises(InputError, match=says):
            configurations.attention({**LLAMA, **fields}, 2)


@pytest.mark.transformers
def test_an_audit_reads_the_heads_of_each_layer() -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    sizes: dict[str, Any] = {
        "vocab_size": 50, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 3, "head_dim": 8,
        "attn_implementation": "eager",
    }  # fmt: skip
    torch.manual_seed(0)
    model: Any = LlamaForCausalLM(LlamaConfig(**sizes))
    for layer, (heads, keys) in enumerate(zip(HEADS, KEYS, strict=True)):
        own = LlamaConfig(**sizes, num_attention_heads=heads, num_key_value_heads=keys)
        model.model.layers[layer] = LlamaDecoderLayer(own, layer)
    model.eval()

    def judged() -> list[str]:
        with torch.no_grad(), audit(model, dependence=False) as report:
            model(torch.arange(3, 9)[None])
        return [finding.state for finding in report.findings]

    assert judged() == ["pass"] * 3
    # Keys and values that are tiled over the heads; one head alone is the same for all.
    with patch("transformers.models.llama.modeling_llama.repeat_kv", lambda x, n: x.repeat(1, n, 1, 1)):
        assert judged() == ["wrong", "wrong", "pass"]
