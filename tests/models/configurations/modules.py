"""Small random models of Transformers: their attention is held against what their configurations say."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from symattn import Attention, Rotary, configurations
from symattn.models.configurations.stored_weights import inputs
from tests.models.seen import Seen, built, look, numbers, run, tokens

#: Steps that layers take in float32 whatever their weights are. The bound holds for those that do not, too.
SINGLE = (
    "cos", "sin", "weights", "q_rotated", "k_rotated", "q_normed", "k_normed", "c_q", "c_kv", "scores", "positioned",
    "scaled", "tau", "masked",
)  # fmt: skip


@dataclass(frozen=True)
class Module:
    """A model, the path of one of its attentions, and changes of its configuration that must be told apart.

    made    the fields that the model is made with
    path    of the attention (empty: ``self_attn`` of the layer); ``output``: of what gives its result, below it
    model   the class of the model, where it is not that of the family
    given   inputs that are no parameters: the name in ``Attention``, that of the argument, and where its rows are
    keep    False where a token is padding; without it none is
    """

    family: str
    made: Mapping[str, Any]
    path: str = ""
    output: str = "o_proj"
    model: str = ""
    changes: tuple[Mapping[str, Any], ...] = ()
    layer: int = 0
    kind: str = "self"
    times: float = 1
    given: Mapping[str, str] = field(default_factory=dict)
    keep: tuple[bool, ...] = ()

    def seen(self) -> Seen:
        """The layer with what it was given and what it gave, in float64."""
        model, path = self.built(), self.path or f"layers.{self.layer}.self_attn"
        layer = model.get_submodule(path)
        for name, parameter in layer.named_parameters():
            if name.startswith(("q_proj", "k_proj", "query_key_value")):
                parameter.data *= self.times
        call = {"decoder_input_ids": tokens(6) + 3} if self.kind != "self" else {}
        if "mrope_section" in self.made.get("rope_parameters", {}):
            call = {"position_ids": torch_rows()}
        if self.family == "whisper":  # a decoder alone is given what its encoder would
            call = {"encoder_outputs": (memory(),)}
        return look(model, path, f"{path}.{self.output}", keep=np.array(self.keep) if self.keep else None, **call)

    def built(self) -> Any:
        """The model."""
        from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

        name = self.model or MODEL_MAPPING_NAMES[self.family]
        return built(name if isinstance(name, str) else name[0], **self.made)

    def told(self, seen: Seen) -> dict[str, Any]:
        """config.json, with every default written."""
        config = getattr(seen.layer, "config", None) or self.built().config
        found: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
        return found

    def spec(self, seen: Seen, **changes: Any) -> Attention:
        """The attention that the configuration, changed in some fields, promises."""
        return configurations.attention({**self.told(seen), **changes}, self.layer, self.kind)

    def arrays(self, seen: Seen, spec: Attention) -> dict[str, np.ndarray]:
        """Tokens, weights, and what else the layer was given."""
        parameters = _parameters(seen.layer)
        found = {"x": seen.x, **inputs(parameters, spec, configurations.FAMILIES[self.family])}
        if configurations.FAMILIES[self.family].gates_beside_queries and spec.output_gate:
            by_head = (seen.x @ parameters["q_proj.weight"].T).reshape(len(seen.x), spec.heads, 2, -1)
            found["gate"] = by_head[:, :, 1].swapaxes(0, 1)
        if self.kind == "cross":
            found["y"] = numbers(seen.given["key_value_states"])[0]
        if isinstance(spec.position, Rotary) and spec.position.sections:
            found["positions"] = ROWS
        return found | {name: numbers(seen.given[argument]) for name, argument in self.given.items()}

    def agrees(self, seen: Seen, spec: Attention) -> bool:
        """Whether every number of the layer's output is within what rounding allows of the specification's."""
        arrays = self.arrays(seen, spec)
        steps = {step.name for step in spec.pipeline(arrays)}
        bounded = run(spec, arrays, [name for name in SINGLE if name in steps])
        assert np.all(np.isfinite(bounded.bound))
        return bool(np.all(bounded.within(seen.output)))


def _parameters(module: Any) -> dict[str, np.ndarray]:
    """The parameters of a module of torch, by name, as arrays of NumPy."""
    return {name: np.asarray(p.detach().double().cpu().numpy()) for name, p in module.named_parameters()}


#: Positions by time, height and width: text, an image of 2 × 2 patches, text.
ROWS = np.array([[0, 1, 1, 1, 1, 3], [0, 1, 1, 2, 2, 3], [0, 1, 2, 1, 2, 3]])


def torch_rows() -> Any:
    """The rows of positions, with an axis of batches."""
    import torch

    return torch.tensor(ROWS)[:, None]


def memory() -> Any:
    """Tokens of an encoder."""
    import torch

    return torch.randn(1, 5, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def of_sections(*pairs: int) -> dict[str, Any]:
    """Rotations of so many pairs by each row of the positions."""
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "mrope_section": [*pairs]}}


TINY = {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 8, "max_position_embeddings": 1 << 17}
GROUPED = {**TINY, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4}
MHA = {**TINY, "num_attention_heads": 4}
THETA = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}
BASE = {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}}
PLAIN = {**GROUPED, **THETA}
WIDER = {**TINY, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
STRETCHED = {"rope_type": "dynamic", "alpha": 4.0, "factor": 2.0, "rope_theta": 100.0}
SLIDES = {**PLAIN, "sliding_window": 3}
TYPED = {**SLIDES, "layer_types": ["sliding_attention", "full_attention"]}
FULL, SLIDING = ({"layer_types": [f"{kind}_attention"] * 2} for kind in ("full", "sliding"))
LOCAL = {"num_local_experts": 2, "num_experts_per_tok": 1}
EIGHT, FOUR = {"num_attention_heads": 8}, {"decoder_attention_heads": 4}
EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8}
HALF = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}}
WHOLE = {"rope_parameters": {**HALF["rope_parameters"], "partial_rotary_factor": 1.0}}
HYBRID = {**GROUPED, **HALF, "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2,
          "linear_num_value_heads": 2, "linear_key_head_dim": 4, "linear_value_head_dim": 4}  # fmt: skip
NESTED = {"rope_parameters": {
    "sliding_attention": THETA["rope_parameters"], "full_attention": {"rope_type": "default", "rope_theta": 90.0},
}}  # fmt: skip
NEO = {
    "hidden_size": 16, "num_layers": 2, "num_heads": 4, "intermediate_size": 8, "window_size": 3,
    "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 32,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 50000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "original_max_position_embeddings": 4096,
    "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
}  # fmt: skip
BOTH = {"mscale": 1.0, "mscale_all_dim": 0.7}
LONG = {
    "rope_type": "longrope", "rope_theta": 500.0, "short_factor": [1.0, 1.5], "long_factor": [2.0, 4.0],
    "original_max_position_embeddings": 64, "factor": 4.0,
}  # fmt: skip
LLAMA4 = {
    **PLAIN, "no_rope_layers": [1, 0], "attention_chunk_size": 5, "num_local_experts": 2, "intermediate_size_mlp": 8,
    "floor_scale": 2, "attn_scale": 0.5, "pad_token_id": None,
}  # fmt: skip
MLA = {
    **MHA, "num_key_value_heads": 4, "q_lora_rank": 6, "kv_lora_rank": 5, "qk_nope_head_dim": 3,
    "qk_rope_head_dim": 4, "v_head_dim": 5, "first_k_dense_replace": 2, "n_routed_experts": 2, "n_group": 1,
    "topk_group": 1, "num_experts_per_tok": 1, "rope_parameters": {**YARN, **BOTH},
}  # fmt: skip
FALCON = {
    "hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2, "alibi": False, "bias": True, **THETA,
}  # fmt: skip
T5 = {
    "d_model": 12, "d_kv": 4, "num_heads": 3, "d_ff": 8, "num_layers": 1, "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 9, "decoder_start_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
BERT = {**TINY, "num_attention_heads": 4}
BART = {
    "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "max_position_embeddings": 32,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip

WHISPER = {
    "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "max_target_positions": 32,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip

MODULES: dict[str, Module] = {
    "llama": Module("llama", PLAIN, changes=( BASE, {"rope_parameters": {"rope_theta": 5000.0}},
        {"model_type": "gpt2"})),
    "llama, biases": Module("llama", {**PLAIN, "attention_bias": True}),
    "llama 3.1": Module("llama", {**GROUPED, "head_dim": 8, "rope_parameters": LLAMA3},
        changes=({"rope_parameters": {**LLAMA3, "factor": 4.0}}, {"rope_parameters": {**LLAMA3,
        "rope_type": "default"}}, {"rope_parameters": {**LLAMA3, "original_max_position_embeddings": 8}})),
    "llama, linear": Module("llama", {**GROUPED, **BASE}, layer=1, changes=(THETA,)),
    "llama, dynamic": Module("llama", {**GROUPED, "max_position_embeddings": 4,
        "rope_parameters": {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 500.0}}, changes=(BASE,
        {"max_position_embeddings": 5})),
    "llama, yarn": Module("llama", {**GROUPED, "head_dim": 8, "rope_parameters": YARN},
        changes=({"rope_parameters": {**YARN, "truncate": True}}, {"rope_parameters": {**YARN, "factor": 4.0}},
        {"rope_parameters": {**YARN, **BOTH}})),
    "llama, yarn of two weights": Module("llama", {**GROUPED, "head_dim": 8, "rope_parameters": {**YARN, **BOTH}},
        changes=({"rope_parameters": YARN},)),
    "mistral": Module("mistral", SLIDES, changes=({"sliding_window": 4}, {"sliding_window": None})),
    "mixtral": Module("mixtral", {**SLIDES, "num_local_experts": 2}, changes=({"sliding_window": 2},)),
    "gemma": Module("gemma", PLAIN, changes=(BASE,)),
    "gemma2, sliding": Module("gemma2", {**SLIDES, "query_pre_attn_scalar": 9}, times=8,
        changes=({"attn_logit_softcapping": None}, {"attn_logit_softcapping": 49.0}, {"query_pre_attn_scalar": 4},
        FULL, {"sliding_window": 4})),
    "gemma2, full": Module("gemma2", {**SLIDES, "query_pre_attn_scalar": 5}, times=8, layer=1, changes=(SLIDING,
        {"attn_logit_softcapping": None})),
    "arcee": Module("arcee", PLAIN, changes=(BASE,)),
    "seed_oss": Module("seed_oss", PLAIN, changes=(BASE,)),
    "jais2": Module("jais2", PLAIN, changes=(BASE,)),
    "helium": Module("helium", PLAIN, changes=(BASE, {"model_type": "llama"})),
    "ernie4_5_moe": Module("ernie4_5_moe", {**PLAIN, "moe_num_experts": 2, "moe_k": 1, "moe_intermediate_size": 8},
        changes=(BASE, {"model_type": "llama"})),
    "cwm": Module("cwm", TYPED, changes=(FULL, {"sliding_window": 2})),
    "apertus": Module("apertus", PLAIN, changes=(BASE, {"rms_norm_eps": 0.01}, {"model_type": "llama"})),
    "dots1": Module("dots1", {**TYPED, "n_routed_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8,
        "first_k_dense_replace": 2}, changes=(FULL, {"rms_norm_eps": 0.01})),
    "granitemoe": Module("granitemoe", {**PLAIN, **LOCAL, "attention_multiplier": 0.7},
        changes=({"attention_multiplier": 0.5},)),
    "glm4_moe": Module("glm4_moe", {**GROUPED, **HALF, "use_qk_norm": True, "n_routed_experts": 2,
        "num_experts_per_tok": 1, "moe_intermediate_size": 8, "first_k_dense_replace": 2}, changes=(WHOLE,
        {"use_qk_norm": False}, {"rms_norm_eps": 0.01})),
    "exaone4, sliding": Module("exaone4", TYPED, changes=(FULL, {"rms_norm_eps": 0.01})),
    "exaone4, full": Module("exaone4", TYPED, layer=1, changes=({"sliding_window": None}, SLIDING)),
    "qwen2": Module("qwen2", {**PLAIN, "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
        layer=1, changes=(FULL, {"sliding_window": 2})),
    "hunyuan_v1_dense": Module("hunyuan_v1_dense", PLAIN, changes=(BASE, {"rms_norm_eps": 0.01})),
    "hunyuan_v1_dense, stretched": Module("hunyuan_v1_dense", {**GROUPED, "head_dim": 8, "rope_parameters": STRETCHED},
        changes=({"rope_parameters": {**STRETCHED, "alpha": 3.0}}, {"rope_parameters": {**STRETCHED, "alpha": 0}})),
    "llama4_text, rotated": Module("llama4_text", LLAMA4, changes=(BASE, {"rms_norm_eps": 0.5}, {"use_qk_norm": False},
        {"attention_chunk_size": 4})),
    "llama4_text, by place": Module("llama4_text", LLAMA4, layer=1, changes=({"floor_scale": 3}, {"attn_scale": 0.9},
        {"attn_temperature_tuning": False}, {"no_rope_layers": [0, 1]})),
    "qwen3": Module("qwen3", PLAIN, changes=(BASE, {"rms_norm_eps": 0.01}, {"model_type": "qwen2"})),
    "qwen2_vl": Module("qwen2_vl_text", {**WIDER, **of_sections(1, 1, 2)}, changes=(of_sections(1, 2, 1),)),
    "qwen2_5_vl": Module("qwen2_5_vl_text", {**WIDER, **of_sections(2, 1, 1)}, changes=(of_sections(1, 1, 2),)),
    "qwen3_vl": Module("qwen3_vl_text", {**WIDER, "head_dim": 8, **of_sections(2, 1, 1)},
        changes=({"rms_norm_eps": 0.01},)),
    "qwen3_next": Module("qwen3_next", {**HYBRID, **EXPERTS, "shared_expert_intermediate_size": 8}, layer=1,
        changes=(WHOLE, {"rms_norm_eps": 0.01}, {"model_type": "glm4_moe", "use_qk_norm": True})),
    "qwen3_5": Module("qwen3_5_text", HYBRID, layer=1, changes=(WHOLE, {"rms_norm_eps": 0.01},
        {"model_type": "glm4_moe", "use_qk_norm": True})),
    "qwen3_5_moe": Module("qwen3_5_moe_text", {**HYBRID, **EXPERTS, "shared_expert_intermediate_size": 8}, layer=1,
        changes=(WHOLE,)),
    "qwen2_moe": Module("qwen2_moe", {**PLAIN, **EXPERTS, "use_sliding_window": True, "sliding_window": 3,
        "max_window_layers": 1}, changes=(FULL, {"sliding_window": 2})),
    "qwen3_moe": Module("qwen3_moe", {**PLAIN, **EXPERTS, "use_sliding_window": True, "sliding_window": 3},
        changes=({"use_sliding_window": False}, {"rms_norm_eps": 0.01})),
    "gemma3, sliding": Module("gemma3_text", {**GROUPED, **NESTED, "sliding_window": 3, "query_pre_attn_scalar": 9},
        changes=({"query_pre_attn_scalar": 4}, FULL, {"sliding_window": 4},
        {"rope_parameters": {**NESTED["rope_parameters"], "sliding_attention": BASE["rope_parameters"]}})),
    "gemma3, full": Module("gemma3_text", {**GROUPED, **NESTED, "sliding_window": 3,
        "layer_types": ["sliding_attention", "full_attention"]}, layer=1, changes=(SLIDING, {"sliding_window": None,
        "query_pre_attn_scalar": 4})),
    "ministral": Module("ministral", TYPED, changes=(FULL, {"sliding_window": 2})),
    "ministral3": Module("ministral3", {**SLIDES, "rope_parameters": {**YARN, **BOTH, "llama_4_scaling_beta": 0.5,
        "original_max_position_embeddings": 2}}, changes=({"sliding_window": None}, {"rope_parameters": {**YARN, **BOTH,
        "llama_4_scaling_beta": 0.9, "original_max_position_embeddings": 2}})),
    "starcoder2": Module("starcoder2", SLIDES, changes=({"sliding_window": None},)),
    "granite": Module("granite", {**PLAIN, "attention_multiplier": 0.3}, changes=({"attention_multiplier": 0.5},)),
    "olmo": Module("olmo", PLAIN, changes=(BASE,)),
    "olmo2": Module("olmo2", PLAIN, changes=(BASE, {"rms_norm_eps": 0.01}, {"model_type": "llama"})),
    "olmo3": Module("olmo3", TYPED, changes=(FULL, {"rms_norm_eps": 0.01})),
    "olmoe": Module("olmoe", {**PLAIN, "num_experts": 2, "num_experts_per_tok": 1}, changes=(BASE,
        {"rms_norm_eps": 0.01})),
    "flex_olmo": Module("flex_olmo", {**PLAIN, "num_experts": 2, "num_experts_per_tok": 1, "pad_token_id": 0},
        changes=(BASE, {"rms_norm_eps": 0.01})),
    "minimax_m2": Module("minimax_m2", {**GROUPED, **HALF, **LOCAL}, changes=(WHOLE, {"rms_norm_eps": 0.01})),
    "stablelm": Module("stablelm", {**GROUPED, **HALF, "head_dim": None}, changes=(WHOLE,)),
    "phi": Module("phi", {**GROUPED, **HALF}, changes=(WHOLE,), output="dense"),
    "phi, normalised": Module("phi", {**GROUPED, **HALF, "qk_layernorm": True}, changes=({"layer_norm_eps": 0.1},
        {"qk_layernorm": False}), output="dense"),
    "persimmon": Module("persimmon", {**MHA, **HALF}, changes=({"layer_norm_eps": 0.1}, WHOLE), output="dense"),
    "gptj": Module("gptj", {"n_embd": 16, "n_head": 2, "n_layer": 1, "rotary_dim": 4, "n_positions": 32}, "h.0.attn",
        "out_proj", changes=({"rotary_dim": 8}, {"n_head": 4})),
    "nemotron": Module("nemotron", {**GROUPED, **HALF}, changes=(WHOLE,)),
    "cohere": Module("cohere", PLAIN, changes=(BASE,)),
    "cohere2, sliding": Module("cohere2", SLIDES, changes=(BASE, {"sliding_window": 4}, FULL)),
    "cohere2, full": Module("cohere2", TYPED, layer=1, changes=(SLIDING,)),
    "glm": Module("glm", {**GROUPED, **HALF, "pad_token_id": 0}, changes=(WHOLE,)),
    "glm4": Module("glm4", {**GROUPED, **HALF, "pad_token_id": 0}, changes=(WHOLE,)),
    "ernie4_5": Module("ernie4_5", {**PLAIN, "use_bias": True}, changes=(BASE,)),
    "smollm3": Module("smollm3", {**PLAIN, "pad_token_id": 0, "no_rope_layers": [1, 0]}, changes=(BASE,
        {"no_rope_layers": [0, 1]})),
    "smollm3, no positions": Module("smollm3", {**PLAIN, "pad_token_id": 0, "no_rope_layers": [1, 0],
        "use_sliding_window": True, "sliding_window": 3}, layer=1, changes=({"no_rope_layers": [1, 1]}, FULL)),
    "biogpt": Module("biogpt", {**MHA, "max_position_embeddings": 32}, changes=({"num_attention_heads": 2},),
        output="out_proj"),
    "gpt_neo, global": Module("gpt_neo", NEO, "h.0.attn.attention", "out_proj", changes=({"attention_layers": ["local",
        "global"]}, {"num_heads": 2})),
    "gpt_neo, local": Module("gpt_neo", NEO, "h.1.attn.attention", "out_proj", layer=1,
        changes=({"attention_layers": ["global", "global"]}, {"window_size": 4})),
    "phi3": Module("phi3", {**GROUPED, "rope_parameters": {"rope_theta": 500.0, "partial_rotary_factor": 0.5},
        "sliding_window": None, "pad_token_id": 0}, changes=({"rope_parameters": {"rope_theta": 500.0,
        "partial_rotary_factor": 1.0}}, {"sliding_window": 3})),
    "llama, long": Module("llama", {**GROUPED, "rope_parameters": LONG}, changes=( {"rope_parameters": {**LONG,
        "short_factor": [1.0, 1.0]}}, {"rope_parameters": {**LONG, "factor": 2.0}})),
    "gpt_oss, sliding": Module("gpt_oss", {**GROUPED, "head_dim": 8, "sliding_window": 3, **LOCAL,
        "rope_parameters": YARN}, changes=({"sliding_window": 4}, {"rope_parameters": {**YARN, "truncate": True}})),
    "gpt_oss, full": Module("gpt_oss", {**GROUPED, "sliding_window": 3, **LOCAL, **THETA}, layer=1, changes=(SLIDING,
        BASE)),
    "gpt_neox": Module("gpt_neox", {**MHA, "hidden_size": 32, "rope_parameters": {"rope_theta": 500.0,
        "partial_rotary_factor": 0.5}}, "layers.0.attention", "dense",
        changes=({"rope_parameters": {"rope_theta": 500.0}, "rotary_pct": 1.0},)),
    "deepseek_v3": Module("deepseek_v3", MLA, changes=({"rope_interleave": False}, {"rope_parameters": {**YARN, **BOTH,
        "mscale_all_dim": 0.8}})),
    "deepseek_v3, queries plain": Module("deepseek_v3", {**MLA, "q_lora_rank": None},
        changes=({"rope_parameters": {**YARN, **BOTH, "factor": 4.0}},)),
    "falcon, one head of keys": Module("falcon", FALCON, "h.0.self_attention", "dense", changes=(BASE,)),
    "falcon, groups": Module("falcon", {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2},
        "h.0.self_attention", "dense", changes=({"num_kv_heads": 4}, {"new_decoder_architecture": False})),
    "falcon, a head of keys each": Module("falcon", {**FALCON, "multi_query": False}, "h.0.self_attention", "dense",
        changes=({"multi_query": True},)),
    "gpt2": Module("gpt2", {"n_embd": 12, "n_head": 3, "n_layer": 2, "n_positions": 16}, "h.1.attn", "c_proj", layer=1,
        changes=( {"n_head": 4}, {"scale_attn_weights": False}, {"scale_attn_by_inverse_layer_idx": True})),
    "gpt2, scaled by layer": Module("gpt2", {"n_embd": 12, "n_head": 3, "n_layer": 2, "n_positions": 16,
        "scale_attn_by_inverse_layer_idx": True}, "h.1.attn", "c_proj", layer=1,
        changes=({"scale_attn_by_inverse_layer_idx": False},)),
    "bloom": Module("bloom", {"hidden_size": 12, "n_head": 6, "n_layer": 1}, "h.0.self_attention", "dense",
        changes=({"n_head": 3},)),
    "mpt": Module("mpt", {"d_model": 12, "n_heads": 6, "n_layers": 1, "max_seq_len": 16}, "blocks.0.attn", "out_proj",
        changes=({"n_heads": 3}, {"attn_config": {"alibi": False}})),
    "opt": Module("opt", {**TINY, "num_attention_heads": 4, "ffn_dim": 8, "word_embed_proj_dim": 16},
        "decoder.layers.0.self_attn", "out_proj", changes=({"num_attention_heads": 2},)),
    "bert": Module("bert", BERT, "encoder.layer.0.attention", "output.dense", changes=({"num_attention_heads": 2},
        {"is_decoder": True})),
    "bert, decoder": Module("bert", {**BERT, "is_decoder": True}, "encoder.layer.0.attention", "output.dense",
        changes=({"is_decoder": False},)),
    "roberta": Module("roberta", {**BERT, "pad_token_id": 31}, "encoder.layer.1.attention", "output.dense", layer=1,
        changes=(EIGHT,)),
    "xlm-roberta": Module("xlm-roberta", {**BERT, "pad_token_id": 31}, "encoder.layer.0.attention", "output.dense",
        changes=(EIGHT,)),
    "camembert": Module("camembert", {**BERT, "pad_token_id": 31}, "encoder.layer.0.attention", "output.dense",
        changes=(EIGHT,)),
    "electra": Module("electra", {**BERT, "embedding_size": 16}, "encoder.layer.0.attention", "output.dense",
        changes=(EIGHT,)),
    "albert": Module("albert", {**BERT, "embedding_size": 8},
        "encoder.albert_layer_groups.0.albert_layers.0.attention", "dense", changes=(EIGHT,)),
    "distilbert": Module("distilbert", {"dim": 16, "n_layers": 1, "n_heads": 4, "hidden_dim": 8,
        "max_position_embeddings": 32}, "transformer.layer.0.attention", "out_lin", changes=({"n_heads": 8},)),
    "modernbert": Module("modernbert", {**MHA, **NESTED, "local_attention": 4, "layer_types": ["full_attention",
        "sliding_attention"], "pad_token_id": 0}, "layers.1.attn", "Wo", layer=1, changes=({"local_attention": 6},
        FULL, BASE)),
    "deberta-v2": Module("deberta-v2", {**BERT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"],
        "position_buckets": 8, "max_relative_positions": 16}, "encoder.layer.0.attention", "output.dense",
        given={"p": "rel_embeddings"}, changes=({"pos_att_type": ["c2p"]}, {"max_relative_positions": 8},
        {"position_buckets": -1})),
    "deberta-v2, one term": Module("deberta-v2", {**BERT, "relative_attention": True, "pos_att_type": ["p2c"],
        "max_relative_positions": 8}, "encoder.layer.0.attention", "output.dense", given={"p": "rel_embeddings"},
        changes=({"pos_att_type": ["c2p"]}, {"relative_attention": False})),
    "whisper, decoder": Module("whisper", WHISPER, "model.decoder.layers.0.self_attn", "out_proj", kind="decoder",
        changes=({"decoder_attention_heads": 2},), model="WhisperForCausalLM"),
    "whisper, cross": Module("whisper", WHISPER, "model.decoder.layers.0.encoder_attn", "out_proj", kind="cross",
        changes=({"decoder_attention_heads": 2},), model="WhisperForCausalLM"),
    "t5, encoder": Module("t5", T5, "encoder.block.0.layer.0.SelfAttention", "o", kind="encoder",
        changes=({"relative_attention_max_distance": 6}, {"num_heads": 4})),
    "t5, decoder": Module("t5", T5, "decoder.block.0.layer.0.SelfAttention", "o", kind="decoder",
        changes=({"relative_attention_max_distance": 60},)),
    "t5, cross": Module("t5", T5, "decoder.block.0.layer.1.EncDecAttention", "o", kind="cross",
        changes=({"num_heads": 4}, {"model_type": "bart", "decoder_attention_heads": 3})),
    "bart, encoder": Module("bart", BART, "encoder.layers.0.self_attn", "out_proj", kind="encoder",
        changes=({"encoder_attention_heads": 2},)),
    "bart, decoder": Module("bart", BART, "decoder.layers.0.self_attn", "out_proj", kind="decoder", changes=(FOUR,)),
    "bart, cross": Module("bart", BART, "decoder.layers.0.encoder_attn", "out_proj", kind="cross", changes=(FOUR,)),
    "mt5": Module("mt5", T5, "decoder.block.0.layer.0.SelfAttention", "o", kind="decoder",
        changes=({"relative_attention_max_distance": 60},)),
    **{
        family: Module(family, BART, "decoder.layers.0.encoder_attn", "out_proj", kind="cross",
            changes=({"decoder_attention_heads": 4},))
        for family in ("mbart", "pegasus", "marian", "m2m_100")
    },
}  # fmt: skip
