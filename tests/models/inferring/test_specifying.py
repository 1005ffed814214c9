"""The attention of a layer: by its row, else inferred in the sizes of the configuration, as rows that exist say."""

import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
from symattn import Attention, InputError, LinearAttention, MissingExtra, Rotary, Verdict, configurations

pytestmark = pytest.mark.transformers
_SIZES: dict[str, Any] = {
    "num_attention_heads": 12, "num_key_value_heads": 3, "hidden_size": 768, "num_hidden_layers": 8, "vocab_size": 5000
}  # fmt: skip
#: Configurations of families that have a row, unlike the defaults of Transformers.
_ROWS: dict[str, dict[str, Any]] = {
    "gemma2": {"head_dim": 64, "sliding_window": 300, "query_pre_attn_scalar": 200, "attn_logit_softcapping": 20.0},
    "cohere2": {"sliding_window": 77},
    "stablelm": {"partial_rotary_factor": 0.5},
    "mixtral": {"sliding_window": 100, "rope_theta": 5e5},
}


@pytest.mark.parametrize("model_type", _ROWS)
def test_an_inferred_layer_is_that_of_the_row_in_full_size(model_type: str) -> None:
    config = {"model_type": model_type, **_SIZES, **_ROWS[model_type]}
    for layer in (0, 7):
        found = configurations.infer_layer(config, layer)
        assert found.source == "inferred"
        assert found.specification == configurations.attention(config, layer)
    assert configurations.specify(config, 7).source == "row"


_EXAONE = {**_SIZES, "model_type": "exaone_moe", "sliding_window": 500}


def test_a_family_without_a_row_is_inferred() -> None:
    fields: dict[str, Any] = {"causal": True, "heads": 12, "kv_heads": 3, "qk_norm": "rms", "eps": 1e-5}
    sliding = Attention(**fields, window=500, position=Rotary())
    assert configurations.specify(_EXAONE, 4).specification == sliding
    # Only the code of this family says that full layers do not rotate.
    assert configurations.specify(_EXAONE, 7).specification == Attention(**fields)


def test_a_recurrence_is_inferred_and_a_reviewed_line_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inferred: list[Any] = []
    place = "symattn.models.specifying.infer_configuration"
    infer = patch(place).get_original()[0]

    def infer_once(config: Any) -> Any:
        inferred.append(inferred[0] if inferred else infer(config))
        return inferred[0]

    monkeypatch.setattr(place, infer_once)
    lock = tmp_path / "models.lock"
    lock.write_text("\n".join(configurations.lines_of("kimi_linear")))
    found = configurations.specify({"model_type": "kimi_linear"}, 0, lock=str(lock))
    assert found.specification == LinearAttention.named("kda")
    assert found.source == "lock"
    assert f"reviewed in {lock}" in found.words
    lock.write_text("kimi_linear | another line")
    assert configurations.specify({"model_type": "kimi_linear"}, 0, lock=str(lock)).source == "inferred"
    assert len(inferred) == 2


def test_forms_without_a_field_and_layers_that_are_not_there_are_refused() -> None:
    with pytest.raises(configurations.CannotTell, match="rotation backwards"):
        configurations.infer_layer({"model_type": "nanochat", **_SIZES}, 3)
    with pytest.raises(configurations.CannotTell, match="there are 8, counted from 0"):
        configurations.specify(_EXAONE, 8)
    with pytest.raises(configurations.CannotTell, match="only attention of kind self is inferred"):
        configurations.specify(_EXAONE, 0, kind="cross")


# -- untrusted configurations, and what a run does not tell ------------------------------------------------------------
_LLAMA: dict[str, Any] = {"model_type": "llama", **_SIZES}


def test_code_that_a_configuration_names_is_never_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[str] = []
    monkeypatch.setattr("builtins.input", lambda words="": questions.append(words) or "y")
    named = {"AutoModelForCausalLM": "someone/else--modeling.Model", "AutoModel": "someone/else--modeling.Model"}
    # A type without a causal language model in Transformers, for which its tables look for other code.
    found = configurations.specify({"model_type": "clip_text_model", "auto_map": named})
    assert found.specification == Attention(causal=True, heads=8)
    assert not questions


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers must be a number of layers from 1 to 10000"),
        ({"num_hidden_layers": float("inf")}, "num_hidden_layers must be a number of layers from 1 to 10000"),
        ({"num_kv_shared_layers": "x"}, "its fields cannot be read: TypeError"),
    ],
)
def test_fields_that_no_model_has_are_refused_in_one_line(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        configurations.infer_layer({**_LLAMA, **fields}, 1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("layer", ["1", True, -1])
def test_a_layer_that_is_no_number_of_one_is_refused(layer: Any) -> None:
    with pytest.raises(configurations.CannotTell, match=f"layer {layer} was requested"):
        configurations.specify(_EXAONE, layer)


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_a_missing_package_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match="transformers"):
        configurations.infer_layer(_LLAMA)


def test_the_text_part_of_a_multimodal_model_has_the_row_of_its_family() -> None:
    assert (
        configurations.specify({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}).source == "row"
    )


def test_rates_that_change_with_the_number_of_tokens_have_no_field() -> None:
    scaling = {"rope_type": "dynamic", "factor": 4.0}
    with pytest.raises(configurations.CannotTell, match="rates that change with the number of tokens"):
        configurations.infer_layer(
            {**_LLAMA, "max_position_embeddings": 2048, "rope_theta": 1e4, "rope_scaling": scaling}
        )


def test_fields_that_only_tiny_models_have_in_common_are_not_exchanged() -> None:
    with pytest.raises(
        configurations.CannotTell, match="heads may be num_attention_heads = 12 or num_sliding_attention_heads = 24"
    ):
        configurations.infer_layer({**_LLAMA, "num_sliding_attention_heads": 24})
    found = configurations.infer_layer({"model_type": "qwen3_5_text", "linear_num_value_heads": 64}, 3)
    assert found.source == "inferred"
    heads = found.specification
    assert isinstance(heads, Attention)
    assert (heads.heads, heads.kv_heads) == (16, 4)


def test_a_convolution_does_not_explain_the_state_space_behind_it() -> None:
    inference = configurations.infer("mamba")
    assert inference.verdict is Verdict.UNDECIDED
    words = "what mixes all earlier tokens besides a convolution of 4"
    assert [(part.spec, part.unknown) for part in inference.parts] == [("", [words])] * 2
