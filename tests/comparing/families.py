"""Tiny decoders of several families with random weights, made without any file."""

from __future__ import annotations

from typing import Any

_COMMON = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.3, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_GPT2 = {
    "vocab_size": 64, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.3,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", _COMMON),
    "mistral": ("Mistral", {**_COMMON, "sliding_window": 5}),
    "gemma2": ("Gemma2", {**_COMMON, "head_dim": 8, "sliding_window": 5, "attn_logit_softcapping": 5.0}),
    "gpt2": ("GPT2", _GPT2),
    "qwen3": ("Qwen3", {**_COMMON, "head_dim": 8}),
    "gpt-oss": ("GptOss", {**_COMMON, "head_dim": 8, "sliding_window": 5, "num_local_experts": 2,
                           "num_experts_per_tok": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
}  # fmt: skip
WINDOWED = ("mistral", "gemma2")
ROTATED = ("llama", "mistral", "gemma2", "qwen3")


def cls(family: str) -> Any:
    """The class with a head for language."""
    import transformers

    name = FAMILIES[family][0]
    return getattr(transformers, f"{name}LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM")


def made(family: str, of: Any = None, dtype: str = "float32") -> Any:
    """A model of a family, or of a class made from it."""
    import torch
    import transformers

    name, fields = FAMILIES[family]
    torch.manual_seed(0)
    model = (of or cls(family))(getattr(transformers, f"{name}Config")(**fields))
    return model.to(getattr(torch, dtype)).eval()
