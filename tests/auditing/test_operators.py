"""Attention that is spelled out is read from its operators; what is not understood is told as such."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from symattn import audit

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


def _causal(scores: Any) -> Any:
    n = scores.shape[-1]
    return scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))


def _added(scores: Any) -> Any:
    n = scores.shape[-1]
    return scores + torch.full((n, n), torch.finfo(scores.dtype).min).triu(1)


RIGHT: dict[str, Callable[[Any], Any]] = {
    "filled": lambda s: _causal(s).softmax(-1),
    "added": lambda s: _added(s).softmax(-1),
    "chosen": lambda s: torch.where(torch.ones(9, 9).tril().bool(), s, float("-inf")).softmax(-1),
    "capped": lambda s: _causal(torch.tanh(s / 3) * 3).softmax(-1),
    "in place": lambda s: s.mul_(2).softmax(-1),
    "in float32": lambda s: torch.nn.functional.softmax(s, dim=-1, dtype=torch.float32).to(s.dtype),
}
UNREAD: dict[str, Callable[[Any], Any]] = {
    "an operator without a rule": lambda s: s.sin().softmax(-1),
    "other weights": lambda s: s.softmax(-1) ** 2,
    "over queries": lambda s: s.softmax(-2),
    "times a mask": lambda s: s.softmax(-1) * torch.ones(9, 9).tril(),
}


@pytest.mark.parametrize("name", RIGHT)
def test_attention_in_operators_is_read(name: str) -> None:
    torch.manual_seed(0)
    model = Spelled(RIGHT[name]).eval()
    with torch.no_grad(), audit(model) as report:
        model(torch.randn(2, 9, 16))
    assert [(f.via, f.state) for f in report.findings] == [("operators", "pass")]


@pytest.mark.parametrize("name", UNREAD)
def test_what_is_not_understood_is_no_pass(name: str) -> None:
    model = Spelled(UNREAD[name]).eval()
    with torch.no_grad(), audit(model) as report:
        model(torch.randn(2, 9, 16))
    assert [f.state for f in report.findings] == ["cannot tell"]
    assert report.exit_code == 3


def test_a_cap_that_is_read_is_judged() -> None:
    model = Spelled(RIGHT["capped"]).eval()
    with torch.no_grad(), audit(model) as report:
        model(torch.randn(2, 9, 16))
    assert "softcap=3" in report.findings[0].semantics


@pytest.mark.parametrize("weights", [True, False])
def test_torchs_own_module_is_read(weights: bool) -> None:
    model = torch.nn.MultiheadAttention(16, 2, batch_first=True).train()
    x = torch.randn(2, 9, 16, requires_grad=True)
    with audit(model) as report:
        model(x, x, x, need_weights=weights)
    assert [f.state for f in report.findings] == ["pass"]
    assert report.findings[0].semantics.startswith("2 heads 9×9")


def test_the_fast_path_of_an_encoder_cannot_be_told() -> None:
    model = torch.nn.TransformerEncoderLayer(16, 2, batch_first=True).eval()
    with torch.no_grad(), audit(model) as report:
        model(torch.randn(2, 9, 16))
    assert [f.state for f in report.findings] == ["cannot tell"]
    assert "fused operator" in report.findings[0].via


def test_a_softmax_that_chooses_is_no_attention() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Softmax(-1))
    with audit(model) as report:
        model(torch.randn(2, 4))
    assert (report.findings, report.others) == ([], 1)
    assert "taken for no attention" in report.text()


def test_other_threads_are_followed() -> None:
    model = Spelled(RIGHT["filled"]).eval()
    with audit(model) as report:
        threads = [threading.Thread(target=model, args=(torch.randn(2, 9, 16),)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [f.state for f in report.findings] == ["pass"] * 3


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
    assert [f.state for f in report.findings] == ["pass"]
