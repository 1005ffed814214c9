"""The probe of dependence in tiny models of Transformers: linear layers are counted, planted leaks found."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from symattn import (  # noqa: E402
    Verdict,
    audit,
    reports,
)
from tests.models.auditing.families import made  # noqa: E402

pytestmark = pytest.mark.transformers
_HYBRID = "transformers.models.qwen3_next.modeling_qwen3_next."
_EXPERTS = "transformers.models.olmoe.modeling_olmoe."
HYBRID_SIZES: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "num_hidden_layers": 4, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16, "pad_token_id": 0,
}  # fmt: skip


def hybrid(dtype: Any = torch.float32) -> Any:
    """Return a tiny Qwen3-Next: three layers of the gated delta rule, and one of attention."""
    torch.manual_seed(0)
    model = transformers.Qwen3NextForCausalLM(transformers.Qwen3NextConfig(**HYBRID_SIZES)).to(dtype).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("A_log"):
            torch.nn.init.constant_(parameter, -8.0)  # else states forget in a few tokens
    return model


def probed(model: Any, **arguments: Any) -> reports.AuditReport:
    with torch.no_grad(), audit(model) as report:
        model(torch.arange(48).view(2, 24) * 7 % 43 + 3, **arguments)
    return report


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_linear_layers_of_a_hybrid_are_counted_and_judged(dtype: Any) -> None:
    report = probed(hybrid(dtype))
    assert "7 of 7 calls read" in report.coverage
    assert "4 of 4 token-mixing parts judged" in report.coverage
    assert report.verdict is Verdict.AS_GIVEN


def test_padding_and_caches_are_no_leak() -> None:
    mask = torch.ones(2, 24, dtype=torch.long)
    mask[0, :7] = 0
    for arguments in ({"attention_mask": mask, "use_cache": False}, {"use_cache": True}):
        assert "4 of 4 token-mixing parts judged" in probed(hybrid(), **arguments).coverage


def test_places_that_are_counted_by_ids_of_padding_are_no_leak() -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = transformers.RobertaModel(transformers.RobertaConfig(vocab_size=60, pad_token_id=1, **sizes)).eval()
    ids = torch.arange(16).view(2, 8) * 5 % 50 + 4
    ids[1, :3] = 1
    with torch.no_grad(), audit(model) as report:
        model(input_ids=ids, attention_mask=(ids != 1).long())
    assert [finding.faults for finding in report.dependence] == [[]]
    assert not report.dependence[0].reason


def test_generation_is_probed_at_its_prompt() -> None:
    with audit(model := hybrid()) as report:
        model.generate(torch.arange(24)[None] + 3, max_new_tokens=3, do_sample=False)
    assert len(report.dependence) == 1
    assert len(report.mixing) == 4


# -- planted leaks -----------------------------------------------------------------------------------------------------
def _late(own: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *rest, **named: own(torch.nn.functional.pad(x, (0, 1))[..., 1:], *rest, **named)


def _next_gate(own: Callable[..., Any]) -> Callable[..., Any]:
    return lambda q, k, v, g, **named: own(q, k, v, g=g.roll(-1, 1), **named)


def _of_mean(own: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, x: own(self, x - x.mean(tuple(range(x.ndim - 1)), keepdim=True))


def _normed(own: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, x, *rest: own(self, x / x.square().mean().sqrt(), *rest)


def _without_mask(own: Callable[..., Any]) -> Callable[..., Any]:
    return lambda module, q, k, v, mask, **named: own(module, q, k, v, torch.zeros(1, 1, 1, 1).to(q.dtype), **named)


#: Which model, the function that is replaced, by what, and the class of the part that leaks.
PLANTED: dict[str, tuple[str, str, Callable[..., Any], str]] = {
    "convolution one token late": ("hybrid", _HYBRID + "causal_conv1d_fn", _late, "Qwen3NextGatedDeltaNet"),
    "decay of the next token": (
        "hybrid", _HYBRID + "torch_chunk_gated_delta_rule", _next_gate, "Qwen3NextGatedDeltaNet"
    ),
    "lost mask": ("hybrid", _HYBRID + "eager_attention_forward", _without_mask, "Qwen3NextAttention"),
    "norm over tokens": ("hybrid", _HYBRID + "Qwen3NextRMSNormGated.forward", _normed, "Qwen3NextGatedDeltaNet"),
    "router of the mean, hybrid": (
        "hybrid", _HYBRID + "Qwen3NextTopKRouter.forward", _of_mean, "Qwen3NextSparseMoeBlock"
    ),
    "router of the mean": ("olmoe", _EXPERTS + "OlmoeTopKRouter.forward", _of_mean, "OlmoeSparseMoeBlock"),
    "norm of queries over tokens": ("olmoe", _EXPERTS + "OlmoeRMSNorm.forward", _normed, "OlmoeRMSNorm"),
}  # fmt: skip


@contextmanager
def planted(path: str, change: Callable[..., Any]) -> Iterator[None]:
    with ExitStack() as stack:
        own = patch(path)
        original, _ = own.get_original()
        stack.enter_context(patch(path, change(original)))
        yield


_CASES = [(name, torch.float32) for name in PLANTED]
_CASES += [(name, torch.bfloat16) for name in ("decay of the next token", "router of the mean")]


@pytest.mark.parametrize(("name", "dtype"), _CASES)
def test_a_planted_leak_is_found_in_its_part(name: str, dtype: Any) -> None:
    kind, path, change, part = PLANTED[name]
    model = hybrid(dtype) if kind == "hybrid" else made(kind, dtype)
    model.set_attn_implementation("eager")
    with planted(path, change):
        report = probed(model)
    assert report.verdict is Verdict.FAULT
    assert part in {p.kind for p in report.mixing if p.leak}
    assert part in report.dependence[0].faults[0]
