"""Training of tiny models of Transformers: right backward passes pass, a wrong one is named with its layer."""

from typing import Any

import pytest

from symattn import audit
from tests.models.auditing.families import inputs, made, trained
from tests.models.auditing.written import right, unscaled, written

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.transformers


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["llama", "mistral", "gpt2"])  # the last one with dropout
def test_right_models_are_not_accused(name: str, implementation: str, dtype: Any) -> None:
    report = trained(made(name, dtype, implementation), inputs(name, dtype, "right"))
    assert [f.verdict.partition(" (")[0] for f in report.findings] == ["pass", "pass"]
    assert "gradients of 2 judged" in report.coverage
    assert all(("dropout=0.1" in f.semantics) == (name == "gpt2") for f in report.findings)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_wrong_backward_pass_is_named_with_its_layer(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.llama import modeling_llama

    def attention(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **more: Any) -> Any:
        times = query.shape[1] // key.shape[1]
        attend = written(unscaled if module.layer_idx == 1 else right)
        out = attend(query, *(t.repeat_interleave(times, 1) for t in (key, value)), is_causal=True)
        return out.transpose(1, 2).contiguous(), None

    monkeypatch.setattr(modeling_llama, "eager_attention_forward", attention)
    report = trained(made("llama", dtype), inputs("llama", dtype))
    assert {f.layer: f.verdict for f in report.findings} == {
        "model.layers.0.self_attn": "pass",
        "model.layers.1.self_attn": "CERTIFIED WRONG in the backward pass: dK is not scaled",
    }


def test_a_gradient_of_the_weights_is_told() -> None:
    """It reaches queries and keys besides what comes from the output."""
    model = made("llama", torch.float32)
    with audit(model, gradients=True) as report:
        out = model(**inputs("llama", torch.float32), output_attentions=True)
        (out.logits.sum() + out.attentions[0].square().sum()).backward()
    assert report.findings[0].verdict.startswith("CANNOT TELL of gradients: a gradient came through something else")
    assert report.findings[1].verdict == "pass"
