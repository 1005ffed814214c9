"""Tiny models of families with random weights: two layers, a few hundred numbers to a matrix."""

import inspect
import re
from collections.abc import Callable
from typing import Any

from symattn import reports

_COMMON = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_WIDER = {**_COMMON, "intermediate_size": 48}
_GROUPED, _WIDE = {**_COMMON, "num_key_value_heads": 2}, {**_WIDER, "num_key_value_heads": 2}
_TYPES = {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]}
_PADDED = {"pad_token_id": 0}
_HALF = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
#: The fields of each family's configuration.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": _GROUPED,
    "mistral": {**_GROUPED, "sliding_window": 6},
    "gemma2": {
        **_GROUPED, "head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 5.0
    },
    "gpt_oss": {**_GROUPED, "head_dim": 8, "sliding_window": 6, "num_local_experts": 2, "num_experts_per_tok": 1},
    "deepseek_v3": {
        **_COMMON, "num_key_value_heads": 4, "moe_intermediate_size": 16, "q_lora_rank": 8, "kv_lora_rank": 8,
        "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 4, "n_group": 1,
        "topk_group": 1, "num_experts_per_tok": 2,
    },
    "t5": {"d_model": 32, "d_kv": 8, "num_heads": 4, "num_layers": 2, "d_ff": 32},
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4},
    "falcon": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
    "deberta-v2": {**_COMMON, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "whisper": {
        "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "num_mel_bins": 8,
        "max_source_positions": 20, "max_target_positions": 40, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 2, "decoder_start_token_id": 1,
    },
    "qwen3": {**_GROUPED, "head_dim": 8},
    "gemma3_text": {**_GROUPED, **_TYPES, "head_dim": 8, "query_pre_attn_scalar": 8},
    "cohere2": {**_GROUPED, **_TYPES, "head_dim": 8},
    "granite": {**_GROUPED, "attention_multiplier": 0.4},
    "smollm3": {**_GROUPED, **_PADDED, "no_rope_layers": [1, 0]},
    "stablelm": {**_GROUPED, **_HALF},
    "glm": {**_GROUPED, **_HALF, **_PADDED, "head_dim": 8},
    "ernie4_5": {**_GROUPED, "head_dim": 8},
    "gpt_neo": {
        "hidden_size": 32, "num_layers": 2, "num_heads": 4, "intermediate_size": 32, "window_size": 6,
        "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 64,
    },
    "opt": {"hidden_size": 32, "ffn_dim": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "word_embed_proj_dim": 32},
    "biogpt": _COMMON,
    "olmo2": _GROUPED,
    "hunyuan_v1_dense": {**_GROUPED, **_PADDED, "head_dim": 8},
    "olmo3": {**_GROUPED, **_TYPES},
    "olmoe": {**_GROUPED, **_EXPERTS},
    "flex_olmo": {**_GROUPED, **_EXPERTS, **_PADDED},
    "llama4_text": {
        **_GROUPED, "head_dim": 8, "attention_chunk_size": 5, "no_rope_layers": [1, 0], "num_local_experts": 2,
        "intermediate_size_mlp": 32, "floor_scale": 4, "attn_scale": 0.5,
    },
    "modernbert": {**_COMMON, **_PADDED, "local_attention": 6, "layer_types": _TYPES["layer_types"]},
    "electra": {**_COMMON, "embedding_size": 32},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 32},
}  # fmt: skip
#: Further ones, of which only layers are audited.
LAYERED: dict[str, dict[str, Any]] = {
    "gemma": {**_WIDE, "head_dim": 8},
    "ministral": {**_WIDE, "head_dim": 8, "sliding_window": 6},
    "glm4": {**_WIDE, **_HALF, **_PADDED, "head_dim": 8},
    **dict.fromkeys(("qwen2", "starcoder2", "phi", "olmo"), _WIDE),
    "phi3": {**_WIDE, **_PADDED},
    "cohere": {**_WIDE, **_PADDED},
    "gpt_neox": {**_WIDER, "num_attention_heads": 2},
    "gptj": {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4},
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert"), _WIDER),
    "mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4},
    "helium": {**_WIDE, **_PADDED, "head_dim": 8},
    "cwm": {**_WIDE, **_PADDED, **_TYPES, "head_dim": 8, "eos_token_id": 1, "bos_token_id": 2},
    "arcee": {**_WIDE, "hidden_act": "gelu"},
    "seed_oss": {**_WIDE, "head_dim": 8},
    "exaone4": {**_WIDE, **_TYPES},
}  # fmt: skip
ENCODERS = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert")
HALVES = ("t5", "whisper")
_BARE = ("whisper", "deberta-v2", "modernbert", *ENCODERS)
CACHED = tuple(name for name in FAMILIES if name not in (*HALVES, *_BARE))


def built(name: str, **fields: Any) -> Any:
    """A model of the class that the library has for the family, with random weights of a fixed seed."""
    import transformers
    from transformers.models.auto import modeling_auto as auto

    with_head = {**auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, "t5": "T5ForConditionalGeneration"}
    model = getattr(transformers, (auto.MODEL_MAPPING_NAMES if name in _BARE else with_head)[name])
    usual = {**FAMILIES, **LAYERED}[name]
    return model(transformers.CONFIG_MAPPING[name](vocab_size=50, **{**usual, **fields}))


def made(name: str, dtype: Any, implementation: str = "eager", seed: int = 0) -> Any:
    """A model of the family; its queries and keys are made large enough that scores matter."""
    import torch

    torch.manual_seed(seed)
    return drawn(built(name), dtype, implementation)


def drawn(model: Any, dtype: Any, implementation: str, scale: float = 0.0) -> Any:
    """A model whose matrices are drawn; with a ``scale`` its embeddings are as well, and gains and biases are moved.

    Frequencies of rotations then stay in float32, as they do where a model is loaded.
    """
    import torch

    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if "embed" in path or (scale and (".wte" in path or ".wpe" in path)):
                if scale:
                    parameter.copy_(torch.randn_like(parameter) * scale)
            elif parameter.ndim == 2:
                parameter.copy_(torch.randn_like(parameter) * (2.0 / parameter.shape[-1]) ** 0.5)
            elif scale:
                parameter.add_(torch.randn_like(parameter) * 0.3)
            elif path.endswith("sinks"):
                parameter.copy_(torch.randn_like(parameter))
    model.set_attn_implementation(implementation)
    kept = {path: buffer.clone() for path, buffer in model.named_buffers() if scale and "inv_freq" in path}
    model = model.eval().to(dtype)
    for path, buffer in kept.items():
        owner, _, last = path.rpartition(".")
        setattr(model.get_submodule(owner), last, buffer)
    return model


def layered(name: str, dtype: Any, implementation: str = "eager", scale: float = 1.0, **fields: Any) -> Any:
    """A model of the family in which every parameter counts: gains around 1, biases, embeddings of this size."""
    import torch

    torch.manual_seed(0)
    return drawn(built(name, **fields), dtype, implementation, scale)


def path_of(model: Any, layer: int) -> str:
    """Where a decoder layer is."""
    pattern = re.compile(rf"(.*\.)?(layers|layer|h|blocks)\.{layer}")
    return next(path for path, _ in model.named_modules() if pattern.fullmatch(path))


def inputs(name: str, dtype: Any, padding: str = "none", n: int = 18) -> dict[str, Any]:
    """Arguments of a forward pass for two items, one of them padded on a side, or on none."""
    import torch

    ids = torch.randint(3, 50, (2, n), generator=torch.Generator().manual_seed(1))
    if name == "whisper":
        features = torch.randn(2, 8, 40, generator=torch.Generator().manual_seed(2)).to(dtype)
        return {"input_features": features, "decoder_input_ids": ids}
    mask = torch.ones_like(ids)
    if padding == "left":
        mask[0, :5] = 0
    elif padding == "right":
        mask[0, -5:] = 0
    given = {"input_ids": ids, "attention_mask": mask}
    return given | {"decoder_input_ids": ids[:, :7]} if name == "t5" else given


def forward(model: Any, given: dict[str, Any]) -> Callable[[], Any]:
    """One pass."""
    return lambda: model(**given)


def decoding(model: Any, given: dict[str, Any], static: bool = False) -> Callable[[], Any]:
    """A pass that fills a cache, one of three tokens at once, and two of one token."""
    import torch

    def run() -> None:
        ids, mask = given["input_ids"], given["attention_mask"]
        cache, at = None, 0
        if static:
            from transformers import StaticCache

            cache = StaticCache(config=model.config, max_cache_len=32)
        for stop in (ids.shape[1] - 5, ids.shape[1] - 2, ids.shape[1] - 1, ids.shape[1]):
            out = model(
                input_ids=ids[:, at:stop], attention_mask=mask[:, :stop], past_key_values=cache, use_cache=True,
                position_ids=(mask.cumsum(-1) - 1).clamp(min=0)[:, at:stop] if takes_places(model) else None,
            )  # fmt: skip
            cache, at = out.past_key_values, stop

    def quietly() -> None:
        with torch.no_grad():
            run()

    return quietly


def takes_places(model: Any) -> bool:
    """Whether a model is told where its tokens stand."""
    return "position_ids" in inspect.signature(model.forward).parameters


def trained(model: Any, given: dict[str, Any], contract: Any = None) -> reports.AuditReport:
    """One step of training, without the optimiser."""
    import torch

    from symattn import audit

    torch.manual_seed(0)
    model.train()
    with audit(model, gradients=True, contract=contract) as report:
        logits = model(**given).logits.float()
        seen = given["attention_mask"].bool() if "decoder_input_ids" not in given else slice(None)
        logits[seen].log_softmax(-1)[..., 1].sum().backward()
    return report
