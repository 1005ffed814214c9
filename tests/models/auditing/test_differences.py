"""Differential attention in a tiny DiffLlama: right layers pass, a wrong λ, wrong halves and a wrong norm are named."""

from collections.abc import Callable
from typing import Any

import pytest

from symattn import audit, configurations

pytestmark = pytest.mark.transformers


def _config(kind: str = "eager", keys: int = 2) -> Any:
    from transformers.models.diffllama import DiffLlamaConfig

    sizes = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    config = DiffLlamaConfig(num_attention_heads=4, num_key_value_heads=keys, pad_token_id=0, **sizes)
    config._attn_implementation = kind
    return config


def audited(kind: str = "eager", dtype: str = "float32", change: Callable[[Any], None] = lambda model: None) -> Any:
    import torch
    from transformers.models.diffllama import DiffLlamaForCausalLM

    torch.manual_seed(0)
    model = DiffLlamaForCausalLM(_config(kind)).eval().to(getattr(torch, dtype))
    change(model)
    with torch.no_grad(), audit(model, dependence=False) as report:
        model(torch.arange(3, 15)[None])
    return report


@pytest.mark.parametrize(("kind", "dtype"), [("eager", "float32"), ("sdpa", "bfloat16")])
def test_right_layers_pass(kind: str, dtype: str) -> None:
    findings = audited(kind, dtype).findings
    assert [f.state for f in findings] == ["pass"] * 6
    assert [f.semantics for f in findings[2::3]] == ["difference λ_init=0.2", "difference λ_init=0.3555"]


def _other_layer(model: Any) -> None:
    from transformers.models.diffllama.modeling_diffllama import lambda_init_fn

    for layer in model.model.layers:
        layer.self_attn.lambda_init = lambda_init_fn(layer.self_attn.layer_idx + 1)


def _without_norm(model: Any) -> None:
    import torch

    for layer in model.model.layers:
        layer.self_attn.groupnorm = torch.nn.Identity()


def _exchanged(model: Any) -> None:
    """The heads of queries and keys of both halves are exchanged behind the calls."""
    for layer in model.model.layers:
        projection = layer.self_attn.o_proj

        def hook(module: Any, args: Any) -> Any:
            import torch

            return (torch.cat(args[0].chunk(2, -1)[::-1], -1),)

        projection.register_forward_pre_hook(hook)


WRONG: list[tuple[Callable[[Any], None], str]] = [
    (_other_layer, "λ_init is that of the next layer, as if layers were counted from 1"),
    (_without_norm, "the norm of the output is left out"),
    (_exchanged, "no known mistake explains it"),
]


@pytest.mark.parametrize(("change", "cause"), WRONG)
def test_wrong_differences_are_named(change: Callable[[Any], None], cause: str) -> None:
    findings = audited(change=change).findings
    assert [f.state for f in findings] == ["pass", "pass", "wrong"] * 2
    assert {f.cause for f in findings[2::3]} == {cause}


def test_exchanged_halves_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from transformers.models.diffllama import modeling_diffllama

    right = torch.chunk

    def exchanged(x: Any, chunks: int, dim: int = 0) -> Any:
        parts = right(x, chunks, dim=dim)
        return parts[::-1] if dim == 2 else parts

    monkeypatch.setattr(modeling_diffllama.torch, "chunk", exchanged)
    causes = {f.cause for f in audited().findings if f.state == "wrong"}
    assert causes == {"the halves are exchanged: λ times the first softmax is subtracted from the second"}


def test_the_attention_alone_is_that_of_each_call() -> None:
    assert configurations.attention(_config(), called=True).heads == 4
    with pytest.raises(configurations.CannotTell, match="as Differential does"):
        configurations.attention(_config())
