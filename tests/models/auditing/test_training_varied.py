"""Training with caps, sinks and biases: right backward passes pass, wrong ones are named, learned biases are judged."""

from typing import Any

import pytest

from symattn import audit
from tests.models.auditing.families import inputs, made, trained
from tests.models.auditing.varied import eager, varied

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
FORMATS = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)


@FORMATS
@pytest.mark.parametrize("shape", [(1, 3, 20, 20), (2, 1, 1, 20)], ids=str)
def test_the_gradient_of_a_bias_is_judged_where_it_arrives(shape: tuple[int, ...], dtype: Any) -> None:
    """Summed over the items, heads and queries that share it; a mask forbids besides."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 20, 8, dtype=dtype, requires_grad=True) for _ in range(3))
    bias = torch.randn(shape, dtype=dtype, requires_grad=True)
    found = {}
    for wrong, attend in (
        ("", torch.nn.functional.scaled_dot_product_attention),
        ("bias", lambda q, k, v, attn_mask: varied("bias")(q, k, v, 8**-0.5, attn_mask)),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)
            with audit(gradients=True) as report:
                o = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
                (o * torch.randn_like(o)).sum().backward()
        (found[wrong],) = report.findings
    assert found[""].verdict == "pass as given"
    assert found[""].backward is not None
    assert set(found[""].backward.ratios) == {"dq", "dk", "dv", "db"}
    assert found["bias"].verdict == "CERTIFIED WRONG in the backward pass: dB: no known mistake explains it"


def test_a_bias_whose_gradient_does_not_come_is_told() -> None:
    q = torch.randn(1, 1, 5, 4, requires_grad=True)
    bias = torch.randn(5, 5, requires_grad=True)
    attend = torch.nn.functional.scaled_dot_product_attention
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            torch.nn.functional, "scaled_dot_product_attention", lambda q, k, v, m: attend(q, k, v, m.detach())
        )
        with audit(gradients=True) as report:
            torch.nn.functional.scaled_dot_product_attention(q, q, q, bias).sum().backward()
    assert report.findings[0].verdict.startswith("CANNOT TELL of gradients: dB: no such gradient came")


def test_a_large_bias_is_told_not_to_be_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("symattn.models.auditing.call_gradients._SCORES", 1000)
    q, bias = torch.randn(2, 2, 20, 4, requires_grad=True), torch.randn(20, 20, requires_grad=True)
    with audit(gradients=True, rows=8) as report:
        torch.nn.functional.scaled_dot_product_attention(q, q, q, bias).sum().backward()
    (found,) = report.findings
    assert found.verdict.startswith("CANNOT TELL of gradients: the gradient of what is added to scores is judged where")
    assert found.backward is not None
    assert set(found.backward.ratios) == {"dq", "dk", "dv"}


MODELS = [
    ("gemma2", "eager"),
    ("gpt_oss", "eager"),
    ("t5", "eager"),
    ("t5", "sdpa"),
    ("bloom", "eager"),
    ("gpt_neo", "eager"),
]


@pytest.mark.transformers
@FORMATS
@pytest.mark.parametrize(("name", "implementation"), MODELS)
def test_right_models_are_not_accused(name: str, implementation: str, dtype: Any) -> None:
    report = trained(made(name, dtype, implementation), inputs(name, dtype, "right" if name != "t5" else "none"))
    assert {f.verdict.partition(" (")[0] for f in report.findings} == {"pass"}
    assert all(f.backward is not None and f.backward.ratios for f in report.findings)
    assert (name == "t5") == any("db" in f.backward.ratios for f in report.findings if f.backward)


SEEDS = {
    "gemma2": ("cap", "the derivative of the cap is left out: dS is not multiplied by 1 − tanh²(s/c)"),
    "gpt_oss": ("sink", "the sink is left out of rowsum(P ⊙ dP), as if the weights of the keys summed to 1"),
}


@pytest.mark.transformers
@FORMATS
@pytest.mark.parametrize("name", SEEDS)
def test_a_wrong_backward_pass_is_named(name: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the output is stored here; where scores may be, a cap's derivative of small scores is hidden."""
    wrong, words = SEEDS[name]
    found = {}
    for seed in ("", wrong, "scale"):
        monkeypatch.setattr(f"transformers.models.{name}.modeling_{name}.eager_attention_forward", eager(seed))
        report = trained(made(name, dtype), inputs(name, dtype), "fused")
        found[seed] = {f.verdict.removeprefix("CERTIFIED WRONG in the backward pass: ") for f in report.findings}
    assert found == {"": {"pass"}, wrong: {words}, "scale": {"dK is not scaled"}}
