"""Attention that is spelled out is read from its operators; what is not understood is told as such."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from symattn import audit, reports

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Spelled(torch.nn.Module):  # type: ignore[misc, name-defined]
    """One head, causal, in the operators of ``body(scores) → weights``."""

    def __init__(self, body: Callable[[Any], Any]) -> None:
        super().__init__()
        self.project, self.body = torch.nn.Linear(16, 48), body

    def forward(self, x: Any) -> Any:
        q, k, v = self.project(x).chunk(3, dim=-1)
        return self.body(q @ k.transpose(-1, -2) / 4) @ v


def heard(model: Any) -> reports.AuditReport:
    """An audit of one pass of a model, or of one head that is spelled out so."""
    torch.manual_seed(0)
    model = model if isinstance(model, torch.nn.Module) else Spelled(model)
    with torch.no_grad(), audit(model.eval()) as report:
        model(torch.randn(2, 9, 16))
    return report


def states(report: reports.AuditReport) -> list[str]:
    return [f.state for f in report.findings]


def _causal(scores: Any) -> Any:
    n = scores.shape[-1]
    return scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))


def _added(scores: Any) -> Any:
    n = scores.shape[-1]
    return scores + torch.full((n, n), torch.finfo(scores.dtype).min).triu(1)


def _by_exponentials(scores: Any, in_place: bool = False) -> Any:
    e = scores - scores.amax(-1, keepdim=True)
    e = e.exp_() if in_place else e.exp()
    total = e.sum(-1)[..., None]
    return e.div_(total) if in_place else e / total


RIGHT: dict[str, Callable[[Any], Any]] = {
    "filled": lambda s: _causal(s).softmax(-1),
    "added": lambda s: _added(s).softmax(-1),
    "chosen": lambda s: torch.where(torch.ones(9, 9).tril().bool(), s, float("-inf")).softmax(-1),
    "capped": lambda s: _causal(torch.tanh(s / 3) * 3).softmax(-1),
    "in place": lambda s: s.mul_(2).softmax(-1),
    "a number added": lambda s: (s + 3).softmax(-1),
    "cut where it is forbidden": lambda s: torch.max(_added(s), torch.full((), torch.finfo(s.dtype).min)).softmax(-1),
    "clamped where it is forbidden": lambda s: _added(s).clamp(min=torch.finfo(s.dtype).min).softmax(-1),
    "by exponentials": lambda s: _by_exponentials(_causal(s)),
    "by exponentials in place": lambda s: _by_exponentials(_causal(s), in_place=True),
    "by exponentials without a maximum": lambda s: (e := s.exp()) / e.sum(-1, keepdim=True),
    "by exponentials, the maximum along an axis": lambda s: (
        (e := (s - s.max(-1, keepdim=True).values).exp()) / e.sum(-1, True)
    ),
    "by exponentials in two calls": lambda s: s.exp() / s.exp().sum(-1, keepdim=True),
    "in float32": lambda s: torch.nn.functional.softmax(s, dim=-1, dtype=torch.float32).to(s.dtype),
}


def _masked_by_parts(scores: Any) -> Any:
    for i in range(scores.shape[-2]):
        scores[..., i, i + 1 :] = -float("inf")
    return scores.softmax(-1)


def _padded_in_place(scores: Any) -> Any:
    scores[:, :, torch.arange(9) > 6] = -float("inf")
    return scores.softmax(-1)


def _mask_changed(scores: Any) -> Any:
    mask = torch.zeros(9, 9)
    weights = (scores + mask).softmax(-1)
    mask.fill_(-float("inf"))
    return weights


UNREAD: dict[str, Callable[[Any], Any]] = {
    "an operator without a rule": lambda s: s.sin().softmax(-1),
    "other weights": lambda s: s.softmax(-1) ** 2,
    "over queries": lambda s: s.softmax(-2),
    "parts set in place": _masked_by_parts,
    "an index set in place": _padded_in_place,
    "clamped in place": lambda s: s.clamp_(-0.5, 0.5).softmax(-1),
    "copied into": lambda s: s.copy_(s.sin()).softmax(-1),
    "added to itself": lambda s: s.add_(s).softmax(-1),
    "written by out=": lambda s: torch.mul(s.sin(), 2, out=s).softmax(-1),
    "a mask that is changed afterwards": _mask_changed,
    "a number added before a cap": lambda s: torch.tanh(s + 3).softmax(-1),
    "cast to whole numbers": lambda s: (3 * s).long().float().softmax(-1),
    "in other rows": lambda s: s.view(2, 3, 27).softmax(-1).view(2, 9, 9),
    "cut below": lambda s: s.clamp(min=-0.5).softmax(-1),
    "sums over queries": lambda s: (e := s.exp()) / e.sum(-2, keepdim=True),
    "sums of other exponentials": lambda s: s.exp() / (2 * s).exp().sum(-1, keepdim=True),
    "exponentials times a mask": lambda s: s.exp() * torch.ones(9, 9).tril(),
    "times a mask": lambda s: s.softmax(-1) * torch.ones(9, 9).tril(),
}


@pytest.mark.parametrize("name", RIGHT)
def test_attention_in_operators_is_read(name: str) -> None:
    assert [(f.via, f.state) for f in heard(RIGHT[name]).findings] == [("operators", "pass as given")]


def test_inference_mode_hides_nothing() -> None:
    torch.manual_seed(0)
    model, x = Spelled(RIGHT["filled"]).eval(), torch.randn(2, 9, 16)
    with torch.inference_mode():
        plain = model(x)
        with audit(model) as report:
            audited = model(x)
        model.body = UNREAD["clamped in place"]
        with audit(model) as other:
            model(x)
    assert torch.equal(plain, audited)
    assert states(report) == ["pass as given"]
    assert states(other) == ["cannot tell"]


@pytest.mark.parametrize("name", UNREAD)
def test_what_is_not_understood_is_no_pass(name: str) -> None:
    report = heard(UNREAD[name])
    assert set(states(report)) == {"cannot tell"}
    assert report.exit_code == 3


def test_a_cap_that_is_read_is_judged() -> None:
    assert "softcap=3" in heard(RIGHT["capped"]).findings[0].semantics


@pytest.mark.parametrize("least", [-1e4, -1e9, torch.finfo(torch.float32).min])
def test_rows_that_a_column_forbids_are_left_out(least: float) -> None:
    column = torch.zeros(9, 1)
    column[:3] = least
    report = heard(lambda s: (s + column).softmax(-1))
    assert [(f.state, f.empty) for f in report.findings] == [("pass as given", 6)]


@pytest.mark.parametrize("weights", [True, False])
def test_torchs_own_module_is_read(weights: bool) -> None:
    model = torch.nn.MultiheadAttention(16, 2, batch_first=True).train()
    x = torch.randn(2, 9, 16, requires_grad=True)
    with audit(model) as report:
        model(x, x, x, need_weights=weights)
    assert states(report) == ["pass as given"]
    assert report.findings[0].semantics.startswith("2 heads 9×9")


def test_an_operator_in_a_form_that_is_not_known_cannot_be_told() -> None:
    x, y = torch.randn(2, 9, 16), torch.randn(2, 9, 16)
    packed, proj = (torch.randn(48, 16), torch.randn(48)), (torch.randn(16, 16), torch.randn(16))
    with torch.no_grad(), audit() as report:
        torch._native_multi_head_attention(x, y, y, 16, 2, *packed, *proj)
    (found,) = report.findings
    assert (found.state, found.reason) == ("cannot tell", "its keys are of other tokens than its queries")


def test_queries_that_are_changed_after_their_product_are_no_fault() -> None:
    class Changing(Spelled):
        def forward(self, x: Any) -> Any:
            q, k, v = (t.clone() for t in self.project(x).chunk(3, dim=-1))
            weights = (q @ k.transpose(-1, -2) / 4).softmax(-1)
            q.mul_(2)
            return weights @ v

    report = heard(Changing(RIGHT["filled"]))
    assert "changed in place" in report.findings[0].verdict
    assert report.exit_code == 3


@pytest.mark.parametrize("heads", [True, False])
def test_attention_that_is_lost_is_no_pass(heads: bool) -> None:
    class Lost(Spelled):
        def forward(self, x: Any) -> Any:
            q, k, v = self.project(x).chunk(3, dim=-1)
            weights = torch.softmax(q @ k.mT * torch.ones(9, 1), -1) * torch.ones(9, 9)
            return weights @ torch.nn.functional.scaled_dot_product_attention(q, k, v)

    model = Lost(RIGHT["filled"])
    model.num_heads = 1 if heads else "one"
    report = heard(model)
    assert states(report) == ["pass as given"]
    assert report.exit_code == (3 if heads else 0)
    assert "whether it is attention is unknown" in " ".join(report.text().split())


def test_arrays_without_data_or_storage_run_as_without_an_audit() -> None:
    with audit():
        assert (torch.ones(1, device="meta") * torch.ones(3, device="meta")).shape == (3,)
        assert (torch.eye(3).to_sparse() * torch.ones(3, 3)).to_dense().sum() == 3
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            torch.ones(2, 3) @ torch.ones(2, 3)


def test_an_audit_inside_of_another_hides_nothing_from_it() -> None:
    q = torch.randn(1, 2, 5, 4)
    with audit() as outer:
        with audit() as inner:
            torch.nn.functional.scaled_dot_product_attention(q, q, q)
            (q[0] @ q[0].mT).softmax(-1) @ q[0]
        torch.nn.functional.scaled_dot_product_attention(q, q, q)
    assert states(inner) == ["pass as given"] * 2
    assert states(outer) == ["pass as given"] * 3


def test_a_compiled_module_is_told() -> None:
    model = torch.nn.Linear(2, 2)
    model.compile(backend="eager")
    with audit() as report:
        model(torch.ones(1, 2))
    assert any("is compiled" in note for note in report.notes)


def test_a_softmax_that_chooses_is_not_held_to_be_attention() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Softmax(-1))
    with audit(model) as report:
        model(torch.randn(2, 4))
    assert (report.findings, report.others) == ([], 1)
    assert report.suspect == 0
    assert "whether it is attention is unknown" in " ".join(report.text().split())


def test_other_threads_are_followed() -> None:
    model = Spelled(RIGHT["filled"]).eval()
    with audit(model) as report:
        threads = [threading.Thread(target=model, args=(torch.randn(2, 9, 16),)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert states(report) == ["pass as given"] * 3


def test_other_models_are_left_alone() -> None:
    mine, other = Spelled(RIGHT["filled"]).eval(), Spelled(RIGHT["filled"]).eval()
    with audit(mine) as report:
        other(torch.randn(2, 9, 16))
    assert report.findings == []


def test_inputs_that_are_changed_in_place_are_judged_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.nn.functional.scaled_dot_product_attention

    def destroying(q: Any, k: Any, v: Any) -> Any:
        out = right(q, k, v)
        q.zero_()
        k.zero_()
        return out

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", destroying)
    q, k, v = (torch.randn(1, 2, 9, 8) for _ in range(3))
    with audit() as report:
        torch.nn.functional.scaled_dot_product_attention(q, k, v)
    assert states(report) == ["pass as given"]


def test_an_array_is_no_parameter_because_it_lies_where_one_was() -> None:
    q, k, v = (torch.randn(1, 2, 9, 8) for _ in range(3))
    held: Any = torch.nn.Identity()
    held.weight = torch.nn.Parameter(k, requires_grad=False)  # in the same storage
    with audit() as report:
        held(q)
        (q @ k.mT / 8**0.5).softmax(-1) @ v
        assert states(report) == ["cannot tell"]  # a product with a parameter is a projection
        del held
        (q @ k.mT / 8**0.5).softmax(-1) @ v
    assert states(report) == ["cannot tell", "pass as given"]


class Router(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Which of four experts a token goes to, computed in float32 whatever the model is in."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 16))

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.linear(x.float(), self.weight.float()).softmax(-1)


def test_a_product_with_a_parameter_in_another_format_is_no_scores() -> None:
    router = Router().to(torch.bfloat16)
    with audit(router) as report:
        router(torch.randn(2, 9, 16, dtype=torch.bfloat16))
    assert report.findings == []
    assert report.others == 1
