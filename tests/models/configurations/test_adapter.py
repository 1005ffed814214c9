"""Configurations as they stand in config.json, without Transformers: what is read of them, and what is refused."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from symattn import Alibi, Attention, InputError, LinearScaling, NTKScaling, Rotary, YarnScaling, configurations
from tests.refusals import refuses

#: Fields as published files of these models have them, smaller.
LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2,
    "num_hidden_layers": 4, "rope_theta": 500000.0, "max_position_embeddings": 131072,
    "rope_scaling": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
}  # fmt: skip
MISTRAL = {
    "model_type": "mistral", "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2,
    "num_hidden_layers": 4, "rope_theta": 10000.0, "sliding_window": 16,
}  # fmt: skip
GEMMA2 = {
    "model_type": "gemma2", "hidden_size": 64, "head_dim": 16, "num_attention_heads": 8, "num_key_value_heads": 4,
    "num_hidden_layers": 4, "rope_theta": 10000.0, "sliding_window": 16, "attn_logit_softcapping": 50.0,
    "query_pre_attn_scalar": 144,
}  # fmt: skip
QWEN3 = {
    "model_type": "qwen3", "hidden_size": 64, "head_dim": 16, "num_attention_heads": 8, "num_key_value_heads": 2,
    "num_hidden_layers": 4, "rope_theta": 1000000, "rope_scaling": None, "rms_norm_eps": 1e-06,
    "sliding_window": 16, "use_sliding_window": True, "max_window_layers": 2,
}  # fmt: skip
GEMMA3 = {
    "model_type": "gemma3_text", "hidden_size": 64, "head_dim": 16, "num_attention_heads": 8, "num_key_value_heads": 4,
    "num_hidden_layers": 6, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "sliding_window": 16,
    "sliding_window_pattern": 3, "query_pre_attn_scalar": 16, "rms_norm_eps": 1e-06, "attn_logit_softcapping": None,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
}  # fmt: skip
GPT2 = {
    "model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 3, "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
}  # fmt: skip


def test_llama() -> None:
    scaling = YarnScaling(factor=8, length=8192, slow=1, fast=4, ramp="turns", weight=0)
    spec = Attention(heads=8, kv_heads=2, causal=True, position=Rotary(base=500000, scaling=scaling))
    assert configurations.attention(LLAMA) == configurations.attention(LLAMA, 3) == spec
    refuses(configurations.attention, LLAMA, 4, says="there are 4, counted from 0")


def test_mistral_has_its_window_in_every_layer() -> None:
    assert configurations.attention(MISTRAL, 1) == Attention(
        heads=8, kv_heads=2, causal=True, window=16, position=Rotary()
    )
    assert configurations.attention({**MISTRAL, "sliding_window": None}).window is None


def test_gemma2_alternates() -> None:
    told = {"heads": 8, "kv_heads": 4, "causal": True, "softcap": 50, "position": Rotary(), "scale": Fraction(1, 12)}
    assert configurations.attention(GEMMA2, 0) == Attention(window=16, **told)
    assert configurations.attention(GEMMA2, 1) == Attention(**told)
    types = ["full_attention", "sliding_attention"] * 2
    assert configurations.attention({**GEMMA2, "layer_types": types}, 0) == Attention(**told)
    assert configurations.attention({**GEMMA2, "query_pre_attn_scalar": 16}).scale is None
    assert configurations.attention({**GEMMA2, "query_pre_attn_scalar": 224}).scale == pytest.approx(
        224**-0.5, rel=2**-52
    )


def test_gemma3_has_other_rotations_where_it_slides() -> None:
    told = {"heads": 8, "kv_heads": 4, "causal": True, "qk_norm": "rms", "eps": 1e-06}
    far = Rotary(base=1000000, scaling=LinearScaling(factor=8))
    for i in range(6):
        slides = Attention(window=16, position=Rotary(), **told)
        assert configurations.attention(GEMMA3, i) == (Attention(position=far, **told) if i in (2, 5) else slides)


def test_positions_in_some_layers_only() -> None:
    told = {**MISTRAL, "model_type": "cohere2", "head_dim": 8, "sliding_window_pattern": 2}
    assert [configurations.attention(told, i).position for i in range(2)] == [Rotary(layout="interleaved"), None]
    told = {**MISTRAL, "model_type": "smollm3", "use_sliding_window": False, "no_rope_layers": [1, 1, 0, 1]}
    assert [configurations.attention(told, i).position for i in range(4)] == [Rotary(), Rotary(), None, Rotary()]
    refuses(
        configurations.attention,
        {**told, "no_rope_layers": [1]},
        1,
        says="must be a list of 0 and 1, one for each layer",
    )


def test_heads_of_some_families_have_columns_of_their_own() -> None:
    told = {name: value for name, value in GEMMA3.items() if name != "head_dim"}
    assert configurations.attention(told).scale == Fraction(1, 4), "256 columns, of which the scale of 16 is none"
    told = {**MISTRAL, "model_type": "glm", "partial_rotary_factor": 0.5}
    assert configurations.attention(told).position == Rotary(width=64, layout="interleaved")


@pytest.mark.parametrize("family", ["mistral", "cohere", "granite"])
def test_a_share_that_a_family_does_not_look_at_is_refused(family: str) -> None:
    told = {**MISTRAL, "model_type": family, "attention_multiplier": 1.0, "use_qk_norm": False}
    told["rope_parameters"] = {"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 0.5}
    refuses(configurations.attention, told, kind=configurations.CannotTell, says="partial_rotary_factor is 0.5")


@pytest.mark.transformers
def test_what_is_left_out_is_as_the_class_has_it() -> None:
    """The bases of layers that slide, the share that is rotated, and lists that are null."""
    told = {name: value for name, value in GEMMA3.items() if name != "rope_local_base_freq"}
    assert [configurations.attention(told, i).position for i in (0, 2)] == [
        configurations.attention(GEMMA3, i).position for i in (0, 2)
    ]
    assert configurations.attention({**MISTRAL, "model_type": "stablelm", "qk_layernorm": False}).position == Rotary(
        width=2
    )
    told = {
        **MISTRAL,
        "model_type": "smollm3",
        "use_sliding_window": False,
        "no_rope_layers": None,
        "layer_types": None,
    }
    assert [configurations.attention(told, i).position is None for i in range(4)] == [False, False, False, True]
    assert (
        configurations.attention({**MISTRAL, "model_type": "starcoder2", "rope_parameters": None}).position == Rotary()
    )


def test_gpt_neo_alternates() -> None:
    told = {"model_type": "gpt_neo", "hidden_size": 16, "num_heads": 4, "num_layers": 2, "window_size": 5,
            "attention_layers": ["global", "local"]}  # fmt: skip
    assert [configurations.attention(told, i).window for i in range(2)] == [None, 5]
    assert configurations.attention(told).scale == 1
    refuses(
        configurations.attention,
        {**told, "attention_layers": ["far", "local"]},
        kind=configurations.CannotTell,
        says="known: global, local",
    )


@pytest.mark.parametrize(
    ("family", "field", "value"),
    [("olmo", "clip_qkv", 8.0), ("stablelm", "qk_layernorm", True), ("cohere", "use_qk_norm", True)],
)
def test_what_has_no_field_is_refused(family: str, field: str, value: Any) -> None:
    told = {**MISTRAL, "model_type": family, "partial_rotary_factor": 0.5}
    assert configurations.attention({**told, field: None}).heads == 8
    with pytest.raises(configurations.CannotTell, match=f"{field} is set"):
        configurations.attention({**told, field: value})


def test_qwen3_slides_from_a_layer_on() -> None:
    windows = [configurations.attention(QWEN3, i).window for i in range(4)]
    assert windows == [None, None, 16, 16]
    assert {configurations.attention({**QWEN3, "use_sliding_window": False}, i).window for i in range(4)} == {None}
    assert (configurations.attention(QWEN3).qk_norm, configurations.attention(QWEN3).eps) == ("rms", 1e-06)


def test_gpt2_scales_by_layer_where_it_is_told() -> None:
    assert configurations.attention(GPT2) == Attention(heads=4, causal=True)
    assert configurations.attention({**GPT2, "scale_attn_weights": False}).scale == 1
    told = {**GPT2, "scale_attn_by_inverse_layer_idx": True}
    assert [configurations.attention(told, i).scale for i in range(3)] == [
        Fraction(1, 4),
        Fraction(1, 8),
        Fraction(1, 12),
    ]


@pytest.mark.parametrize(
    ("told", "scaling"),
    [
        ({"type": "linear", "factor": 4.0}, LinearScaling(factor=4)),
        ({"rope_type": "dynamic", "factor": 2.0}, NTKScaling(factor=2, length=131072)),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096},
            YarnScaling(factor=4, length=4096),
        ),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "truncate": False,
             "mscale": 1.0, "mscale_all_dim": 0.5},
            YarnScaling(factor=4, length=4096, whole=False, weight=1, shared=0.5),
        ),
    ],
)  # fmt: skip
def test_scalings(told: dict[str, Any], scaling: Any) -> None:
    assert configurations.attention({**LLAMA, "rope_scaling": told}).position == Rotary(base=500000, scaling=scaling)
    new = {k: v for k, v in LLAMA.items() if not k.startswith("rope")}
    new["rope_parameters"] = {"rope_theta": 500000.0, **told}
    assert configurations.attention(new).position == Rotary(base=500000, scaling=scaling)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "unheard_of"}, "no family is called 'unheard_of'"),
        ({"model_type": 7}, "has no model_type"),
        ({"num_attention_heads": "8"}, "num_attention_heads must be a whole number from 1"),
        ({"num_attention_heads": True}, "num_attention_heads must be"),
        ({"num_attention_heads": 10**400}, "a number of more than 20 digits"),
        ({"num_attention_heads": float("nan")}, "num_attention_heads must be"),
        ({"num_key_value_heads": 3}, "a divisor of 8"),
        ({"num_key_value_heads": [2]}, "num_key_value_heads must be"),
        ({"rope_theta": float("inf")}, "rope_theta must be"),
        ({"rope_theta": -1}, "rope_theta must be a finite number above 0"),
        ({"rope_theta": 10**400}, "rope_theta must be .*, got a number of more than 20 digits"),
        ({"use_bidirectional_attention": True}, "cannot tell: use_bidirectional_attention is set"),
        ({"is_causal": False}, "cannot tell: is_causal is false"),
        ({"rope_scaling": "linear"}, "rope_scaling must be an object of fields, got 'linear'"),
        ({"rope_scaling": {"rope_type": "spiral"}}, "cannot tell: rope_type is 'spiral'"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope_parameters.factor must be .*, got None"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2, "attention_factor": 1.5}}, "attention_factor is 1.5"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be"),
    ],
)
def test_what_means_nothing_is_refused_in_one_line(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as raised:
        configurations.attention({**LLAMA, **change})
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 300


BERT = {"model_type": "bert", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
MPT = {"model_type": "mpt", "d_model": 64, "n_heads": 4, "n_layers": 2, "attn_config": {"alibi": True}}


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_an_encoder_may_be_a_decoder(family: str) -> None:
    told = {**BERT, "model_type": family}
    assert (
        configurations.attention(told) == configurations.attention({**told, "is_decoder": False}) == Attention(heads=4)
    )
    assert configurations.attention({**told, "is_decoder": True}) == Attention(heads=4, causal=True)
    refuses(configurations.attention, {**told, "is_decoder": 1}, says="is_decoder must be true or false, got 1")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({**BERT, "position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({**MPT, "attn_config": {"alibi": True, "alibi_bias_max": 16}}, "alibi_bias_max other than 8"),
        ({**MPT, "attn_config": {"alibi": True, "attn_type": "multiquery_attention"}}, "attn_type is 'multiquery"),
        ({**GEMMA2, "use_bidirectional_attention": True}, "use_bidirectional_attention"),
    ],
)
def test_a_field_of_which_the_row_knows_nothing_is_not_passed_over(told: dict[str, Any], words: str) -> None:
    with pytest.raises(configurations.CannotTell, match=words):
        configurations.attention(told)


def test_such_fields_with_their_usual_values_change_nothing() -> None:
    usual = {"alibi": True, "alibi_bias_max": 8, "attn_type": "multihead_attention"}
    assert configurations.attention(MPT) == Attention(heads=4, causal=True, position=Alibi())
    assert configurations.attention({**MPT, "attn_config": usual}) == configurations.attention(MPT)
    assert configurations.attention({**BERT, "position_embedding_type": "absolute"}) == configurations.attention(BERT)
    assert configurations.attention({**GEMMA2, "use_bidirectional_attention": None}) == configurations.attention(GEMMA2)


def test_heads_that_do_not_divide_the_columns() -> None:
    told = {**GPT2, "n_embd": 2, "n_head": 4, "scale_attn_by_inverse_layer_idx": True}
    refuses(
        configurations.attention, told, says="num_attention_heads must be a divisor of 2, the number of columns, got 4"
    )


def test_layers_and_kinds_that_there_are_not() -> None:
    refuses(configurations.attention, LLAMA, 4, says="layer 4 was requested; there are 4")
    refuses(configurations.attention, LLAMA, True, says="layer must be an integer, got True")
    with pytest.raises(InputError, match="kind is 'both'"):
        configurations.attention(LLAMA, kind="both")
    with pytest.raises(InputError, match="no attention of the kind 'cross'"):
        configurations.attention(LLAMA, kind="cross")
    refuses(
        configurations.attention,
        {**GEMMA2, "layer_types": ["mamba"] * 4},
        kind=configurations.CannotTell,
        says="'mamba'",
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON at line 1"),
        ("[1, 2]", "no object of fields"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' * 40 + "1" + "}" * 40, "nested more than 32 levels"),
        ('{"a": ' + "9" * 5000 + "}", "a number too long"),
        ("{}", "no model_type"),
        ("\xff", "UTF-8"),
    ],
)
def test_broken_files(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=words):
        configurations.attention(path)


def test_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    assert (
        configurations.attention(tmp_path)
        == configurations.attention(str(tmp_path / "config.json"))
        == configurations.attention(LLAMA)
    )
    refuses(configurations.attention, tmp_path / "none.json", says="cannot be read: No such file")
    with open(tmp_path / "large.json", "wb") as file:
        file.truncate(17 * 2**20)
    refuses(configurations.attention, tmp_path / "large.json", says="larger than 16 MiB")


def test_the_text_of_a_model_that_sees() -> None:
    assert configurations.attention({"model_type": "unheard_of", "text_config": LLAMA}) == configurations.attention(
        LLAMA
    )
