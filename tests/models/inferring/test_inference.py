"""Attention is read off the run of a tiny model: equal to the rows that exist, and changes of the code are noticed."""

import json
from typing import Any
from unittest.mock import patch

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from cli.main import main  # noqa: E402
from symattn import InputError, LinearAttention, Rotary, configurations  # noqa: E402

pytestmark = pytest.mark.transformers
_LLAMA, _QWEN = "transformers.models.llama.modeling_llama.", "transformers.models.qwen3.modeling_qwen3."


@pytest.mark.parametrize(
    "model_type",
    [
        "qwen3", "gemma2", "granite", "phi3", "opt", "gpt2", "stablelm", "cohere2", "exaone4", "modernbert",
        "persimmon", "smollm3", "mixtral", "glm4", "bert", "nemotron", "ministral", "gpt_neox",
        "gpt_oss", "cwm", "apertus", "dots1", "hunyuan_v1_dense",
    ],
)  # fmt: skip
def test_a_run_gives_the_attention_of_the_row(model_type: str) -> None:
    model = configurations.tiny(model_type)
    parts = configurations.parts_of(model)
    assert parts
    assert [p.specification for p in parts] == [
        configurations.attention(model.config.get_text_config(decoder=True), layer=p.layer) for p in parts
    ]


def test_numbers_are_expressions_that_hold_in_two_configurations() -> None:
    parts = configurations.infer("gemma2").parts
    assert parts[0].promises == {
        "heads": "num_attention_heads", "kv_heads": "num_key_value_heads", "scale": "1/√query_pre_attn_scalar",
        "softcap": "attn_logit_softcapping", "window": "sliding_window", "base": "rope_parameters.rope_theta",
        "rotated": "d_k",
    }  # fmt: skip
    assert "window" not in parts[1].promises


def test_forms_without_a_field_are_named() -> None:
    found = configurations.infer("nanochat")
    assert {form for part in found.parts for form in part.missing} == {"rotation backwards"}
    assert not any(part.specification for part in found.parts)
    assert found.exit_code == 3


@pytest.mark.parametrize(
    ("model_type", "fields"),
    [
        ("qwen3_next", {"output_gate": True, "qk_norm": "rms", "position": Rotary(width=4)}),
        ("bailing_hybrid", {"output_gate": True, "qk_norm": None}),
        ("olmo2", {"qk_norm": "rms", "qk_norm_over": "heads"}),
        ("gemma3n_text", {"value_norm": "rms", "qk_norm": "rms", "scale": 1, "window": 5}),
    ],
)
def test_gates_and_norms_of_values_are_fields(model_type: str, fields: dict[str, Any]) -> None:
    spec = next(
        part.specification
        for part in configurations.parts_of(configurations.tiny(model_type))
        if part.facts is not None
    )
    assert {name: getattr(spec, name) for name in fields} == fields


def _gated_by_silu(own: Any) -> Any:
    return lambda x, *rest: torch.nn.functional.silu(x) if x.shape[-1] == 64 else own(x, *rest)


def test_a_gate_without_a_field_is_named() -> None:
    with patch("torch.sigmoid", _gated_by_silu(torch.sigmoid)):
        parts = configurations.parts_of(configurations.tiny("qwen3_next"))
    assert [form for part in parts for form in part.missing] == ["output gate: silu of each column"]


@pytest.mark.parametrize(
    ("model_type", "fields", "slope"),
    [
        # Only far positions show it.
        ("ministral3", {"temperature": 0.1, "temperature_rate": 16384, "temperature_start": 0}, "llama_4_scaling_beta"),
        ("llama4_text", {"temperature": 0.1, "temperature_rate": 4, "temperature_start": 1}, "attn_scale"),
    ],
)
def test_temperatures_by_place_are_fields(model_type: str, fields: dict[str, Any], slope: str) -> None:
    found = configurations.infer(model_type)
    assert not found.differs
    tempered = next(part for part in found.parts if "temperature" in part.promises)
    assert {name: getattr(tempered.specification, name) for name in fields} == fields
    assert tempered.promises["temperature"].endswith(slope)


def test_a_factor_of_the_place_that_no_field_gives_is_named() -> None:
    path = "transformers.models.ministral3.modeling_ministral3.get_llama_4_attn_scale"
    own = patch(path).get_original()[0]
    with patch(path, lambda places, *rest: own(places, *rest) ** 2):
        forms = {form for part in configurations.parts_of(configurations.tiny("ministral3")) for form in part.missing}
    assert forms == {"queries: times a factor of the position"}


@pytest.mark.parametrize(
    ("model_type", "recurrence"),
    [
        ("kimi_linear", LinearAttention.named("kda")),
        ("mamba2", LinearAttention(feature="identity", normalised=False, gate="token")),
    ],
)
def test_recurrences_are_explained_by_their_definition(model_type: str, recurrence: LinearAttention) -> None:
    parts = configurations.parts_of(configurations.tiny(model_type))
    linear = [part for part in parts if part.mixers]
    assert [part.specification for part in linear] == [recurrence] * 2
    assert all("after a convolution of 4 tokens, silu" in part.spec for part in linear)
    assert all(part.is_explained for part in parts)


def test_a_recurrence_that_computes_other_than_it_is_given_is_not_explained() -> None:
    path = "transformers.models.mamba2.modeling_mamba2.mamba2_chunk_scan"
    own = patch(path).get_original()[0]
    with patch(path, lambda x, dt, a, *rest, **more: own(x, dt, 1.01 * a, *rest, **more)):
        parts = configurations.parts_of(configurations.tiny("mamba2"))
    assert all(part.unknown[0].startswith("the output of a state space of Mamba-2") for part in parts)
    assert not any(part.specification for part in parts)


def test_parts_without_a_known_call_have_no_specification() -> None:
    parts = configurations.parts_of(configurations.tiny("rwkv"))
    assert {form for part in parts for form in part.missing} == {"no call of attention"}


# -- changes of the code -----------------------------------------------------------------------------------------------
def _scaled_inside(own: Any) -> Any:
    return lambda module, q, k, v, mask, scaling, **more: own(module, q, k, v, mask, scaling * 1.02, **more)


def _scaled(own: Any) -> Any:
    def made(self: Any, *given: Any, **more: Any) -> None:
        own(self, *given, **more)
        self.scaling *= 1.02

    return made


def _unrotated_keys(own: Any) -> Any:
    return lambda q, k, cos, sin, **more: (own(q, k, cos, sin, **more)[0], k)


def _without_last_pairs(own: Any) -> Any:
    def turned(q: Any, k: Any, cos: Any, sin: Any, **more: Any) -> Any:
        return own(q, k, cos.clone().fill_(1.0), sin * 0, **more)

    return turned


CHANGED = {
    "scale": (_LLAMA + "LlamaAttention.__init__", _scaled, "scale"),
    "rotation left out": (_LLAMA + "apply_rotary_pos_emb", _without_last_pairs, "rotated"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_change_of_the_code_differs_from_the_fields(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path, change, field = CHANGED[name]
    own = patch(path).get_original()[0]
    with patch(path, change(own)):
        assert main(["models", "infer", "llama", "-f", "json"]) == 1
    differs = [words for part in json.loads(capsys.readouterr().out)["parts"] for words in part["differs"]]
    assert differs
    assert all(words.startswith(f"{field}: ") for words in differs)


def test_a_call_that_computes_other_than_it_is_given_is_not_explained() -> None:
    own = patch(_LLAMA + "eager_attention_forward").get_original()[0]
    with patch(_LLAMA + "eager_attention_forward", _scaled_inside(own)):
        parts = configurations.parts_of(configurations.tiny("llama"))
    assert all(part.unknown[0].startswith("the output of the call") for part in parts)


def test_keys_that_are_not_rotated_are_noticed() -> None:
    own = patch(_QWEN + "apply_rotary_pos_emb").get_original()[0]
    with patch(_QWEN + "apply_rotary_pos_emb", _unrotated_keys(own)):
        parts = configurations.parts_of(configurations.tiny("qwen3"))
    assert all("a rotation of queries alone" in part.missing for part in parts)


@pytest.mark.parametrize("model_type", ["gpt_neox", "bert", "gpt_oss", "llama4_text"])
def test_fields_that_say_nothing_accuse_no_model(model_type: str) -> None:
    differs = [words for part in configurations.parts_of(configurations.tiny(model_type)) for words in part.differs]
    assert not [words for words in differs if words.startswith(("causal", "scale"))]


@pytest.mark.parametrize("model_type", ["no_such_type", "blt"])
def test_a_type_without_a_tiny_model_is_refused_in_a_line(model_type: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=model_type):
        configurations.infer(model_type)
    assert main(["models", "infer", model_type]) == 2
    assert len(capsys.readouterr().err.splitlines()) <= 4
