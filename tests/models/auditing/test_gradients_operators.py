"""Backward passes through operators: right ones pass, wrong ones are found, and what comes from elsewhere is told."""

from collections.abc import Callable
from typing import Any

import pytest

from symattn import audit
from symattn.models.auditing.audit_report import AuditReport

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
FORMATS = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)


def _scores(q: Any, k: Any) -> Any:
    s = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(torch.ones(q.shape[-2], k.shape[-2]).triu(1).bool(), -torch.inf)
    return torch.softmax(s, -1)


def plain(q: Any, k: Any, v: Any) -> Any:
    return _scores(q, k) @ v


def batched(q: Any, k: Any, v: Any) -> Any:
    """With a bias, by one operator, as in Bloom."""
    a, b, c = (t.flatten(0, 1) for t in (q, k, v))
    s = torch.baddbmm(torch.linspace(-1, 0, 20, dtype=q.dtype).expand(1, 20, 20), a, b.mT, alpha=0.25)
    return torch.bmm(s.float().softmax(-1).to(q.dtype), c).view_as(v)


def fused(q: Any, k: Any, v: Any) -> Any:
    """As code that has imported the function before."""
    return _ATTEND(q, k, v, is_causal=True)


class Unscaled(torch.autograd.Function):  # type: ignore[misc]
    """The weights, whose gradient is given back twice as large."""

    @staticmethod
    def forward(ctx: Any, p: Any) -> Any:
        return p.view_as(p)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return 2 * g


def doubled(q: Any, k: Any, v: Any) -> Any:
    return Unscaled.apply(_scores(q, k)) @ v


_ATTEND = torch.nn.functional.scaled_dot_product_attention


def trained(attend: Callable[..., Any], dtype: Any, beside: bool = False) -> AuditReport:
    torch.manual_seed(0)
    x = [torch.randn(2, 3, 20, 8, dtype=dtype, requires_grad=True) for _ in range(3)]
    with audit(gradients=True) as report:
        out = attend(*x)
        loss = (out * torch.randn_like(out)).sum()
        (loss + sum(t.sum() for t in x) if beside else loss).backward()
    return report


@FORMATS
@pytest.mark.parametrize("attend", [plain, batched, fused], ids=lambda f: f.__name__)
def test_right_operators_pass(attend: Callable[..., Any], dtype: Any) -> None:
    """Arrays that are used elsewhere, too."""
    for beside in (False, True):
        (found,) = trained(attend, dtype, beside).findings
        assert found.verdict == "pass as given"
        assert found.backward is not None
        assert set(found.backward.ratios) == {"dq", "dk", "dv"}


@FORMATS
def test_a_wrong_operator_between_is_found(dtype: Any) -> None:
    (found,) = trained(doubled, dtype).findings
    assert found.backward is not None
    assert found.backward.wrong == ["dQ", "dK"]


def test_a_gradient_that_does_not_come_through_the_output_is_told() -> None:
    def regular(q: Any, k: Any, v: Any) -> Any:
        p = _scores(q, k)
        return torch.cat([p @ v, p.square().sum(-1, keepdim=True)], -1)

    (found,) = trained(regular, torch.float32).findings
    assert found.verdict.startswith("CANNOT TELL of gradients: a gradient came through something else")


def test_scores_of_two_products_are_told_not_to_be_seen() -> None:
    def relative(q: Any, k: Any, v: Any) -> Any:
        return torch.softmax(q @ k.mT + (q @ torch.ones(8, 20, requires_grad=True)), -1) @ v

    (found,) = trained(relative, torch.float32).findings
    assert found.verdict.startswith("CANNOT TELL of gradients: it is spelled out in operators")


@pytest.mark.parametrize("frozen", ["q", "qk", "v"])
def test_what_has_no_gradient_is_left_out(frozen: str) -> None:
    q, k, v = (torch.randn(1, 2, 5, 4, requires_grad=n not in frozen) for n in "qkv")
    with audit(gradients=True) as report:
        plain(q, k, v).sum().backward()
    (found,) = report.findings
    assert found.backward is not None
    assert (found.verdict, set(found.backward.ratios)) == ("pass as given", {f"d{n}" for n in "qkv" if n not in frozen})


def test_a_mask_that_was_changed_is_told() -> None:
    q, mask = torch.randn(1, 2, 5, 4, requires_grad=True), torch.zeros(5, 5)
    with audit(gradients=True) as report:
        loss = (torch.softmax(q @ q.mT + mask, -1) @ q).sum()
        mask += torch.eye(5)
        loss.backward()
    assert "the mask was changed in place between the call and its backward pass" in report.findings[0].verdict


def test_what_has_no_gradient_passes() -> None:
    q = torch.randn(1, 2, 5, 4)
    with audit(gradients=True) as report:
        plain(q, q, q).sum()
    assert [(f.verdict, f.backward) for f in report.findings] == [("pass as given", None)]


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpoint_runs_again_is_judged_once(reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    q = torch.randn(1, 1, 4, 2, requires_grad=True)
    with audit(gradients=True) as report:
        checkpoint(lambda x: plain(x, x, x), q, use_reentrant=reentrant).sum().backward()
    assert {f.verdict for f in report.findings} == {"pass as given"}
    assert sum(bool(f.backward) for f in report.findings) == 1
