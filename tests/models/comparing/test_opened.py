"""``symattn generation`` of folders, configurations and functions; two traces; what is refused."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from symattn import Attention, InputError, graphs
from symattn.models.comparing.compared import compare_traces
from symattn.models.comparing.opened import opened
from symattn_cli.main import main
from tests.models.comparing import families
from tests.programs.traces.files import HEADS, SHARED, made, write
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


@pytest.mark.transformers
def test_fields_are_json_where_they_can_be(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        part for word in ("num_hidden_layers=1", "hidden_act=gelu", "sliding_window=null") for part in ("--set", word)
    ]
    assert main(["generation", str(config), "--random", "--tokens", "6", "--way", "sdpa", *words]) == 0
    # A text is no number of layers, and a layer has an activation of this name.
    for word, told in (('num_hidden_layers="1"', "expected int, got str"), ("hidden_act=1", "hidden_act")):
        assert main(["generation", str(config), "--random", "--set", word]) == 2
        assert told in capsys.readouterr().err


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
        (["--random", "--set", "hidden_size"], "sets no field"),
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


@pytest.mark.transformers
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
        opened(str(tmp_path))
    # What comes after the index is read.
    index.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors"}}), encoding="utf-8")
    refuses(opened, str(tmp_path), says="config.json")
    (tmp_path / "adapter_config.json").write_text("{}", encoding="utf-8")
    refuses(opened, str(tmp_path), says="adapter")


@pytest.mark.transformers
@pytest.mark.parametrize("name", ["num_decoder_layers", "encoder_layers", "n_routed_experts"])
def test_counts_of_layers_are_bounded_at_any_depth(config: Path, name: str) -> None:
    config.write_text(json.dumps({**CONFIG, "text_config": {name: 10**9}}), encoding="utf-8")
    with pytest.raises(InputError, match=f"{name} is 1000000000; hint"):
        opened(str(config), random=True)
    config.write_text(json.dumps({**CONFIG, "vocab_size_per_layer_input": 10**5, name: 3}), encoding="utf-8")
    assert getattr(opened(str(config), random=True).config, name) == 3


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


CAUSAL = Attention(causal=True, heads=HEADS, kv_heads=SHARED)


def _file(path: Path, dtype: type = np.float32, fault: str = "", seed: int = 0, moved: bool = False) -> str:
    arrays = {n: a for n, a in made(dtype, fault, n=24, seed=seed).items() if n in ("q", "k", "v", "o")}
    if moved:
        arrays["o"] = np.nextafter(arrays["o"], np.float32(9))
    return write(path, arrays)


@pytest.mark.deep
@pytest.mark.parametrize("turned", [False, True])
def test_the_wrong_one_is_named_with_where_they_part(tmp_path: Path, turned: bool) -> None:
    names = [_file(tmp_path / "a.safetensors"), _file(tmp_path / "b.safetensors", fault="mask")]
    found = compare_traces(*(names[::-1] if turned else names), CAUSAL)
    assert found.wrong == (("first",) if turned else ("second",))
    assert (found.exit_code, found.together.cases, found.together.equal) == (1, HEADS, 0)
    first, worst = found.together.first, found.together.worst
    assert first is not None
    assert worst is not None
    assert first.index[:3] == (0, 0, 0)  # in the first row a query sees one key too many
    right, wrong = (worst.second, worst.first) if turned else (worst.first, worst.second)
    assert right.ratio <= 1 < wrong.ratio


@pytest.mark.deep
def test_rounding_is_no_fault_and_equal_files_are_equal(tmp_path: Path) -> None:
    names = [_file(tmp_path / "a.safetensors"), _file(tmp_path / "b.safetensors", moved=True)]
    found = compare_traces(*names, CAUSAL)
    assert (found.exit_code, found.words) == (0, "Both have no fault, and they differ by rounding alone")
    assert 0 < found.together.apart < 1
    assert "called as" not in found.text()
    assert compare_traces(names[0], names[0], CAUSAL).words == "Both have no fault, and they are equal"


@pytest.mark.deep
def test_inputs_that_differ_already_are_said(tmp_path: Path) -> None:
    names = [_file(tmp_path / "a.safetensors"), _file(tmp_path / "b.safetensors", seed=1)]
    found = compare_traces(*names, CAUSAL)
    assert (found.exit_code, found.together.cases) == (3, 0)
    assert "differ in q already" in found.notes[0]
    assert found.words == "Undecided: the files do not hold the same inputs"
    assert "right shape" not in found.text()
    names[1] = _file(tmp_path / "c.safetensors", fault="scale", seed=1)
    assert compare_traces(*names, CAUSAL).wrong == ("second",)


@pytest.mark.deep
@pytest.mark.parametrize(("dtype", "part"), [
    (np.float32, np.nan), (ml_dtypes.bfloat16, 5.0),
    pytest.param(np.float32, 0.3, marks=pytest.mark.exhaustive),  # a number, as in bfloat16
])  # fmt: skip
def test_queries_in_which_two_files_part_are_looked_at(tmp_path: Path, dtype: type, part: float) -> None:
    """One head has one wrong query among 400, which is none of those that are looked at for other reasons."""
    arrays = {n: a for n, a in made(dtype, n=400).items() if n in ("q", "k", "v", "o")}
    names = [write(tmp_path / "a.safetensors", arrays)]
    at = 0, 2, 301
    arrays["o"] = arrays["o"].copy()
    arrays["o"][at] += np.asarray(part, arrays["o"].dtype)
    names.append(write(tmp_path / "b.safetensors", arrays))
    assert not graphs.verify_trace(names[1], CAUSAL).faults
    found = compare_traces(*names, CAUSAL)
    assert found.wrong == ("second",)
    worst = found.together.worst
    assert worst is not None
    assert (worst.index[:3], found.together.equal) == (at, HEADS - 1)
    assert found.text().count("The first place at which they differ") == 1
    assert ("The place at which they differ most" in found.text()) == (found.together.first != worst and part == part)


@pytest.mark.deep
def test_a_comparison_accuses_whom_a_verification_accuses(tmp_path: Path) -> None:
    """A scale that is 3 % off in bfloat16: queries that are looked at besides take nothing from the others."""
    names = []
    for fault in ("", "scale"):
        arrays = {n: a for n, a in made(ml_dtypes.bfloat16, fault).items() if n in ("q", "k", "v", "o")}
        names.append(write(tmp_path / f"{fault or 'right'}.safetensors", arrays))
    alone = graphs.verify_trace(names[1], CAUSAL)
    found = compare_traces(*names, CAUSAL)
    assert found.wrong == ("second",)
    (fault,), (told,) = alone.faults, found.second.report.faults
    assert (fault.step, fault.cause) == (told.step, told.cause)


@pytest.mark.deep
def test_the_last_bit_of_every_entry_is_rounding(tmp_path: Path) -> None:
    """In bfloat16, where the queries that differ most are chosen by the outputs themselves."""
    arrays = {n: a for n, a in made(ml_dtypes.bfloat16, n=400).items() if n in ("q", "k", "v", "o", "weights")}
    values = np.repeat(arrays["v"], 2, axis=1).astype(np.float32)
    names = [write(tmp_path / "a.safetensors", {n: a for n, a in arrays.items() if n != "weights"})]
    stored = arrays.pop("weights").astype(ml_dtypes.bfloat16).astype(np.float32)
    arrays["o"] = (stored @ values).astype(ml_dtypes.bfloat16)
    names.append(write(tmp_path / "b.safetensors", arrays))
    found = compare_traces(*names, CAUSAL)
    assert found.words == "Both have no fault, and they differ by rounding alone"
    assert found.together.equal == 0


def test_a_complaint_says_of_which_file_it_is(tmp_path: Path) -> None:
    names = [_file(tmp_path / "a.safetensors")]
    arrays = {n: a for n, a in made(np.float32, n=24).items() if n in ("q", "k", "v", "o")}
    names.append(write(tmp_path / "b.safetensors", arrays | {"o": np.ascontiguousarray(arrays["o"][..., :4])}))
    refuses(compare_traces, *names, CAUSAL, says="b.safetensors: o has the shape")


def test_two_formats_ask_for_a_precision(tmp_path: Path) -> None:
    names = [_file(tmp_path / "a.safetensors"), _file(tmp_path / "b.safetensors", ml_dtypes.bfloat16)]
    refuses(compare_traces, *names, CAUSAL, says="hint: --dtype float32")


def test_a_function_beside_a_trace_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = _file(tmp_path / "a.safetensors")
    assert main(["compare", name, "attn.py:attention"]) == 2
    assert "give two traces, or two functions" in capsys.readouterr().err
    assert main(["compare", name, name, "--budget", "3"]) == 2
    assert "--budget applies to a function" in capsys.readouterr().err
