"""Tiny decoders of several families with random weights, made without any file."""

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
_T5 = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "pad_token_id": 0,
       "decoder_start_token_id": 0, "initializer_factor": 3.0, "relative_attention_num_buckets": 8,
       "relative_attention_max_distance": 16}  # fmt: skip
_BART = {"vocab_size": 64, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
         "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64,
         "init_std": 0.3, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
         "decoder_start_token_id": 2}  # fmt: skip
ENCODED: dict[str, tuple[str, dict[str, Any]]] = {
    "t5": ("T5", _T5),
    "bart": ("Bart", _BART),
    "whisper": ("Whisper", {**_BART, "num_mel_bins": 8, "max_source_positions": 12, "max_target_positions": 64}),
}
WINDOWED = ("mistral", "gemma2")
ROTATED = ("llama", "mistral", "gemma2", "qwen3")


def cls(family: str) -> Any:
    """The class with a head for language."""
    import transformers

    name = {**FAMILIES, **ENCODED}[family][0]
    if family in ENCODED:
        return getattr(transformers, f"{name}ForConditionalGeneration")
    return getattr(transformers, f"{name}LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM")


def made(family: str, of: Any = None, dtype: str = "float32") -> Any:
    """A model of a family, or of a class made from it."""
    import torch
    import transformers

    name, fields = {**FAMILIES, **ENCODED}[family]
    torch.manual_seed(0)
    model = (of or cls(family))(getattr(transformers, f"{name}Config")(**fields))
    return model.to(getattr(torch, dtype)).eval()


def generation(*given: Any, **told: Any) -> Any:
    """``symattn.generation``, imported where a test runs and not where it is collected."""
    from symattn import generation

    return generation(*given, **told)
