"""Backward passes of audited calls: right ones pass, seeded faults are found and named, undecided ones are reported."""

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from symattn import audit, reports
from symattn_cli.main import main
from tests.models.auditing.written import written

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
FORMATS = (torch.float32, torch.bfloat16, torch.float16)
EACH = pytest.mark.parametrize("dtype", FORMATS, ids=str)
_ATTEND = torch.nn.functional.scaled_dot_product_attention


def ours(*x: Any, **how: Any) -> Any:
    """What stands in the place of torch's own function."""
    return torch.nn.functional.scaled_dot_product_attention(*x, **how)


def audited(
    attend: Callable[..., Any], dtype: Any = torch.float32, beside: bool = False, **how: Any
) -> reports.CallFinding:
    """What is found of one call and its backward pass; ``beside`` it queries, keys and values are used elsewhere."""
    torch.manual_seed(0)
    x = [torch.randn(2, 3, 20, 8, dtype=dtype, requires_grad=True) for _ in range(3)]
    with audit(gradients=True) as report:
        o = attend(*x, **how)
        loss = (o * torch.randn_like(o)).sum()
        (loss + sum(t.sum() for t in x) if beside else loss).backward()
    (finding,) = report.findings
    return finding


def replaced(attend: Callable[..., Any], *given: Any, **how: Any) -> reports.CallFinding:
    """The same of torch's own function, in whose place another one stands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)
        return audited(ours, *given, **how)


def backward(finding: reports.CallFinding) -> Any:
    assert finding.backward is not None
    return finding.backward


_CAUSAL, _DROPPED = {"is_causal": True}, {"dropout_p": 0.3}
#: By what must be said: the mistake, and how it is called.
SEEDS: dict[str, tuple[str, dict[str, Any]]] = {
    "dK is not scaled": ("scale", _CAUSAL),
    "the sums over the rows, rowsum(P ⊙ dP), are not subtracted": ("sums", _CAUSAL),
    "the mask is left out of the backward pass": ("mask", _CAUSAL),
    "dropout is left out of the backward pass": ("dropout", _DROPPED),
    "dropout is left out of dV": ("values", _DROPPED),
    "dQ, dK, dV: no known mistake explains it": ("drawn", _DROPPED),
}


def _in_formats() -> Iterator[Any]:
    """Each fault in one format, so that every format has two; in the others by hand."""
    for (i, words), (j, dtype) in product(enumerate(SEEDS), enumerate(FORMATS)):
        marks = () if i % len(FORMATS) == j else pytest.mark.exhaustive
        yield pytest.param(words, dtype, marks=marks, id=f"{words}-{dtype}")


@pytest.mark.parametrize(("words", "dtype"), [*_in_formats()])
def test_a_seeded_fault_is_found_and_named(words: str, dtype: Any) -> None:
    wrong, how = SEEDS[words]
    finding = replaced(written(wrong), dtype, **how)
    assert finding.forward == "pass as given"
    assert finding.verdict == f"CERTIFIED WRONG in the backward pass: {words}"
    report = reports.AuditReport("one call", [finding])
    assert report.exit_code == 1
    with pytest.raises(AssertionError, match="in the backward pass"):
        report.raise_if_wrong()


@pytest.mark.parametrize("dtype", [*FORMATS, torch.float64], ids=str)
@pytest.mark.parametrize("how", [{}, _CAUSAL, _DROPPED], ids=str)
def test_right_backward_passes_are_not_accused(dtype: Any, how: dict[str, Any]) -> None:
    for attend in [_ATTEND] if dtype is torch.float64 else [_ATTEND, written()]:  # which computes in float32
        finding = replaced(attend, dtype, **how)
        assert finding.verdict == "pass as given"
        assert 0 < max(backward(finding).ratios.values()) <= 1
        assert ("dropout=0.3" in finding.semantics) == (how is _DROPPED)
        assert backward(finding).heads == 6


def test_arrays_that_are_used_elsewhere_are_not_accused() -> None:
    x = torch.randn(1, 2, 70, 4, requires_grad=True)
    mask = torch.rand(70, 70) < 0.7
    with audit(gradients=True, rows=5) as report:
        o = ours(x, x, x, attn_mask=mask | torch.eye(70).bool())
        (x + o + ours(x * 2, x[:, :1], x[:, 1:], enable_gqa=True)).sum().backward()
    assert [f.verdict for f in report.findings] == ["pass as given", "pass as given"]
    assert all(set(backward(f).ratios) == {"dq", "dk", "dv"} for f in report.findings)
    assert report.coverage == "coverage: 2 of 2 calls read, 0 compared with a configuration, gradients of 2 judged"


def test_a_gradient_that_does_not_come_is_told() -> None:
    finding = replaced(written("key"))
    assert finding.verdict.startswith("CANNOT TELL of gradients: dK: no such gradient came")
    assert reports.AuditReport("one call", [finding]).exit_code == 3


@pytest.mark.parametrize("attend", [ours, lambda q, k, v: _scores(q, k) @ v], ids=["sdpa", "operators"])
def test_what_has_no_backward_pass_is_told(attend: Callable[..., Any]) -> None:
    q = torch.randn(1, 1, 4, 2, requires_grad=True)
    with audit(gradients=True) as report:
        attend(q, q, q)
        with torch.no_grad():
            attend(q, q, q)
        attend(*[q.detach()] * 3)
    waiting, *bare = report.findings
    assert "no gradient of its output came while the audit ran" in waiting.verdict
    assert [(f.verdict, f.backward) for f in bare] == [("pass as given", None)] * 2


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


HIDDEN = {"operators": written("scale"), "torch sdpa": _within(ours)}


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
@pytest.mark.parametrize("attend", [ours, lambda q, k, v: _scores(q, k) @ v], ids=["sdpa", "operators"])
def test_a_layer_that_a_checkpoint_runs_again_is_judged_once(attend: Callable[..., Any], reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    q = torch.randn(1, 1, 4, 2, requires_grad=True)
    with audit(gradients=True) as report:
        checkpoint(lambda x: attend(x, x, x), q, use_reentrant=reentrant).sum().backward()
    assert {f.verdict for f in report.findings} == {"pass as given"}
    assert sum(bool(f.backward) for f in report.findings) == 1


def test_gradients_do_not_change() -> None:
    q, k, v = (torch.randn(2, 3, 9, 4, requires_grad=True) for _ in range(3))

    def run() -> Any:
        return torch.autograd.grad(ours(q, k, v, is_causal=True).square().sum(), (q, k, v))

    plain_grads = run()
    with audit(gradients=True):
        audited_grads = run()
    assert all(torch.equal(a, b) for a, b in zip(plain_grads, audited_grads, strict=True))


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


# -- dropout and mixed precision ---------------------------------------------------------------------------------------
def test_an_output_without_its_dropout_is_wrong() -> None:
    def ignoring(q: Any, k: Any, v: Any, dropout_p: float) -> Any:
        torch.empty(2, 3, 20, 20).bernoulli_(1 - dropout_p)
        return _ATTEND(q, k, v)

    finding = replaced(ignoring, **_DROPPED)
    assert (finding.forward, finding.certified) == ("wrong", True)


def test_dropout_that_is_not_seen_is_told() -> None:
    kept = torch.rand(20, 20) < 0.7

    def hidden(q: Any, k: Any, v: Any, dropout_p: float) -> Any:
        return (torch.softmax(q @ k.mT / 8**0.5, -1) * kept / (1 - dropout_p)) @ v

    words = "CANNOT TELL: dropout of 0.3 is on, and what it drops was not seen; hint: model.eval()"
    assert replaced(hidden, **_DROPPED).verdict == words


def test_arrays_that_autocast_narrows_are_judged_in_its_format() -> None:
    def narrowed(*x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return ours(*x, is_causal=True)

    finding = audited(narrowed)
    assert finding.verdict == "pass as given"
    assert "bfloat16" in finding.semantics
    assert 1e-3 < max(backward(finding).ratios.values()) <= 1


# -- biases ------------------------------------------------------------------------------------------------------------
@EACH
@pytest.mark.parametrize("shape", [(1, 3, 20, 20), (2, 1, 1, 20)], ids=str)
def test_the_gradient_of_a_bias_is_judged_where_it_arrives(shape: tuple[int, ...], dtype: Any) -> None:
    """Summed over the items, heads and queries that share it."""
    bias = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(1)).requires_grad_()
    right = replaced(_ATTEND, dtype, attn_mask=bias)
    assert right.verdict == "pass as given"
    assert set(backward(right).ratios) == {"dq", "dk", "dv", "db"}
    wrong = replaced(lambda q, k, v, attn_mask: written("bias")(q, k, v, bias=attn_mask), dtype, attn_mask=bias)
    assert wrong.verdict == "CERTIFIED WRONG in the backward pass: dB: no known mistake explains it"


def test_a_bias_whose_gradient_does_not_come_is_told() -> None:
    bias = torch.randn(20, 20, requires_grad=True)
    finding = replaced(lambda q, k, v, attn_mask: _ATTEND(q, k, v, attn_mask.detach()), attn_mask=bias)
    assert finding.verdict.startswith("CANNOT TELL of gradients: dB: no such gradient came")


def test_a_large_bias_is_told_not_to_be_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("symattn.models.auditing.call_gradients._SCORES", 1000)
    q, bias = torch.randn(2, 2, 20, 4, requires_grad=True), torch.randn(20, 20, requires_grad=True)
    with audit(gradients=True, rows=8) as report:
        ours(q, q, q, bias).sum().backward()
    (finding,) = report.findings
    assert finding.verdict.startswith(
        "CANNOT TELL of gradients: the gradient of what is added to scores is judged where"
    )
    assert set(backward(finding).ratios) == {"dq", "dk", "dv"}


# -- attention in operators --------------------------------------------------------------------------------------------
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


@EACH
@pytest.mark.parametrize("attend", [plain, batched, fused], ids=lambda f: f.__name__)
def test_right_operators_pass(attend: Callable[..., Any], dtype: Any) -> None:
    """Arrays that are used elsewhere, too."""
    for beside in (False, True):
        finding = audited(attend, dtype, beside)
        assert finding.verdict == "pass as given"
        assert set(backward(finding).ratios) == {"dq", "dk", "dv"}


@pytest.mark.parametrize(
    "dtype", [pytest.param(f, marks=() if f != torch.float16 else pytest.mark.exhaustive) for f in FORMATS], ids=str
)
def test_a_wrong_operator_between_is_found(dtype: Any) -> None:
    assert backward(audited(lambda q, k, v: Unscaled.apply(_scores(q, k)) @ v, dtype)).wrong == ["dQ", "dK"]


def _regular(q: Any, k: Any, v: Any) -> Any:
    p = _scores(q, k)
    return torch.cat([p @ v, p.square().sum(-1, keepdim=True)], -1)


def _of_two_products(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.mT + (q @ torch.ones(8, 20, requires_grad=True)), -1) @ v


@pytest.mark.parametrize(
    ("attend", "words"),
    [(_regular, "a gradient came through something else"), (_of_two_products, "it is spelled out in operators")],
)
def test_what_cannot_be_told_of_operators_is_said(attend: Callable[..., Any], words: str) -> None:
    assert audited(attend).verdict.startswith(f"CANNOT TELL of gradients: {words}")


@pytest.mark.parametrize("frozen", ["q", "qk", "v"])
def test_what_has_no_gradient_is_left_out(frozen: str) -> None:
    q, k, v = (torch.randn(1, 2, 5, 4, requires_grad=n not in frozen) for n in "qkv")
    with audit(gradients=True) as report:
        plain(q, k, v).sum().backward()
    (finding,) = report.findings
    wanted = {f"d{n}" for n in "qkv" if n not in frozen}
    assert (finding.verdict, set(backward(finding).ratios)) == ("pass as given", wanted)


def test_a_mask_that_was_changed_is_told() -> None:
    q, mask = torch.randn(1, 2, 5, 4, requires_grad=True), torch.zeros(5, 5)
    with audit(gradients=True) as report:
        loss = (torch.softmax(q @ q.mT + mask, -1) @ q).sum()
        mask += torch.eye(5)
        loss.backward()
    assert "the mask was changed in place between the call and its backward pass" in report.findings[0].verdict
