"""``symattn generation``: models from folders, configurations and functions, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from symattn import InputError
from symattn.models.comparing.opened import check_weights, fields, opened, read_configuration
from symattn_cli.main import main
from tests.models.comparing import families
from tests.refusals import refuses

CONFIG = {"model_type": "mistral", **families.FAMILIES["mistral"][1]}
MODEL = """
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

def make():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=32, initializer_range=0.3, **sizes))

def broken():
    raise ValueError("no model today")

class Losing(DynamicCache):
    def __init__(self, config, length):
        super().__init__(config=config)

    def update(self, *given, **told):
        k, v = super().update(*given, **told)
        if k.shape[-2] > 5:
            v = v.clone()
            v[:, :, 3] = v[:, :, 2]
        return k, v

def losing(config, length):
    return Losing(config, length)
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    return path


def test_fields_are_json_where_they_can_be() -> None:
    assert fields(["hidden_size=64", "hidden_act=gelu", "sliding_window=null"]) == {
        "hidden_size": 64, "hidden_act": "gelu", "sliding_window": None,
    }  # fmt: skip
    refuses(fields, ["hidden_size"], says="sets no field")


@pytest.mark.transformers
def test_a_configuration_with_weights_at_random(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["generation", str(config), "--random", "--set", "num_hidden_layers=1", "--way", "token by token"]
    assert main([*command, "-f", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["command"] == " ".join([*command[:-1], "'token by token'"]).replace(
        "generation", "symattn generation", 1
    )
    assert [row["verdict"] for row in found["ways"]] == ["rounding alone"] * 2
    assert opened(str(config), random=True, changed={"num_hidden_layers": 1}).config.num_hidden_layers == 1


@pytest.mark.transformers
def test_a_checkpoint_is_read_from_its_folder(tmp_path: Path) -> None:
    import torch

    model = families.made("llama", dtype="bfloat16")
    model.save_pretrained(tmp_path)
    read = opened(str(tmp_path))
    assert read.dtype is torch.bfloat16
    assert all(torch.equal(a, b) for a, b in zip(read.parameters(), model.parameters(), strict=True))
    assert main(["generation", str(tmp_path), "--ids", "1,2,3,4,5,6", "--way", "sdpa"]) == 0


@pytest.mark.transformers
def test_a_function_and_a_cache_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text(MODEL, encoding="utf-8")
    own = str(tmp_path / "own.py")
    command = ["generation", f"{own}:make", "--tokens", "10", "--cache", f"{own}:losing"]
    assert main([*command, "--way", "losing, decoding"]) == 1
    assert "losing, decoding is wrong from layers.0 on, first at token 5" in " ".join(capsys.readouterr().out.split())
    assert main([*command, "--way", "token by token"]) == 0
    assert main(["generation", f"{own}:broken"]) == 4
    assert "no model today" in capsys.readouterr().err


@pytest.mark.transformers
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--random", "--set", "num_hidden_layers=100000000"], "at most 1000"),
        (["--random", "--set", "hidden_size=65536"], "parameters, and at most"),
        (["--random", "--set", "num_attention_heads=0"], "cannot be loaded by transformers"),
        ([], "holds no weights in safetensors"),
        (["--random", "--set", "num_hiden_layers=1"], "no field num_hiden_layers; hint: num_hidden_layers"),
        (["--random", "--set", "dtype=float16"], "--dtype"),
        (["--random", "--set", "model_type=llama"], "is not set here"),
        (["--random", "--set", "attn_implementation=kernels-community/flash-attn"], "is not set here"),
        (["--set", "a=1"], "for weights at random alone"),
        (["--ids", "1,x"], "is not an integer from 0 to"),
        (["--ids", "1" * 5000], "is not an integer from 0 to"),
        (["--random", "--set", "vocab_size=many"], "expected int, got str"),
        (["--ids", "1,2", "--tokens", "8"], "exclude each other"),
    ],
)
def test_bad_input_is_one_line(config: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generation", str(config), *words]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"a": "model-1.safetensors", "b": "evil.bin"}, "names 'evil.bin'"),
        ({"a": "../model.safetensors"}, "names '../model.safetensors'"),
        ({"a": 3}, "names '3'"),
        ({}, "has no weight_map"),
    ],
)
def test_an_index_names_safetensors_of_its_folder_alone(tmp_path: Path, parts: dict[str, Any], told: str) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": parts}), encoding="utf-8")
    with pytest.raises(InputError, match=told):
        check_weights(tmp_path)
    index.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors"}}), encoding="utf-8")
    check_weights(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}", encoding="utf-8")
    refuses(check_weights, tmp_path, says="adapter")


@pytest.mark.parametrize("name", ["num_decoder_layers", "encoder_layers", "n_routed_experts"])
def test_counts_of_layers_are_bounded_at_any_depth(config: Path, name: str) -> None:
    config.write_text(json.dumps({**CONFIG, "text_config": {name: 10**9}}), encoding="utf-8")
    with pytest.raises(InputError, match=f"{name} is 1000000000; hint"):
        read_configuration(config)
    config.write_text(json.dumps({**CONFIG, "vocab_size_per_layer_input": 10**5, name: 3}), encoding="utf-8")
    assert read_configuration(config).data[name] == 3


def test_caches_of_the_same_name_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generation", "x.json", "--cache", "a.py:paged", "--cache", "b.py:paged"]) == 2
    assert "a.py:paged and b.py:paged have the same name" in capsys.readouterr().err


@pytest.mark.transformers
def test_a_checkpoint_that_lacks_weights_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    families.made("llama").save_pretrained(tmp_path)
    arrays = load_file(tmp_path / "model.safetensors")
    del arrays["model.layers.1.mlp.up_proj.weight"]
    save_file(arrays, tmp_path / "model.safetensors", {"format": "pt"})
    refuses(opened, str(tmp_path), says="lacks 1 arrays of its model, such as model.layers.1.mlp.up_proj")


@pytest.mark.transformers
@pytest.mark.parametrize("told", [{"hidden_size": 65536}, {"num_hidden_layers": 10**9}, {"vocab_size": 10**12}])
def test_a_checkpoint_is_counted_before_it_is_made(config: Path, told: dict[str, Any]) -> None:
    (config.parent / "model.safetensors").write_bytes(b"")
    config.write_text(json.dumps({**CONFIG, **told}), encoding="utf-8")
    refuses(opened, str(config.parent), says="at most")


@pytest.mark.transformers
def test_kernels_that_a_configuration_names_are_passed_over(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import modeling_utils

    def fetched(*given: Any, **told: Any) -> None:
        raise AssertionError("a kernel is fetched")

    monkeypatch.setattr(modeling_utils, "lazy_import_flash_attention", fetched)
    for name in ("attn_implementation", "_attn_implementation"):
        config.write_text(json.dumps({**CONFIG, name: "kernels-community/flash-attn"}), encoding="utf-8")
        assert opened(str(config), random=True).config._attn_implementation in ("sdpa", "eager")


@pytest.mark.transformers
def test_weights_that_would_be_unpickled_are_refused(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config.parent / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    assert main(["generation", str(config.parent)]) == 2
    assert "no weights in safetensors" in capsys.readouterr().err


@pytest.mark.transformers
def test_code_of_a_checkpoint_is_not_run(config: Path) -> None:
    told: dict[str, Any] = {**CONFIG, "auto_map": {"AutoModelForCausalLM": "evil.Evil", "AutoConfig": "evil.Config"}}
    config.write_text(json.dumps(told), encoding="utf-8")
    (config.parent / "evil.py").write_text("raise SystemExit('run')", encoding="utf-8")
    assert type(opened(str(config.parent), random=True)).__name__ == "MistralForCausalLM"
