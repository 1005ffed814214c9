"""Layers of lightning attention, which compute their recurrence in their own forward pass, are read and judged."""

from collections.abc import Callable
from typing import Any

import pytest

from symattn import audit

pytestmark = [pytest.mark.transformers, pytest.mark.torch]
pytest.importorskip("transformers")
torch = pytest.importorskip("torch")
_LINEAR, _FULL = "linear_attention", "full_attention"


def _model() -> Any:
    from transformers import MiniMaxConfig, MiniMaxForCausalLM

    torch.manual_seed(0)
    config = MiniMaxConfig(
        vocab_size=40, hidden_size=16, intermediate_size=8, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=4, num_local_experts=2, num_experts_per_tok=1, block_size=4,
        layer_types=[_LINEAR, _FULL, _LINEAR],
    )  # fmt: skip
    return MiniMaxForCausalLM(config).eval()


def _findings(model: Any, steps: int = 2, padding: int = 0) -> list[Any]:
    """Audit a prompt of 10 tokens, of which the first item's first ones are padding, and further tokens."""
    tokens = torch.arange(20).reshape(2, 10)
    mask = torch.ones_like(tokens)
    mask[0, :padding] = 0
    with torch.no_grad(), audit(model, dependence=False) as report:
        cache = model(tokens, attention_mask=mask, use_cache=True).past_key_values
        for token in range(steps):
            model(torch.full((2, 1), token), past_key_values=cache, use_cache=True)
    return [f for f in report.findings if "lightning" in f.semantics or f.reason]


def _change_decays(layer: Any, factor: float) -> None:
    layer.slope_rate *= factor
    for name, array in zip(
        ("query_decay", "key_decay", "diagonal_decay"), layer.decay_factors(layer.slope_rate), strict=True
    ):
        getattr(layer, name).copy_(array)


def _show_later_tokens(layer: Any) -> None:
    places = torch.arange(layer.block_size)
    layer.diagonal_decay.copy_(torch.exp(-layer.slope_rate * (places[:, None] - places)))


@pytest.mark.parametrize(("steps", "padding"), [(2, 0), (0, 4)])
def test_right_layers_pass(steps: int, padding: int) -> None:
    findings = _findings(_model(), steps, padding)
    assert len(findings) == 2 * (1 + steps)
    assert {f.state for f in findings} == {"pass as given"}


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda layer: _change_decays(layer, 1.1), "slope_rate"),
        (lambda layer: layer.query_decay.fill_(1), "does not decay within its chunk"),
        (lambda layer: _show_later_tokens(layer), "sees later tokens"),
        (lambda layer: layer.key_decay.copy_(layer.key_decay.flip(1)), ""),
    ],
)
def test_a_mistake_in_a_chunk_is_wrong(change: Callable[[Any], Any], cause: str) -> None:
    model = _model()
    with torch.no_grad():
        change(model.model.layers[0].self_attn)
    first = _findings(model, steps=0)[0]
    assert first.state == "wrong"
    assert cause in first.cause


def test_a_state_that_a_step_reads_comes_from_the_cache() -> None:
    """Caches change between passes, as in a beam search: the state is that of the cache, not of the last pass."""
    model = _model()
    tokens = torch.arange(20).reshape(2, 10)
    with torch.no_grad(), audit(model, dependence=False) as report:
        cache = model(tokens, use_cache=True).past_key_values
        cache.linear_cache = [x.flip(0) if hasattr(x, "flip") else x for x in cache.linear_cache]
        model(tokens[:, :1], past_key_values=cache, use_cache=True)
    assert {f.state for f in report.findings if "lightning" in f.semantics} == {"pass as given"}


def test_half_precision_is_not_judged() -> None:
    (first, *_) = _findings(_model().to(torch.bfloat16), steps=0)
    assert "no bound covers" in first.reason
