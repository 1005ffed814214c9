"""The layers of decoders, for each ``model_type``: the places of their norms, and the names of their modules.

A row holds what configurations leave open because the code of the family determines it. Paths are those of modules
below the layer; the layers of a family without a row cannot be expressed by ``Block`` (``UNSAID``), or are not
described yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

#: The path of the module that computes each part of ``Block``.
Paths = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class LayerLayout:
    """The layers of a family, as far as its configurations do not describe them.

    paths     modules by what they compute: ``attention_norm``, ``attention_norm_after``, ``mlp_norm``,
              ``mlp_norm_after``; ``attention``, the module whose calls of attention are the layer's; ``attention.q``,
              …, ``attention.o``, or ``attention.in`` for q, k and v in one; ``attention.q_norm``; ``mlp.up``,
              ``mlp.gate``, ``mlp.down``, or ``mlp.in`` for gate and up in one, the gate first
    norm      the kind of norm; ``eps``: the field of its ε, or the number in the code
    order     as in ``Block``
    parallel  whether the feed-forward layer reads the same tokens as attention, or the field that says so
    shared    whether both parts read one norm, that of attention, if they are parallel
    acts      the field of the activation; ``fixed``: its name if the code determines it
    gated     whether the feed-forward layer has a gate
    one_plus  whether gains of norms are stored as their distance from 1
    unless    fields that would change the sums with the tokens unless they are null, false, 0 or 1, and how
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


def _linear(attention: str, o: str = "o_proj", packed: str = "", each: str = "q_proj k_proj v_proj") -> dict[str, str]:
    """Return the paths of an attention's projections: ``q_proj``, ``k_proj``, ``v_proj``, or one for all three."""
    names = {"in": packed} if packed else dict(zip("qkv", each.split(), strict=True))
    below = {f"attention.{part}": f"{attention}.{name}" for part, name in {**names, "o": o}.items()}
    return {"attention": attention, **below}


def _norms(attention: str, mlp: str = "") -> dict[str, str]:
    return {"attention_norm": attention} | ({"mlp_norm": mlp} if mlp else {})


def _mlp(up: str, down: str) -> dict[str, str]:
    return {"mlp.up": up, "mlp.down": down}


def _layered(*paths: Paths, **more: Any) -> LayerLayout:
    """Return a layout with layer norms and, by default, a feed-forward layer without a gate."""
    every = {part: path for group in paths for part, path in group.items()}
    return LayerLayout(paths=every, norm="layer", **{"eps": "layer_norm_eps", "gated": False, **more})


_GATED = {"mlp.gate": "mlp.gate_proj", **_mlp("mlp.up_proj", "mlp.down_proj")}
_PACKED = {"mlp.in": "mlp.gate_up_proj", "mlp.down": "mlp.down_proj"}
_FOUR = _mlp("mlp.dense_h_to_4h", "mlp.dense_4h_to_h")
_OWN = _linear("self_attn")
_BOTH = _norms("input_layernorm", "post_attention_layernorm")
_NORMED = {"attention.q_norm": "self_attn.q_norm", "attention.k_norm": "self_attn.k_norm"}
_SANDWICH = {
    "attention_norm": "input_layernorm", "attention_norm_after": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm", "mlp_norm_after": "post_feedforward_layernorm",
}  # fmt: skip
_LLAMA = LayerLayout(paths={**_BOTH, **_OWN, **_GATED})
_GEMMA2 = LayerLayout(paths={**_SANDWICH, **_OWN, **_GATED}, order="sandwich", acts="hidden_activation", one_plus=True)
_COHERE = _layered(_norms("input_layernorm"), _OWN, _GATED, parallel=True, shared=True, gated=True)
_INNER = LayerLayout(
    paths={**_norms("post_attention_layernorm", "post_feedforward_layernorm"), **_OWN, **_GATED, **_NORMED},
    order="inner",
)
_CROSSED = {"add_cross_attention": "the layer reads another sequence"}
_BERT = _layered(
    _norms("attention.output.LayerNorm", "output.LayerNorm"), _mlp("intermediate.dense", "output.dense"),
    {**_linear("attention.self", each="query key value"), "attention.o": "attention.output.dense"},
    order="post", unless=_CROSSED,
)  # fmt: skip
_GPT: dict[str, Any] = {"eps": "layer_norm_epsilon", "acts": "activation_function"}
_TOGETHER = "query_key_value"
_LIKE_LLAMA = "llama mistral ministral qwen2 smollm3 ernie4_5 seed_oss helium cwm"

LAYOUTS: dict[str, LayerLayout] = {
    **dict.fromkeys(_LIKE_LLAMA.split(), _LLAMA),
    "qwen3": replace(_LLAMA, paths={**_LLAMA.paths, **_NORMED}),
    "arcee": LayerLayout(paths={**_BOTH, **_OWN, **_mlp("mlp.up_proj", "mlp.down_proj")}, gated=False),
    "granite": replace(_LLAMA, unless={"residual_multiplier": "what is added to the tokens is scaled"}),
    "gemma": replace(_LLAMA, one_plus=True),
    "gemma2": _GEMMA2,
    "gemma3_text": replace(_GEMMA2, paths={**_GEMMA2.paths, **_NORMED}),
    "glm": LayerLayout(paths={**_BOTH, **_OWN, **_PACKED}),
    "glm4": LayerLayout(
        paths={
            "attention_norm": "input_layernorm", "attention_norm_after": "post_self_attn_layernorm",
            "mlp_norm": "post_attention_layernorm", "mlp_norm_after": "post_mlp_layernorm", **_OWN, **_PACKED,
        },
        order="sandwich",
    ),
    "phi3": LayerLayout(paths={**_BOTH, **_linear("self_attn", packed="qkv_proj"), **_PACKED}),
    "olmo": replace(_LLAMA, norm="layer", eps=1e-5),
    **dict.fromkeys(("olmo2", "exaone4"), _INNER),
    **dict.fromkeys(("cohere", "cohere2"), _COHERE),
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "electra"), _BERT),
    "starcoder2": _layered(_BOTH, _OWN, _mlp("mlp.c_fc", "mlp.c_proj"), eps="norm_epsilon"),
    "stablelm": _layered(_BOTH, _OWN, _GATED, parallel="use_parallel_residual", shared=True, gated=True),
    "phi": _layered(
        _norms("input_layernorm"), _linear("self_attn", "dense"), _mlp("mlp.fc1", "mlp.fc2"), parallel=True, shared=True
    ),
    "gpt_neox": _layered(_BOTH, _linear("attention", "dense", _TOGETHER), _FOUR, parallel="use_parallel_residual"),
    "gptj": _layered(
        _norms("ln_1"), _linear("attn", "out_proj"), _mlp("mlp.fc_in", "mlp.fc_out"), parallel=True, shared=True, **_GPT
    ),
    "gpt2": _layered(
        _norms("ln_1", "ln_2"), _linear("attn", "c_proj", "c_attn"), _mlp("mlp.c_fc", "mlp.c_proj"), unless=_CROSSED,
        **_GPT,
    ),
    "gpt_neo": _layered(
        _norms("ln_1", "ln_2"), _linear("attn.attention", "out_proj"), _mlp("mlp.c_fc", "mlp.c_proj"), **_GPT
    ),
    "falcon": _layered(
        _BOTH, _linear("self_attention", "dense", _TOGETHER), _FOUR,
        eps="layer_norm_epsilon", parallel="parallel_attn", shared=True, acts="activation",
    ),
    "opt": _layered(
        _norms("self_attn_layer_norm", "final_layer_norm"), _linear("self_attn", "out_proj"), _mlp("fc1", "fc2"),
        eps=1e-5, acts="activation_function",
    ),
    "bloom": _layered(
        _BOTH, _linear("self_attention", "dense", _TOGETHER), _FOUR, eps="layer_norm_epsilon", fixed="gelu_new",
        unless={"apply_residual_connection_post_layernorm": "the residual starts after the norm"},
    ),
    "mpt": _layered(
        _norms("norm_1", "norm_2"), _linear("attn", "out_proj", "Wqkv"), _mlp("ffn.up_proj", "ffn.down_proj"),
        eps="layer_norm_epsilon", fixed="gelu",
    ),
    "distilbert": _layered(
        _norms("sa_layer_norm", "output_layer_norm"), _mlp("ffn.lin1", "ffn.lin2"),
        _linear("attention", "out_lin", each="q_lin k_lin v_lin"),
        eps=1e-12, order="post", acts="activation",
    ),
}  # fmt: skip

_WITH_EXPERTS = "mixtral qwen2_moe qwen3_moe gpt_oss deepseek_v3 olmoe flex_olmo ernie4_5_moe dots1 granitemoe glm4_moe"
_EXPERTS = "a router sends each token to experts of its own, for which Block has no part"
#: Families whose layers cannot be expressed as a ``Block``, with the reason.
UNSAID: dict[str, str] = {
    **dict.fromkeys(_WITH_EXPERTS.split(), _EXPERTS),
    **dict.fromkeys(("nemotron", "persimmon"), "its activation is the square of ReLU, which Block does not have"),
}
