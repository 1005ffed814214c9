"""Training of tiny models of Transformers: right backward passes pass, wrong ones are named with their layer."""

from typing import Any

import pytest

from symattn import audit
from tests.models.auditing.families import inputs, made, trained
from tests.models.auditing.written import eager

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.transformers
FORMATS = (torch.float32, torch.bfloat16, torch.float16)
EACH = pytest.mark.parametrize("dtype", FORMATS, ids=str)
#: With no more than a mask, and with dropout the last one.
MODELS = [(name, way) for name in ("llama", "mistral", "gpt2") for way in ("eager", "sdpa")]
#: With caps, sinks and learned biases.
VARIED = [("gemma2", "eager"), ("gpt_oss", "eager"), ("t5", "eager"), ("t5", "sdpa"), ("bloom", "eager"),
          ("gpt_neo", "eager")]  # fmt: skip


@EACH
@pytest.mark.parametrize(("name", "implementation"), MODELS + VARIED)
def test_right_models_are_not_accused(name: str, implementation: str, dtype: Any) -> None:
    report = trained(made(name, dtype, implementation), inputs(name, dtype, "right" if name != "t5" else "none"))
    assert {f.verdict.partition(" (")[0] for f in report.findings} == {"pass"}
    assert f"gradients of {len(report.findings)} judged" in report.coverage
    assert all(f.backward is not None and f.backward.ratios for f in report.findings)
    assert (name == "t5") == any("db" in f.backward.ratios for f in report.findings if f.backward)
    assert all(("dropout=0.1" in f.semantics) == (name == "gpt2") for f in report.findings if name in dict(MODELS))


SEEDS = {
    "gemma2": ("cap", "the derivative of the cap is left out: dS is not multiplied by 1 − tanh²(s/c)"),
    "gpt_oss": ("sink", "the sink is left out of rowsum(P ⊙ dP), as if the weights of the keys summed to 1"),
}


@pytest.mark.long
@EACH
@pytest.mark.parametrize("name", SEEDS)
def test_a_wrong_backward_pass_is_named(name: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the output is stored here; where scores may be, a cap's derivative of small scores is hidden."""
    wrong, words = SEEDS[name]
    verdicts = {}
    for seed in ("", wrong, "scale"):
        monkeypatch.setattr(f"transformers.models.{name}.modeling_{name}.eager_attention_forward", eager(seed))
        report = trained(made(name, dtype), inputs(name, dtype), "fused")
        verdicts[seed] = {f.verdict.removeprefix("CERTIFIED WRONG in the backward pass: ") for f in report.findings}
    assert verdicts == {"": {"pass"}, wrong: {words}, "scale": {"dK is not scaled"}}


@EACH
def test_a_wrong_backward_pass_is_named_with_its_layer(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def attention(module: Any, *given: Any, **more: Any) -> Any:
        return eager("scale" if module.layer_idx == 1 else "")(module, *given, **more)

    monkeypatch.setattr("transformers.models.llama.modeling_llama.eager_attention_forward", attention)
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
