"""Layers by configurations: a ``Block`` with the parameters of a module gives what the module gives."""

import json
from typing import Any

import numpy as np
import pytest

from symattn.document.errors import InputError
from symattn.models.configurations.configuration import CannotTell
from symattn.models.configurations.layer_layouts import LAYOUTS, UNSAID
from symattn.models.configurations.model_families import FAMILIES
from symattn.models.configurations.promised_layers import block, parameters, promised
from tests.models.auditing.families import layered as made
from tests.models.auditing.families import path_of
from tests.refusals import refuses

_TOLD: dict[str, Any] = {
    "model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32,
    "num_hidden_layers": 2, "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "hidden_act": "silu",
}  # fmt: skip


def test_a_layer_is_told_by_its_fields() -> None:
    found = block(_TOLD)
    assert (found.norm, found.order, found.gated, found.activation, found.eps) == ("rms", "pre", True, "silu", 1e-6)
    assert found.attention.kv_heads == 2
    assert block({**_TOLD, "hidden_act": "gelu"}).activation == "gelu"


@pytest.mark.parametrize("changes", [{"hidden_act": "relu2"}, {"model_type": "mixtral", "sliding_window": None}])
def test_what_a_block_cannot_say_is_refused(changes: dict[str, Any]) -> None:
    refuses(block, {**_TOLD, **changes}, kind=CannotTell, says="cannot tell")


def test_a_layer_of_which_only_parts_can_be_told_is_refused_as_a_whole() -> None:
    with pytest.raises(CannotTell, match=r"normalised over all heads together, for which there is no field"):
        block({**_TOLD, "model_type": "olmo2"})
    told = promised({**_TOLD, "model_type": "olmo2"})
    assert (told.block.order, told.block.attention.qk_norm) == ("inner", None)
    assert {"attention.q_norm", "attention.k_norm"} <= told.layout.paths.keys()


@pytest.mark.transformers
def test_norms_of_queries_that_no_module_is_known_to_compute_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {**_TOLD, "model_type": "qwen3"}
    assert block(told).attention.qk_norm == "rms"
    monkeypatch.setitem(LAYOUTS, "qwen3", LAYOUTS["llama"])  # whose paths name no such norms
    refuses(block, told, kind=CannotTell, says="by modules of the layer that are not described")


def test_no_family_is_said_and_unsaid() -> None:
    assert not set(LAYOUTS) & set(UNSAID)


@pytest.mark.transformers
@pytest.mark.parametrize("family", [family for family in LAYOUTS if not FAMILIES[family].before])
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
    given = parameters(arrays, told, 0)
    got = seen["y"][0] if isinstance(seen["y"], tuple) else seen["y"]
    x = seen["x"].numpy()[0]
    assert np.allclose(block(told, 0)(x, **given), got.numpy().reshape(x.shape), rtol=1e-4, atol=1e-5)
    given["mlp_norm.gain"] = given.get("mlp_norm.gain", np.ones(x.shape[-1])) * 1.5
    assert not np.allclose(block(told, 0)(x, **given), got.numpy().reshape(x.shape), rtol=1e-4, atol=1e-5)


def test_a_parameter_without_a_place_is_refused() -> None:
    with pytest.raises(InputError, match=r"cannot tell what the parameter 'mlp.router.weight'"):
        parameters({"mlp.router.weight": np.ones((2, 2))}, _TOLD)
