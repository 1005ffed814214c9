"""The layers of decoders, for each ``model_type``: where their norms stand, and what their modules are called.

A row holds what configurations leave unsaid, because it stands in the code of the family. Paths are those of modules
below the layer; a family that is in no row has layers for which ``Block`` has no words (``UNSAID``), or that nobody has
written down yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

#: By a part of ``Block``, the path of the module that computes it.
Paths = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What is known of the layers of a family beside its configurations.

    paths     modules by what they compute: ``attention_norm``, ``attention_norm_after``, ``mlp_norm``,
              ``mlp_norm_after``; ``attention``, the module whose calls of attention are the layer's; ``attention.q``,
              …, ``attention.o``, or ``attention.in`` for q, k and v in one; ``attention.q_norm``; ``mlp.up``,
              ``mlp.gate``, ``mlp.down``, or ``mlp.in`` for gate and up in one, the gate first
    norm      the norm's kind, and ``eps`` the field of its ε, or the number that stands in the code
    order     as ``Block`` has it
    parallel  whether the feed-forward layer reads the tokens that attention reads, or the field that says so
    shared    whether one norm, that of attention, is read by both parts where they are parallel
    acts      the field of the activation; ``fixed``: its name where it stands in the code and no field tells it
    gated     whether the feed-forward layer has a gate
    one_plus  whether gains of norms are stored as their distance from 1
    unless    fields without which the sums with the tokens can be told, or null, false, 0 or 1: what they would change
    """

    paths: Paths
    norm: Literal["layer", "rms"] = "rms"
    eps: str | float = "rms_norm_eps"
    order: Literal["pre", "post", "inner", "sandwich"] = "pre"
    parallel: bool | str = False
    shared: bool = False
    acts: str = "hidden_act"
    fixed: str = ""
    gated: bool = True
    one_plus: bool = False
    unless: Mapping[str, str] = field(default_factory=dict)


def _linear(attention: str, o: str = "o_proj", packed: str = "", **more: str) -> dict[str, str]:
    """The paths of an attention's projections: ``q_proj``, ``k_proj``, ``v_proj``, or one of them all."""
    names = {"in": packed} if packed else {"q": "q_proj", "k": "k_proj", "v": "v_proj"}
    below = {f"attention.{part}": f"{attention}.{name}" for part, name in {**names, "o": o, **more}.items()}
    return {"attention": attention, **below}


def _norms(attention: str, mlp: str = "") -> dict[str, str]:
    return {"attention_norm": attention} | ({"mlp_norm": mlp} if mlp else {})


_GATED = {"mlp.gate": "mlp.gate_proj", "mlp.up": "mlp.up_proj", "mlp.down": "mlp.down_proj"}
_PACKED = {"mlp.in": "mlp.gate_up_proj", "mlp.down": "mlp.down_proj"}
_FOUR = {"mlp.up": "mlp.dense_h_to_4h", "mlp.down": "mlp.dense_4h_to_h"}
_OWN = _linear("self_attn")
_BOTH = _norms("input_layernorm", "post_attention_layernorm")
_NORMED = {"attention.q_norm": "self_attn.q_norm", "attention.k_norm": "self_attn.k_norm"}
_SANDWICH = {
    "attention_norm": "input_layernorm", "attention_norm_after": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm", "mlp_norm_after": "post_feedforward_layernorm",
}  # fmt: skip
_LLAMA = Layout(paths={**_BOTH, **_OWN, **_GATED})
_GEMMA = replace(_LLAMA, one_plus=True)
_GEMMA2 = Layout(
    paths={**_SANDWICH, **_OWN, **_GATED}, order="sandwich", acts="hidden_activation", one_plus=True
)  # fmt: skip
_COHERE = Layout(
    paths={**_norms("input_layernorm"), **_OWN, **_GATED}, norm="layer", eps="layer_norm_eps", parallel=True,
    shared=True,
)  # fmt: skip

_BERT = Layout(
    paths={
        **_norms("attention.output.LayerNorm", "output.LayerNorm"),
        "attention": "attention.self", "attention.q": "attention.self.query", "attention.k": "attention.self.key",
        "attention.v": "attention.self.value", "attention.o": "attention.output.dense",
        "mlp.up": "intermediate.dense", "mlp.down": "output.dense",
    },
    norm="layer", eps="layer_norm_eps", order="post", gated=False,
    unless={"add_cross_attention": "the layer reads another sequence"},
)  # fmt: skip
_INNER = Layout(
    paths={
        **_norms("post_attention_layernorm", "post_feedforward_layernorm"), **_OWN, **_GATED, **_NORMED,
    },
    order="inner",
)  # fmt: skip

LAYOUTS: dict[str, Layout] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "ministral": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": replace(_LLAMA, paths={**_LLAMA.paths, **_NORMED}),
    "smollm3": _LLAMA,
    "ernie4_5": _LLAMA,
    "arcee": Layout(paths={**_BOTH, **_OWN, "mlp.up": "mlp.up_proj", "mlp.down": "mlp.down_proj"}, gated=False),
    "granite": replace(_LLAMA, unless={"residual_multiplier": "what is added to the tokens is scaled"}),
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3_text": replace(_GEMMA2, paths={**_GEMMA2.paths, **_NORMED}),
    "glm": Layout(paths={**_BOTH, **_OWN, **_PACKED}),
    "glm4": Layout(
        paths={
            "attention_norm": "input_layernorm", "attention_norm_after": "post_self_attn_layernorm",
            "mlp_norm": "post_attention_layernorm", "mlp_norm_after": "post_mlp_layernorm", **_OWN, **_PACKED,
        },
        order="sandwich",
    ),
    "phi3": Layout(paths={**_BOTH, **_linear("self_attn", packed="qkv_proj"), **_PACKED}),
    "starcoder2": Layout(
        paths={**_BOTH, **_OWN, "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj"},
        norm="layer", eps="norm_epsilon", gated=False,
    ),
    "stablelm": Layout(
        paths={**_BOTH, **_OWN, **_GATED}, norm="layer", eps="layer_norm_eps", parallel="use_parallel_residual",
        shared=True,
    ),
    "phi": Layout(
        paths={
            **_norms("input_layernorm"), **_linear("self_attn", "dense"), "mlp.up": "mlp.fc1", "mlp.down": "mlp.fc2",
        },
        norm="layer", eps="layer_norm_eps", parallel=True, shared=True, gated=False,
    ),
    "cohere": _COHERE,
    "cohere2": _COHERE,
    "gpt_neox": Layout(
        paths={**_BOTH, **_linear("attention", "dense", "query_key_value"), **_FOUR},
        norm="layer", eps="layer_norm_eps", parallel="use_parallel_residual", gated=False,
    ),
    "gptj": Layout(
        paths={**_norms("ln_1"), **_linear("attn", "out_proj"), "mlp.up": "mlp.fc_in", "mlp.down": "mlp.fc_out"},
        norm="layer", eps="layer_norm_epsilon", parallel=True, shared=True, acts="activation_function", gated=False,
    ),
    "gpt2": Layout(
        paths={
            **_norms("ln_1", "ln_2"), **_linear("attn", "c_proj", "c_attn"),
            "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj",
        },
        norm="layer", eps="layer_norm_epsilon", acts="activation_function", gated=False,
        unless={"add_cross_attention": "the layer reads another sequence"},
    ),
    "falcon": Layout(
        paths={**_BOTH, **_linear("self_attention", "dense", "query_key_value"), **_FOUR},
        norm="layer", eps="layer_norm_epsilon", parallel="parallel_attn", shared=True, acts="activation", gated=False,
    ),
    "opt": Layout(
        paths={
            **_norms("self_attn_layer_norm", "final_layer_norm"), **_linear("self_attn", "out_proj"),
            "mlp.up": "fc1", "mlp.down": "fc2",
        },
        norm="layer", eps=1e-5, acts="activation_function", gated=False,
    ),
    "gpt_neo": Layout(
        paths={
            **_norms("ln_1", "ln_2"), **_linear("attn.attention", "out_proj"),
            "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj",
        },
        norm="layer", eps="layer_norm_epsilon", acts="activation_function", gated=False,
    ),
    "bloom": Layout(
        paths={**_BOTH, **_linear("self_attention", "dense", "query_key_value"), **_FOUR},
        norm="layer", eps="layer_norm_epsilon", fixed="gelu_new", gated=False,
        unless={"apply_residual_connection_post_layernorm": "the residual starts after the norm"},
    ),
    "mpt": Layout(
        paths={
            **_norms("norm_1", "norm_2"), **_linear("attn", "out_proj", "Wqkv"),
            "mlp.up": "ffn.up_proj", "mlp.down": "ffn.down_proj",
        },
        norm="layer", eps="layer_norm_epsilon", fixed="gelu", gated=False,
    ),
    "olmo": replace(_LLAMA, norm="layer", eps=1e-5),
    "olmo2": _INNER,
    "seed_oss": _LLAMA,
    "helium": _LLAMA,
    "cwm": _LLAMA,
    "exaone4": _INNER,
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "electra"), _BERT),
    "distilbert": Layout(
        paths={
            **_norms("sa_layer_norm", "output_layer_norm"), "attention": "attention", "attention.q": "attention.q_lin",
            "attention.k": "attention.k_lin", "attention.v": "attention.v_lin", "attention.o": "attention.out_lin",
            "mlp.up": "ffn.lin1", "mlp.down": "ffn.lin2",
        },
        norm="layer", eps=1e-12, order="post", acts="activation", gated=False,
    ),
}  # fmt: skip

_EXPERTS = "a router sends each token to experts of its own, for which Block has no part"
#: Families whose layers cannot be said as a ``Block``, with the reason.
UNSAID: dict[str, str] = {
    **dict.fromkeys(
        (
            "mixtral",
            "qwen2_moe",
            "qwen3_moe",
            "gpt_oss",
            "deepseek_v3",
            "olmoe",
            "flex_olmo",
            "ernie4_5_moe",
            "dots1",
            "granitemoe",
            "glm4_moe",
        ),
        _EXPERTS,
    ),
    **dict.fromkeys(("nemotron", "persimmon"), "its activation is the square of ReLU, which is none of Block's"),
    **dict.fromkeys(("t5", "mt5"), "its norms and its parts with two sequences are not written down here"),
}
