"""Layers that read the keys and values of another layer: right models are not accused, wrong layers are named."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from symattn import audit
from symattn.models.configurations.shared_keys import find_layer_of_keys

pytestmark = pytest.mark.transformers
KINDS = ["sliding_attention", "full_attention"] * 3


def test_the_layer_is_the_last_one_of_its_type_that_computes_keys() -> None:
    config = SimpleNamespace(num_hidden_layers=6, num_kv_shared_layers=2, layer_types=KINDS)
    assert [find_layer_of_keys(config, layer) for layer in range(6)] == [0, 1, 2, 3, 2, 3]
    config.layer_types = None
    assert [find_layer_of_keys(config, layer) for layer in range(6)] == [0, 1, 2, 3, 3, 3]
    for shared in (0, 6, None, "x"):
        config.num_kv_shared_layers = shared
        assert find_layer_of_keys(config, 5) is None
    listed = SimpleNamespace(kv_source_layers=[0, 0, 2, 7])
    assert [find_layer_of_keys(listed, layer) for layer in range(5)] == [0, 0, 2, None, None]


def test_it_is_the_layer_that_transformers_takes() -> None:
    from transformers.models.gemma3n import Gemma3nTextConfig

    config = Gemma3nTextConfig(num_hidden_layers=20, num_kv_shared_layers=10)
    stored = {
        kind: layer
        for layer, (kind, mode) in enumerate(zip(config.layer_types, config.kv_sharing_modes, strict=True))
        if mode == "store"
    }
    for layer, (kind, mode) in enumerate(zip(config.layer_types, config.kv_sharing_modes, strict=True)):
        assert find_layer_of_keys(config, layer) == (stored[kind] if mode == "reuse" else layer)


def gemma(attention: str = "eager") -> Any:
    """A tiny Gemma 3n whose last two layers read the keys of layers 2 and 3."""
    import torch
    from transformers.models.gemma3n import Gemma3nForCausalLM, Gemma3nTextConfig

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "vocab_size": 50, "vocab_size_per_layer_input": 50,
             "hidden_size_per_layer_input": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
             "laurel_rank": 4, "altup_num_inputs": 2, "sliding_window": 6}  # fmt: skip
    config = Gemma3nTextConfig(
        num_hidden_layers=6, layer_types=KINDS, num_kv_shared_layers=2, activation_sparsity_pattern=[0.0] * 6,
        pad_token_id=0, **sizes,
    )  # fmt: skip
    config._attn_implementation = attention
    return Gemma3nForCausalLM(config).eval()


def audited(model: Any, new_tokens: int = 0) -> Any:
    import torch

    tokens = torch.arange(3, 15)[None]
    with torch.no_grad(), audit(model, dependence=False) as report:
        if new_tokens:
            model.generate(tokens, max_new_tokens=new_tokens, do_sample=False)
        else:
            model(tokens)
    return report


def test_right_models_read_the_keys_that_are_promised() -> None:
    findings = audited(gemma("sdpa"), new_tokens=2).findings
    assert [f.state for f in findings] == ["pass as given"] * 12
    assert [f.semantics[-15:] for f in findings[4:6]] == ["keys of layer 2", "keys of layer 3"]


def test_layers_that_run_twice_in_a_pass_are_right() -> None:
    import torch

    class Twice(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = gemma("sdpa")

        def forward(self, tokens: Any) -> Any:
            self.inner(tokens)
            return self.inner((tokens + 5) % 30)

    findings = audited(Twice()).findings
    assert [f.state for f in findings] == ["pass as given"] * 12
    assert [f.semantics[-15:] for f in findings[10:]] == ["keys of layer 2", "keys of layer 3"]


Shared = dict[str, tuple[Any, Any]]


def _of_other_type(kind: str, shared: Shared) -> tuple[Any, Any]:
    return next(arrays for other, arrays in shared.items() if other != kind)


def _values_of_other_type(kind: str, shared: Shared) -> tuple[Any, Any]:
    return shared[kind][0], _of_other_type(kind, shared)[1]


def _changed(kind: str, shared: Shared) -> tuple[Any, Any]:
    return shared[kind][0] * 1.001, shared[kind][1]


WRONG: list[tuple[Callable[[str, Shared], tuple[Any, Any]], str]] = [
    (_of_other_type, "keys and values are those of layer 3, not of layer 2"),
    (_values_of_other_type, "values are those of layer 3, not of layer 2"),
    (_changed, "keys are those of no earlier layer, not of layer 2"),
]


@pytest.mark.parametrize(("take", "cause"), WRONG)
def test_keys_of_another_layer_are_named(
    take: Callable[[str, Shared], tuple[Any, Any]], cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.gemma3n.modeling_gemma3n import Gemma3nTextAttention

    right = Gemma3nTextAttention.forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        shared = dict(kwargs.get("shared_kv_states") or {})
        if self.is_kv_shared_layer:
            kwargs["shared_kv_states"] = {self.layer_type: take(self.layer_type, shared)}
        return right(self, *args, **kwargs)

    monkeypatch.setattr(Gemma3nTextAttention, "forward", forward)
    findings = audited(gemma()).findings
    assert [f.state for f in findings] == ["pass as given"] * 4 + ["wrong"] * 2
    assert findings[4].verdict == f"CERTIFIED WRONG, against the configuration: {cause}"


def test_a_layer_with_keys_of_its_own_may_not_read_those_of_another() -> None:
    model = gemma()
    # One layer fewer shares keys than the model was made with.
    model.config.num_kv_shared_layers = 1
    findings = audited(model).findings
    assert [f.state for f in findings] == ["pass as given"] * 4 + ["wrong", "pass as given"]
    assert findings[4].cause == "keys and values are those of layer 2, not the layer's own"
