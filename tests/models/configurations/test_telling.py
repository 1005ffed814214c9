"""Formulas, blocks and walks of a model from its configuration, and the page of assumptions."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.model_formulas import cut, formulas
from cli.model_walk import of_head, walk_head
from symattn import Alibi, Attention, Buckets, InputError, Latent, Rotary, configurations
from symattn.models.configurations.model_families import table
from symattn.models.configurations.promised_layers import LAYOUTS
from symattn_cli.main import main
from tests.models.auditing.families import layered as made
from tests.models.auditing.families import path_of
from tests.models.configurations.test_adapter import GEMMA2, GPT2, LLAMA
from tests.refusals import refuses

ROOT = Path(__file__).parents[3]


def saved(folder: Path, told: Any) -> str:
    (folder / "config.json").write_text(json.dumps(told), encoding="utf-8")
    return str(folder / "config.json")


def test_the_page_says_what_the_rules_say() -> None:
    assert table() in (ROOT / "docs" / "models.md").read_text(encoding="utf-8")


def test_few_heads_and_columns_are_written_out() -> None:
    shown, words = cut(Attention(heads=32, kv_heads=8, causal=True, position=Rotary(width=64)))
    assert shown == Attention(heads=4, kv_heads=2, causal=True, position=Rotary(width=2))
    assert len(words) == 2
    assert cut(Attention(heads=71, kv_heads=1))[0] == Attention(heads=2, kv_heads=1)
    assert cut(Attention(heads=12, causal=True, position=Alibi()))[0].heads == 6
    assert cut(Attention(heads=4)) == (Attention(heads=4), [])


@pytest.mark.deep
def test_formulas_of_a_model() -> None:
    page = formulas(GEMMA2, 1, tokens=2)
    assert page.command == "symattn derive attention --config config.json --layer 1 --tokens 2"
    assert "softcap=50" in page.text()
    assert "tanh" in page.latex()
    assert "tanh" not in formulas(LLAMA, tokens=2).latex()


@pytest.mark.parametrize(
    "content",
    ["[" * 10_000, '{"model_type": "llama", "num_attention_heads": NaN}', '{"model_type": {"a": 1}}', "\x00\xff"],
)
def test_hostile_files_end_in_one_line(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(content, encoding="latin-1")
    assert main(["derive", "attention", "--config", str(tmp_path / "config.json")]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)


def test_a_number_beyond_what_is_read_is_told_with_its_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["derive", "attention", "--config", saved(tmp_path, {**LLAMA, "rope_theta": 1e308})]) == 2
    assert "rope_theta must be a finite number above 0 and of at most 1e+300, got 1e+308" in capsys.readouterr().err


def test_a_folder_in_the_place_of_weights_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["walk", "--config", saved(tmp_path, LLAMA), "--weights", str(tmp_path)]) == 2
    assert "is a directory; hint: name the safetensors file in it" in capsys.readouterr().err


@pytest.mark.transformers
def test_why_transformers_refuses_a_configuration_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path, {"model_type": "llama", "hidden_size": "x", "num_attention_heads": 4})
    assert main(["derive", "attention", "--config", path]) == 2
    assert "Field 'hidden_size' expected int, got str" in capsys.readouterr().err


def test_options_that_do_not_belong_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path, GPT2)
    assert main(["derive", "scaling", "--config", path]) == 2
    assert main(["walk", "--head", "1"]) == 2
    assert main(["walk", "--config", path]) == 2
    assert main(["walk", "--config", path, "--weights", path, "--ids", "a"]) == 2
    assert main(["walk", "--config", path, "--weights", path, "--head", "4"]) == 2
    assert capsys.readouterr().err.count("symattn") >= 5


def drawn(spec: Attention, **more: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Tokens and weights for heads of four columns."""
    draw = np.random.default_rng(0)
    h, g = spec.heads, spec.key_heads
    shapes = {"x": (5, 6), "w_q": (6, 4 * h), "w_k": (6, 4 * g), "w_v": (6, 4 * g), "w_o": (4 * h, 6), **more}
    return {name: draw.standard_normal(shape) for name, shape in shapes.items()}


OF_LATENT = {"w_dkv": (6, 3), "w_uk": (3, 4), "w_uv": (3, 6), "w_kr": (6, 2)}


@pytest.mark.parametrize(
    ("spec", "more"),
    [
        (Attention(heads=4, kv_heads=2, causal=True, window=2, softcap=3, position=Rotary()), {}),
        (Attention(heads=6, causal=True, position=Alibi()), {}),
        (Attention(heads=2, scale=1, position=Buckets(number=8, max_distance=9)), {"b_rel": (8, 2)}),
        (Attention(heads=2, causal=True, sink="given", qk_norm="rms"), {"sink": (2,)}),
        (Attention(heads=2, causal=True, latent=Latent(), position=Rotary()), OF_LATENT),
    ],
)
def test_one_head_is_that_of_all_heads(spec: Attention, more: dict[str, tuple[int, ...]]) -> None:
    arrays = drawn(spec, **more)
    if spec.latent:
        arrays = {name: a for name, a in arrays.items() if name not in ("w_k", "w_v")} | {"w_o": np.ones((6, 6))}
    whole = spec.trace(**arrays)["attended"]
    for head in range(spec.heads):
        plain, given = of_head(spec, arrays, head)
        assert plain(**given) == pytest.approx(whole[head], abs=1e-12)
        assert plain(**given) != pytest.approx(whole[head - 1], abs=1e-3)


@pytest.mark.transformers
def test_a_walk_through_a_head_of_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from safetensors.numpy import save_file

    draw = np.random.default_rng(0)
    told = {**GPT2, "n_embd": 8, "n_head": 2, "n_layer": 2}
    shapes = {
        "wte.weight": (9, 8), "h.1.attn.c_attn.weight": (8, 24), "h.1.attn.c_attn.bias": (24,),
        "h.1.attn.c_proj.weight": (8, 8), "h.1.attn.c_proj.bias": (8,),
    }  # fmt: skip
    tensors = {f"transformer.{n}": draw.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    path = str(tmp_path / "model.safetensors")
    save_file(tensors, path)
    page = walk_head(told, path, 1, 1, (8, 0))
    t = {name.removeprefix("transformer.h.1.attn."): a.astype(np.float64) for name, a in tensors.items()}
    x = t["transformer.wte.weight"][[8, 0]]
    q = (x @ t["c_attn.weight"] + t["c_attn.bias"])[:, 4:8]
    assert f"{q[0, 0]:.9g}" in page.text().replace("−", "-")
    assert "rows 8, 0 of the embedding" in " ".join(page.text().split())
    config = saved(tmp_path, told)
    assert main(["walk", "--config", str(tmp_path), "--layer", "1", "--head", "1", "--ids", "8,0"]) == 0
    assert "rows 8, 0 of the embedding" in " ".join(capsys.readouterr().out.split())
    assert main(["walk", "--config", config, "--layer", "1"]) == 2
    assert "--weights model.safetensors" in capsys.readouterr().err
    for words in (["--layer", "0"], ["--layer", "1", "--ids", "9"], ["--layer", "1", "--weights", config]):
        assert main(["walk", "--config", config, "--weights", path, *words]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    flat = str(tmp_path / "flat.safetensors")  # an embedding with one axis
    save_file({**tensors, "transformer.wte.weight": np.zeros(9, np.float32)}, flat)
    assert main(["walk", "--config", config, "--weights", flat, "--layer", "1"]) == 2
    assert "has 1 axes" in capsys.readouterr().err
    masked = str(tmp_path / "masked.safetensors")  # the causal mask, which older files store beside the weights
    save_file({**tensors, "transformer.h.1.attn.bias": np.ones((1, 1, 4, 4), np.uint8)}, masked)
    assert walk_head(told, masked, 1, 1, (8, 0)).blocks == page.blocks
    with open(path, "r+b") as file:  # a header that says it is longer than the file
        file.write((2**40).to_bytes(8, "little"))
    assert main(["walk", "--config", config, "--weights", path]) == 2
    assert "is not a safetensors file, or is cut off" in capsys.readouterr().err


_TOLD: dict[str, Any] = {
    "model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32,
    "num_hidden_layers": 2, "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "hidden_act": "silu",
}  # fmt: skip


def test_a_layer_is_told_by_its_fields() -> None:
    found = configurations.block(_TOLD)
    assert (found.norm, found.order, found.gated, found.activation, found.eps) == ("rms", "pre", True, "silu", 1e-6)
    assert found.attention.kv_heads == 2
    assert configurations.block({**_TOLD, "hidden_act": "gelu"}).activation == "gelu"


@pytest.mark.parametrize("changes", [{"hidden_act": "relu2"}, {"model_type": "mixtral", "sliding_window": None}])
def test_what_a_block_cannot_say_is_refused(changes: dict[str, Any]) -> None:
    refuses(configurations.block, {**_TOLD, **changes}, kind=configurations.CannotTell, says="cannot tell")


def test_a_count_of_rotated_columns_is_told() -> None:
    told = {**_TOLD, "model_type": "minimax_m2", "head_dim": 16, "rope_theta": 10000.0}
    for columns, width in ((8, 8), (16, None)):
        assert configurations.attention({**told, "rotary_dim": columns}).position == Rotary(width=width)
    assert configurations.attention(told).position == Rotary()
    # A share comes first, as in the class.
    shared = {**told, "rotary_dim": 8, "partial_rotary_factor": 0.25}
    assert configurations.attention(shared).position == Rotary(width=4)


def test_norms_over_all_heads_are_told() -> None:
    told = configurations.block({**_TOLD, "model_type": "olmo2"})
    assert (told.order, told.attention.qk_norm_over) == ("inner", "heads")
    alone = {**_TOLD, "model_type": "olmo2", "num_attention_heads": 1, "num_key_value_heads": 1}
    assert configurations.block(alone).attention.qk_norm_over == "head"


@pytest.mark.transformers
def test_norms_of_queries_that_no_module_is_known_to_compute_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {**_TOLD, "model_type": "qwen3"}
    assert configurations.block(told).attention.qk_norm == "rms"
    monkeypatch.setitem(LAYOUTS, "qwen3", LAYOUTS["llama"])  # whose paths name no such norms
    refuses(
        configurations.block,
        told,
        kind=configurations.CannotTell,
        says="by modules of the layer that are not described",
    )


@pytest.mark.transformers
@pytest.mark.parametrize("family", LAYOUTS)
def test_a_layer_gives_what_its_module_gives(family: str) -> None:
    import torch

    model = made(family, torch.float64)
    layer = model.get_submodule(path_of(model, 0))
    seen: dict[str, Any] = {}
    layer.register_forward_hook(lambda m, args, kwargs, out: seen.update(x=(*args, *kwargs.values())[0], y=out),
                                with_kwargs=True)  # fmt: skip
    with torch.no_grad():
        model(input_ids=torch.arange(3, 9)[None])
    told = json.loads(model.config.to_json_string(use_diff=False))
    arrays = {n: p.detach().numpy() for n, p in layer.named_parameters()}
    given = configurations.parameters(arrays, told, 0)
    got = seen["y"][0] if isinstance(seen["y"], tuple) else seen["y"]
    x = seen["x"].numpy()[0]
    assert np.allclose(configurations.block(told, 0)(x, **given), got.numpy().reshape(x.shape), rtol=1e-4, atol=1e-5)
    given["mlp_norm.gain"] = given.get("mlp_norm.gain", np.ones(x.shape[-1])) * 1.5
    assert not np.allclose(
        configurations.block(told, 0)(x, **given), got.numpy().reshape(x.shape), rtol=1e-4, atol=1e-5
    )


def test_a_parameter_without_a_place_is_refused() -> None:
    with pytest.raises(InputError, match=r"cannot tell what the parameter 'mlp.router.weight'"):
        configurations.parameters({"mlp.router.weight": np.ones((2, 2))}, _TOLD)
