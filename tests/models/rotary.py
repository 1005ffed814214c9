"""Layers that turn queries and keys: Llama and others. Their tables of cosines and sines are made in float32."""

from dataclasses import replace
from math import log
from typing import Any

import numpy as np

from symattn.attention.positions.position_fields import Rotary
from symattn.attention.positions.rotary_fields import LinearScaling, YarnScaling
from symattn.attention.presets import like
from tests.models.cases import TABLES, Case, Wrong, by_turns, projections, split_by_head
from tests.models.seen import Seen, built, look, numbers

HEADS = {"heads": 4, "kv_heads": 2}
SOFTMAX = (*TABLES, "weights")  # what many layers take in float32
TINY = {"hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 8, "max_position_embeddings": 1 << 17}
GROUPED = {**TINY, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4}


def _grouped(kind: str, times: float = 1, **config: Any) -> tuple[Seen, dict[str, np.ndarray]]:
    """A layer with two queries to a head of keys, and weights of queries and keys ``times`` as large as others."""
    model = built(kind, **{**GROUPED, **config})
    for letter in "qk":
        model.get_submodule(f"layers.0.self_attn.{letter}_proj").weight.data *= times
    seen = look(model, "layers.0.self_attn", "layers.0.self_attn.o_proj")
    return seen, projections(seen, q="q_proj", k="k_proj", v="v_proj", o="o_proj")


def _heads_by_turns(inputs: dict[str, np.ndarray]) -> Wrong:
    return Wrong("head h reads h modulo 2", {}, by_turns(inputs, 4, 2))


def _interleaved(position: Any) -> Wrong:
    return Wrong("pairs (2l, 2l + 1)", {"position": replace(position, layout="interleaved")})


def llama() -> Case:
    rope = {
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }  # fmt: skip
    seen, inputs = _grouped("LlamaModel", rope_parameters=rope, head_dim=8)
    wrong = (
        _heads_by_turns(inputs),
        Wrong("without scaling", {"position": Rotary(base=500000)}),
        Wrong("all frequencies by 1/8", {"position": Rotary(base=500000, scaling=LinearScaling(factor=8))}),
        _interleaved(Rotary(base=500000)),
    )
    return Case("Llama 3.1", seen, HEADS, inputs, wrong, "llama", SOFTMAX)


def mistral() -> Case:
    seen, inputs = _grouped("MistralModel", sliding_window=3, rope_parameters={"rope_theta": 10000.0})
    wrong = (
        _heads_by_turns(inputs),
        Wrong("a window that does not count the query", {"window": 4}),
        Wrong("no window", {"window": None}),
        _interleaved(Rotary()),
    )
    return Case("Mistral", seen, {**HEADS, "window": 3}, inputs, wrong, "mistral", SOFTMAX)


def gemma2() -> Case:
    seen, inputs = _grouped(
        "Gemma2Model", 8, sliding_window=3, query_pre_attn_scalar=256, attn_logit_softcapping=50.0,
        layer_types=["sliding_attention"], rope_parameters={"rope_theta": 10000.0},
    )  # fmt: skip
    wrong = (
        _heads_by_turns(inputs),
        Wrong("no softcap", {"softcap": None}),
        Wrong("scale 1/√d_k", {"scale": None}),
        Wrong("a window that does not count the query", {"window": 4}),
        _interleaved(Rotary()),
    )
    return Case("Gemma 2", seen, {**HEADS, "window": 3}, inputs, wrong, "gemma2", SOFTMAX)


def qwen3() -> Case:
    seen, inputs = _grouped("Qwen3Model", rope_parameters={"rope_theta": 1000000.0})
    inputs |= {f"g_{letter}": numbers(seen.layer.get_submodule(f"{letter}_norm").weight) for letter in "qk"}
    wrong = (
        _heads_by_turns(inputs),
        Wrong("queries and keys are not normalised", {"qk_norm": None, "eps": 0}, {"g_q": None, "g_k": None}),
        Wrong("LayerNorm", {"qk_norm": "layer"}),
        Wrong("without gains", {}, {"g_q": None, "g_k": None}),
        Wrong("another base", {"position": Rotary()}),
    )
    return Case("Qwen3", seen, HEADS, inputs, wrong, "qwen3", ("q_normed", "k_normed", *SOFTMAX))


def gpt_oss() -> Case:
    seen, inputs = _grouped(
        "GptOssModel", sliding_window=3, layer_types=["sliding_attention"], num_local_experts=2, num_experts_per_tok=1,
        head_dim=8, rope_parameters={
            "rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
            "truncate": False, "original_max_position_embeddings": 4096,
        },
    )  # fmt: skip
    inputs["sink"] = numbers(seen.layer.sinks)
    whole = Rotary(base=150000, scaling=YarnScaling(factor=32, length=4096))
    wrong = (
        _heads_by_turns(inputs),
        Wrong("no sinks", {"sink": None}, {"sink": None}),
        Wrong("no window", {"window": None}),
        Wrong("a ramp between whole numbers", {"position": whole}),
        Wrong("without scaling", {"position": Rotary(base=150000)}),
    )
    return Case("gpt-oss", seen, {**HEADS, "window": 3}, inputs, wrong, "gpt-oss", TABLES)


def deepseek_v3() -> Case:
    rope = {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
        "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096,
    }  # fmt: skip
    h, d_n, d_v, rank = 3, 3, 5, 6
    model = built(
        "DeepseekV3Model", **TINY, num_attention_heads=h, num_key_value_heads=h, q_lora_rank=7, kv_lora_rank=rank,
        qk_nope_head_dim=d_n, qk_rope_head_dim=4, v_head_dim=d_v, first_k_dense_replace=1, n_routed_experts=2,
        n_group=1, topk_group=1, num_experts_per_tok=1, rope_parameters=rope,
    )  # fmt: skip
    seen = look(model, "layers.0.self_attn", "layers.0.self_attn.o_proj")
    down, up = seen.weight("kv_a_proj_with_mqa"), seen.weight("kv_b_proj").reshape(rank, h, d_n + d_v)
    inputs = {
        **projections(seen, dq="q_a_proj", uq="q_b_proj", o="o_proj"),
        "w_dkv": down[:, :rank], "w_kr": down[:, rank:],
        "w_uk": up[..., :d_n].reshape(rank, -1), "w_uv": up[..., d_n:].reshape(rank, -1),
        "g_cq": numbers(seen.layer.q_a_layernorm.weight), "g_ckv": numbers(seen.layer.kv_a_layernorm.weight),
    }  # fmt: skip
    scale = (1 + 0.1 * log(40)) ** 2 / (d_n + 4) ** 0.5
    return _latent(seen, inputs, {"heads": h, "scale": scale})


def _latent(seen: Seen, inputs: dict[str, np.ndarray], told: dict[str, Any]) -> Case:
    spec = like("deepseek-v3", **told)
    assert isinstance(spec.position, Rotary)
    assert spec.latent is not None
    wrong = (
        Wrong("pairs (l, l + r/2)", {"position": replace(spec.position, layout="half")}),
        Wrong("scale 1/√d_k", {"scale": None}),
        Wrong("without scaling", {"position": Rotary(layout="interleaved")}),
        Wrong("latents are not normalised", {"latent": replace(spec.latent, norm=None, eps=0)},
              {"g_cq": None, "g_ckv": None}),
        Wrong("without the gain of the keys' latent", {}, {"g_ckv": None}),
    )  # fmt: skip
    note = (
        "The scale is (1 + log(40)/10)²/√d_k. The layer makes keys and values; the specification with matrices "
        "absorbed has the same exact value."
    )
    same = ({"latent": replace(spec.latent, absorbed=True)},)
    return Case(
        "DeepSeek-V3", seen, told, inputs, wrong, "deepseek-v3", ("c_q", "c_kv", *SOFTMAX), same=same, note=note
    )


def gptj() -> Case:
    model = built("GPTJModel", n_embd=18, n_head=3, n_layer=1, rotary_dim=4, n_positions=16, n_inner=8)
    seen = look(model, "h.0.attn", "h.0.attn.out_proj")
    inputs = projections(seen, q="q_proj", k="k_proj", v="v_proj", o="out_proj")
    told = {"heads": 3, "causal": True, "position": Rotary(layout="interleaved", width=4)}
    wrong = (
        Wrong("pairs (l, l + r/2)", {"position": Rotary(width=4)}),
        Wrong("all columns rotated", {"position": Rotary(layout="interleaved")}),
        Wrong("another base", {"position": Rotary(layout="interleaved", width=4, base=500000)}),
    )
    note = "Scores are taken in float32 too."
    return Case("GPT-J", seen, told, inputs, wrong, "", (*SOFTMAX, "scores", "scaled", "masked"), note=note)


def gpt_neox() -> Case:
    model = built(
        "GPTNeoXModel", **TINY | {"hidden_size": 24}, num_attention_heads=3,
        rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    )  # fmt: skip
    seen = look(model, "layers.0.attention", "layers.0.attention.dense")
    inputs = split_by_head(seen, 3, "query_key_value", "dense")
    told = {"heads": 3, "causal": True, "position": Rotary(width=4)}
    wrong = (
        Wrong("pairs (2l, 2l + 1)", {"position": Rotary(layout="interleaved", width=4)}),
        Wrong("all columns rotated", {"position": Rotary()}),
        Wrong("another base", {"position": Rotary(width=4, base=500000)}),
    )
    return Case("GPT-NeoX", seen, told, inputs, wrong, "", SOFTMAX)


def falcon() -> Case:
    model = built(
        "FalconModel", hidden_size=12, num_attention_heads=3, num_hidden_layers=1, multi_query=True, alibi=False,
        new_decoder_architecture=False, bias=False, parallel_attn=True, rope_parameters={"rope_theta": 10000.0},
    )  # fmt: skip
    seen = look(model, "h.0.self_attention", "h.0.self_attention.dense")
    inputs = {"x": seen.x, "w_in": seen.weight("query_key_value"), "w_o": seen.weight("dense")}
    told = {"heads": 3, "kv_heads": 1, "causal": True, "packed": True, "position": Rotary()}
    wrong = (
        Wrong("pairs (2l, 2l + 1)", {"position": Rotary(layout="interleaved")}),
        Wrong("not causal", {"causal": False}),
        Wrong(
            "keys and values exchanged", {}, {"w_in": inputs["w_in"][:, [*range(12), *range(16, 20), *range(12, 16)]]}
        ),
    )
    return Case("Falcon, 7B", seen, told, inputs, wrong, "", TABLES)
