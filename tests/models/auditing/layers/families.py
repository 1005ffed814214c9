"""Tiny models whose layers are audited: random weights, norms and biases that are none of the usual ones."""

from __future__ import annotations

import re
from typing import Any

from tests.models.auditing import families

_GROUPED = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}  # fmt: skip
_BERT = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
_PARTLY = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}}
#: Families that are not among those whose attention is audited, or need other fields.
_MORE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {**_GROUPED, "head_dim": 8}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", _GROUPED),
    "ministral": ("MinistralForCausalLM", "MinistralConfig", {**_GROUPED, "head_dim": 8, "sliding_window": 6}),
    "glm4": ("Glm4ForCausalLM", "Glm4Config", {**_GROUPED, **_PARTLY, "head_dim": 8, "pad_token_id": 0}),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", {**_GROUPED, "pad_token_id": 0}),
    "starcoder2": ("Starcoder2ForCausalLM", "Starcoder2Config", _GROUPED),
    "phi": ("PhiForCausalLM", "PhiConfig", _GROUPED),
    "cohere": ("CohereForCausalLM", "CohereConfig", {**_GROUPED, "pad_token_id": 0}),
    "gpt_neox": (
        "GPTNeoXForCausalLM", "GPTNeoXConfig",
        {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2},
    ),
    "gptj": ("GPTJForCausalLM", "GPTJConfig", {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4}),
    "bert": ("BertModel", "BertConfig", _BERT),
    "roberta": ("RobertaModel", "RobertaConfig", _BERT),
    "xlm-roberta": ("XLMRobertaModel", "XLMRobertaConfig", _BERT),
    "camembert": ("CamembertModel", "CamembertConfig", _BERT),
    "mpt": ("MptForCausalLM", "MptConfig", {"d_model": 32, "n_layers": 2, "n_heads": 4}),
    "olmo": ("OlmoForCausalLM", "OlmoConfig", _GROUPED),
    "helium": ("HeliumForCausalLM", "HeliumConfig", {**_GROUPED, "head_dim": 8, "pad_token_id": 0}),
    "cwm": (
        "CwmForCausalLM", "CwmConfig",
        {**_GROUPED, "head_dim": 8, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2, "sliding_window": 6,
         "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "arcee": ("ArceeForCausalLM", "ArceeConfig", {**_GROUPED, "hidden_act": "gelu"}),
    "seed_oss": ("SeedOssForCausalLM", "SeedOssConfig", {**_GROUPED, "head_dim": 8}),
    "exaone4": (
        "Exaone4ForCausalLM", "Exaone4Config",
        {**_GROUPED, "sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]},
    ),
}  # fmt: skip
ENCODERS = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert")
FAMILIES = {**families.FAMILIES, **_MORE}


def made(name: str, dtype: Any, implementation: str = "eager", scale: float = 1.0, **fields: Any) -> Any:
    """A model of the family in which every parameter counts: gains around 1, biases, embeddings of the size ``scale``.

    Frequencies of rotations stay in float32, as they do where a model is loaded.
    """
    import torch
    import transformers

    torch.manual_seed(0)
    model_class, config_class, usual = FAMILIES[name]
    config = getattr(transformers, config_class)(vocab_size=50, **{**usual, **fields})
    model = getattr(transformers, model_class)(config)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if "embed" in path or ".wte" in path or ".wpe" in path:
                parameter.copy_(torch.randn_like(parameter) * scale)
            elif parameter.ndim == 2:
                parameter.copy_(torch.randn_like(parameter) * (2.0 / parameter.shape[-1]) ** 0.5)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    model.set_attn_implementation(implementation)
    kept = {path: buffer.clone() for path, buffer in model.named_buffers() if "inv_freq" in path}
    model = model.eval().to(dtype)
    for path, buffer in kept.items():
        owner, _, last = path.rpartition(".")
        setattr(model.get_submodule(owner), last, buffer)
    return model


def path_of(model: Any, layer: int) -> str:
    """Where a decoder layer is."""
    found = (
        path for path, _ in model.named_modules() if re.fullmatch(rf"(.*\.)?(layers|layer|h|blocks)\.{layer}", path)
    )
    return next(found)
