"""Backward passes of audited calls: right ones pass, seeded faults are found and named, undecided ones are reported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from symattn import audit
from symattn.models.auditing.audit_report import AuditReport
from symattn_cli.main import main
from tests.models.auditing.written import (
    Grads,
    drawn_again,
    dropped,
    dropping,
    forgotten,
    of_values,
    right,
    unmasked,
    unscaled,
    without_sums,
    written,
)

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def trained(attend: Callable[..., Any] | None, dtype: Any, monkeypatch: pytest.MonkeyPatch, **told: Any) -> AuditReport:
    """An audit of one call and its backward pass, by a function in the place of torch's own."""
    torch.manual_seed(0)
    if attend is not None:
        monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)
    q, k, v = (torch.randn(2, 3, 20, 8, dtype=dtype, requires_grad=True) for _ in range(3))
    with audit(gradients=True) as report:
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, **told)
        (o * torch.randn_like(o)).sum().backward()
    return report


FORMATS = [torch.float32, torch.bfloat16, torch.float16]
SEEDS = {
    "dK is not scaled": unscaled,
    "the sums over the rows, rowsum(P ⊙ dP), are not subtracted": without_sums,
    "the mask is left out of the backward pass": unmasked,
}


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize("words", SEEDS)
def test_a_seeded_fault_is_found_and_named(words: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    report = trained(written(SEEDS[words]), dtype, monkeypatch, is_causal=True)
    (found,) = report.findings
    assert found.forward == "pass as given"
    assert found.verdict == f"CERTIFIED WRONG in the backward pass: {words}"
    assert report.exit_code == 1
    with pytest.raises(AssertionError, match="in the backward pass"):
        report.raise_if_wrong()


@pytest.mark.parametrize("dtype", [*FORMATS, torch.float64], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_right_backward_passes_are_not_accused(dtype: Any, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [None] if dtype is torch.float64 else [None, written(right)]  # which computes in float32
    for attend in kernels:
        report = trained(attend, dtype, monkeypatch, is_causal=causal)
        assert [f.verdict for f in report.findings] == ["pass as given"]
        assert report.coverage == "coverage: 1 of 1 calls read, 0 compared with a configuration, gradients of 1 judged"
        assert 0 < max(report.findings[0].backward.ratios.values()) <= 1  # type: ignore[union-attr]


def test_arrays_that_are_used_elsewhere_are_not_accused() -> None:
    x = torch.randn(1, 2, 70, 4, requires_grad=True)
    mask = torch.rand(70, 70) < 0.7
    with audit(gradients=True, rows=5) as report:
        o = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask | torch.eye(70).bool())
        (
            x + o + torch.nn.functional.scaled_dot_product_attention(x * 2, x[:, :1], x[:, 1:], enable_gqa=True)
        ).sum().backward()
    assert [f.verdict for f in report.findings] == ["pass as given", "pass as given"]
    assert all(set(f.backward.ratios) == {"dq", "dk", "dv"} for f in report.findings if f.backward)


def test_a_gradient_that_does_not_come_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    report = trained(written(lambda *given: (right(*given)[0], None, right(*given)[2])), torch.float32, monkeypatch)
    assert report.findings[0].verdict.startswith("CANNOT TELL of gradients: dK: no such gradient came")
    assert report.exit_code == 3


def test_what_has_no_backward_pass_is_told() -> None:
    q = torch.randn(1, 1, 4, 2, requires_grad=True)
    with audit(gradients=True) as report:
        torch.nn.functional.scaled_dot_product_attention(q, q, q)
        with torch.no_grad():
            torch.nn.functional.scaled_dot_product_attention(q, q, q)
    waiting, bare = report.findings
    assert "no gradient of its output came while the audit ran" in waiting.verdict
    assert (bare.verdict, bare.backward) == ("pass as given", None)


def _within(attend: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch's own kind that attends in its forward pass, and gives back what is wrong."""

    class Within(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any) -> Any:
            return attend(q, k, v)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g, g, g

    return lambda *given: Within.apply(*given)


HIDDEN = {
    "operators": written(unscaled),
    "torch sdpa": _within(lambda *given: torch.nn.functional.scaled_dot_product_attention(*given)),
}


@pytest.mark.parametrize("via", HIDDEN)
def test_gradients_inside_of_a_function_are_not_passed(via: str) -> None:
    attend = HIDDEN[via]

    class Layer(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.projected = torch.nn.Linear(4, 12)

        def forward(self, x: Any) -> Any:
            return attend(*(t[None, None] for t in self.projected(x).chunk(3, -1)))

    layer, x = Layer(), torch.randn(6, 4)
    with audit(layer, gradients=True) as report:
        layer(x).sum().backward()
        with torch.no_grad():
            layer(x)
    unseen, bare = report.findings
    assert unseen.verdict.startswith("CANNOT TELL of gradients: it runs inside of a torch.autograd.Function")
    assert (unseen.via, bare.verdict, report.exit_code) == (via, "pass as given", 3)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_layer_that_a_checkpoint_runs_again_is_judged_once(reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    q = torch.randn(1, 1, 4, 2, requires_grad=True)
    attend = torch.nn.functional
    with audit(gradients=True) as report:
        run: Any = lambda x: attend.scaled_dot_product_attention(x, x, x)  # noqa: E731
        checkpoint(run, q, use_reentrant=reentrant).sum().backward()
    assert {f.verdict for f in report.findings} == {"pass as given"}
    assert sum(bool(f.backward) for f in report.findings) == 1


def test_gradients_do_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = (torch.randn(2, 3, 9, 4, requires_grad=True) for _ in range(3))

    def run() -> Grads:
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        found: Grads = torch.autograd.grad(o.square().sum(), (q, k, v))
        return found

    plain = run()
    with audit(gradients=True):
        audited = run()
    assert all(torch.equal(a, b) for a, b in zip(plain, audited, strict=True))


def test_the_command_judges_gradients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "import torch\nq = torch.randn(1, 2, 5, 4, requires_grad=True)\n"
        "torch.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()\n"
    )
    assert main(["audit", "--gradients", str(path)]) == 0
    assert "gradients of 1 judged" in " ".join(capsys.readouterr().out.split())
    assert main(["audit", "--gradients", "-f", "json", str(path)]) == 0
    assert f"symattn audit --gradients {path}" in capsys.readouterr().out


# -- dropout -----------------------------------------------------------------------------------------------------------
DROPPED = {
    "dropout is left out of the backward pass": forgotten,
    "dropout is left out of dV": of_values,
    "dQ, dK, dV: no known mistake explains it": drawn_again,
}


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize("words", DROPPED)
def test_dropout_that_the_backward_pass_lacks_is_named(words: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = trained(dropping(DROPPED[words]), dtype, monkeypatch, dropout_p=0.3).findings
    assert found.forward == "pass as given"
    assert found.verdict == f"CERTIFIED WRONG in the backward pass: {words}"


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_right_dropout_is_not_accused(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for attend in (None, dropping(dropped)):
        (found,) = trained(attend, dtype, monkeypatch, dropout_p=0.3).findings
        assert found.verdict == "pass as given"
        assert "dropout=0.3" in found.semantics
        assert found.backward is not None
        assert found.backward.heads == 6


def test_an_output_without_its_dropout_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    attend = torch.nn.functional.scaled_dot_product_attention

    def ignoring(q: Any, k: Any, v: Any, dropout_p: float) -> Any:
        torch.empty(2, 3, 20, 20).bernoulli_(1 - dropout_p)
        return attend(q, k, v)

    (found,) = trained(ignoring, torch.float32, monkeypatch, dropout_p=0.3).findings
    assert (found.forward, found.certified) == ("wrong", True)


def test_dropout_that_is_not_seen_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = torch.rand(20, 20) < 0.7

    def hidden(q: Any, k: Any, v: Any, dropout_p: float) -> Any:
        return (torch.softmax(q @ k.mT / 8**0.5, -1) * kept / (1 - dropout_p)) @ v

    (found,) = trained(hidden, torch.float32, monkeypatch, dropout_p=0.3).findings
    assert found.verdict == "CANNOT TELL: dropout of 0.3 is on, and what it drops was not seen; hint: model.eval()"


# -- mixed precision ---------------------------------------------------------------------------------------------------
def test_arrays_that_autocast_narrows_are_judged_in_its_format() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 20, 8, requires_grad=True) for _ in range(3))
    with audit(gradients=True) as report:
        with torch.autocast("cpu", torch.bfloat16):
            o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        (o * torch.randn_like(o)).sum().backward()
    (found,) = report.findings
    assert (found.verdict, o.dtype) == ("pass as given", torch.bfloat16)
    assert "bfloat16" in found.semantics
    assert found.backward is not None
    assert 1e-3 < max(found.backward.ratios.values()) <= 1
