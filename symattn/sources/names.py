"""Which of the specification's inputs a parameter's name means."""

from __future__ import annotations

from symattn.attention.inputs import NEEDED, OPTIONAL

_SPELLINGS = {
    "q": "q query queries xq query_states query_layer",
    "k": "k key keys xk key_states key_layer",
    "v": "v val vals value values xv value_states value_layer",
    "x": "x inputs input tokens embeddings hidden_states src",
    "y": "y context ctx memory encoder_hidden_states",
    "mask": "mask attn_mask attention_mask",
    "keep": "keep keep_mask key_mask",
    "causal": "causal is_causal",
    "scale": "scale softmax_scale sm_scale scaling",
    "heads": "heads n_heads num_heads nheads n_head nhead num_attention_heads",
    "dropout": "dropout dropout_p p_dropout dropout_rate",
    "kv_heads": "kv_heads n_kv_heads num_kv_heads num_key_value_heads kv_num_heads",
    "window": "window window_size sliding_window",
    "softcap": "softcap soft_cap logit_softcap logits_soft_cap attn_logit_softcapping",
    "eps": "eps epsilon",
    "bias": "bias attn_bias attention_bias position_bias",
    "sink": "sink sinks s_aux sink_logits",
    "slopes": "slopes alibi_slopes",
    "b_rel": "b_rel rel_bias relative_bias relative_attention_bias bias_table",
    "positions": "positions position_ids",
    "doc": "doc document_ids segment_ids",
    "drop": "drop dropout_mask",
    "g_q": "g_q q_norm_weight q_gain",
    "g_k": "g_k k_norm_weight k_gain",
    "w_in": "w_in in_proj_weight w_qkv qkv_weight c_attn_weight",
    "b_in": "b_in in_proj_bias b_qkv qkv_bias c_attn_bias",
}
for _one, _word in (("q", "query"), ("k", "key"), ("v", "value"), ("o", "out")):
    _SPELLINGS[f"w_{_one}"] = f"w_{_one} weight_{_one} {_one}_weight {_one}_proj_weight w_{_word} {_word}_weight"
    _SPELLINGS[f"b_{_one}"] = f"b_{_one} bias_{_one} {_one}_bias {_one}_proj_bias b_{_word} {_word}_bias"
_SPELLINGS["w_o"] += " out_proj_weight w_output"
_SPELLINGS["b_o"] += " out_proj_bias b_output"

MASKS = ("mask", "keep")
SETTINGS = ("causal", "scale", "heads", "dropout", "kv_heads", "window", "softcap", "eps")

# True means "keep" to some authors and "ignore" to others: only the user can tell.
AMBIGUOUS = ("keypaddingmask", "paddingmask")


def plain(name: str) -> str:
    """The name without case and underscores: ``W_Q``, ``w_q`` and ``Wq`` are one."""
    return name.replace("_", "").lower()


_MEANINGS = {plain(name): name for name in (*NEEDED, *OPTIONAL)} | {
    plain(word): meaning for meaning, words in _SPELLINGS.items() for word in words.split()
}


def meaning(name: str) -> str | None:
    """The input or setting that a parameter called ``name`` stands for; None where the name says nothing."""
    return _MEANINGS.get(plain(name))
