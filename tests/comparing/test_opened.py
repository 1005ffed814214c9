"""``symattn generation``: models from folders, configurations and functions, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from symattn import InputError
from symattn.comparing.opened import fields, opened
from symattn_cli.main import main
from tests.comparing import families

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
    with pytest.raises(InputError, match="sets no field"):
        fields(["hidden_size"])


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
        (["--random", "--set", "num_attention_heads=0"], "is no model that transformers makes"),
        ([], "holds no weights in safetensors"),
        (["--set", "a=1"], "for weights at random alone"),
        (["--ids", "1,x"], "must be whole numbers"),
        (["--ids", "1,2", "--tokens", "8"], "exclude each other"),
    ],
)
def test_bad_input_is_one_line(config: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generation", str(config), *words]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1


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
