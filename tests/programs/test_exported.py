"""Functions of tensors on residues, by the operators of their exported program: right ones agree, mistakes show."""

from collections.abc import Callable
from typing import Any

import pytest

from symattn import Attention, Domain, InputError, verify
from symattn.bounds.inputs import Sizes
from symattn.programs.calling import agree
from symattn.programs.calls import Target
from symattn.programs.identity import identity
from symattn.programs.request import Request
from symattn.verification.semantics import IdentityResult

torch = pytest.importorskip("torch")

SIZES = (Sizes(), Sizes(4, 9, 16, 5))
GROUPS = Attention(heads=4, kv_heads=2)
Tensor = Any
pytestmark = pytest.mark.deep


def on_residues(function: Callable[..., Any], spec: Attention) -> IdentityResult:
    how = agree(function, Request.of(spec, framework="torch", dtype="float32"))
    return identity(Target(function, how), spec, SIZES)


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT / q.shape[-1] ** 0.5


def by_steps(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    s = (q @ k.transpose(-1, -2)).float() * q.size(-1) ** -0.5
    e = (s - s.max(dim=-1, keepdim=True).values).exp()
    return (e / e.sum(-1, keepdim=True)).to(q.dtype) @ v


def in_place(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    s = torch.einsum("...id,...jd->...ij", q, k)
    s /= q.shape[-1] ** 0.5
    s -= s.amax(-1, keepdim=True)
    return s.exp_().div_(s.sum(-1, keepdim=True)) @ v


def tiles(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    out, total = q.new_zeros(*q.shape[:-1], v.shape[-1]), torch.zeros(q.shape[:-1])
    top = torch.full_like(total, -torch.inf)
    for at in range(0, k.shape[-2], 4):
        s = scores(q, k[..., at : at + 4, :])
        new = torch.maximum(top, s.amax(-1))
        kept, e = torch.exp(top - new), torch.exp(s - new.unsqueeze(-1))
        total, top = total * kept + e.sum(-1), new
        out.mul_(kept[..., None])
        out += e @ v[..., at : at + 4, :]
    return out / total[..., None]


def row_by_row(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    out = torch.empty(*q.shape[:-1], v.shape[-1])
    for i in range(q.shape[-2]):
        p = (q[..., i : i + 1, :] * k).sum(-1).div(q.shape[-1] ** 0.5).log_softmax(-1).exp()
        out[..., i, :] = (p[..., None] * v).sum(-2)
    return out


def in_powers_of_two(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    s = q @ k.mT * (1.44269504 / q.shape[-1] ** 0.5)
    return torch.exp2(s - torch.exp2(s).sum(-1, keepdim=True).log2()) @ v


def by_log_sum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    s = scores(q, k)
    return torch.exp(s - torch.logsumexp(s, -1, keepdim=True)) @ v


def stacked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    rows = [torch.softmax(scores(row[..., None, :], k), -1) @ v for row in q.unbind(-2)]
    return torch.stack(rows, -3).squeeze(-2)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    s = scores(q, k)
    n, m = s.shape[-2:]
    later = torch.ones(n, m, dtype=torch.bool).triu(m - n + 1)
    return s.masked_fill(later | (torch.arange(m) < 0), float("-inf")).softmax(-1) @ v


def masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, scores(q, k), -torch.inf).softmax(-1) @ v


def padded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    n = k.shape[-2]
    half = torch.outer(torch.ones(n), torch.ones(k.shape[-1])) / torch.linalg.vector_norm(torch.ones(4, 1), dim=0)
    s = scores(q, torch.nn.functional.pad(2 * half * k, (0, 0, 2, -n % 4)))
    return s[..., 2 : 2 + n].softmax(-1).nan_to_num(0.0) @ v


def repeated(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    return scores(q, k).softmax(-1) @ v


def unflattened(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q = q.unflatten(-3, (k.shape[-3], q.shape[-3] // k.shape[-3]))
    return (scores(q, k.unsqueeze(-3)).softmax(-1) @ v.unsqueeze(-3)).flatten(-4, -3)


def by_others(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Operators that no table has: torch spells them out."""
    s = torch.addcdiv(torch.zeros_like(scores(q, k)), q @ k.mT, q.new_full((1,), float(q.shape[-1])).sqrt())
    return torch.lerp(v.new_zeros(1), torch.stack([s.softmax(-1) @ v]), 1.0)[0]


RIGHT = [
    (by_steps, Attention()), (in_place, Attention()), (tiles, Attention()), (row_by_row, Attention()),
    (in_powers_of_two, Attention()), (by_log_sum, Attention()), (stacked, Attention()),
    (causal, Attention(causal=True)), (masked, Attention(mask="boolean")), (repeated, GROUPS),
    (unflattened, GROUPS), (padded, Attention()), (by_others, Attention()),
]  # fmt: skip


@pytest.mark.parametrize(("function", "spec"), RIGHT)
def test_a_right_function_of_tensors_is_tested_to_the_bound(function: Callable[..., Any], spec: Attention) -> None:
    found = on_residues(function, spec)
    assert found.agrees, found.reason
    assert found.epsilon is not None
    assert 0 < found.epsilon <= 1e-12


def unwritten(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    out = torch.empty(*q.shape[:-1], v.shape[-1])
    out[..., :-1, :] = (scores(q, k).softmax(-1) @ v)[..., :-1, :]
    return out


def not_rescaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    s = scores(q, k)
    first = s[..., :4].amax(-1, keepdim=True)
    e = torch.cat((torch.exp(s[..., :4] - first), torch.exp(s[..., 4:] - s.amax(-1, keepdim=True))), -1)
    return e / e.sum(-1, keepdim=True) @ v


def in_turn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    r = q.shape[-3] // k.shape[-3]
    return scores(q, k.repeat(*[1] * (k.ndim - 3), r, 1, 1)).softmax(-1) @ v.repeat(*[1] * (v.ndim - 3), r, 1, 1)


WRONG = [
    (lambda q, k, v: (scores(q, k) * (1 + 1e-9)).softmax(-1) @ v, Attention()),
    (lambda q, k, v: scores(q, k).softmax(-2) @ v, Attention()),
    (causal, Attention()),
    (lambda q, k, v: scores(q, k).softmax(-1)[..., :-1] @ v[..., :-1, :], Attention()),
    (unwritten, Attention()), (not_rescaled, Attention()), (in_turn, GROUPS),
]  # fmt: skip


@pytest.mark.parametrize(("function", "spec"), WRONG)
def test_a_mistake_of_a_function_of_tensors_shows(function: Callable[..., Any], spec: Attention) -> None:
    assert on_residues(function, spec).agrees is False


REASONS: dict[str, Callable[..., Any]] = {
    "cannot be exported": lambda q, k, v: q if (q.sum() > 0).item() else v,
    "operator aten.sort is not read": lambda q, k, v: scores(q, k).sort(-1).values @ v,
}


def test_torchs_own_attention_is_taken_as_documented_without_a_bound() -> None:
    found = on_residues(torch.nn.functional.scaled_dot_product_attention, Attention())
    assert found.agrees
    assert found.epsilon is None
    assert "as documented" in " ".join(found.notes)


@pytest.mark.parametrize("words", REASONS)
def test_what_does_not_run_says_why(words: str) -> None:
    found = on_residues(REASONS[words], Attention())
    assert found.agrees is None
    assert words in found.reason


def with_tiny(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    e = scores(q, k).exp()
    return e / (e.sum(-1, keepdim=True) + 1e-20) @ v


def bounded(q: Tensor, k: Tensor, v: Tensor, scale: Tensor) -> Tensor:
    return (q @ k.mT * torch.minimum(scale, torch.tensor(1e30))).softmax(-1) @ v


def cut_off(q: Tensor, k: Tensor, v: Tensor, scale: Tensor) -> Tensor:
    return (q @ k.mT * torch.minimum(scale, torch.tensor(300.0))).softmax(-1) @ v


def cut_off_late(q: Tensor, k: Tensor, v: Tensor, scale: Tensor) -> Tensor:
    weights = torch.exp2(q @ k.mT * torch.clamp(scale * 1.4426950408889634, max=500.0))
    return weights / weights.sum(-1, keepdim=True) @ v


@pytest.mark.parametrize(
    ("function", "spec", "verdict"),
    [(with_tiny, Attention(), "no fault"), (bounded, Attention(scale="given"), "no fault"),
     (cut_off, Attention(scale="given"), "undecided"),
     (cut_off_late, Attention(scale="given"), "undecided")],
)  # fmt: skip
def test_a_difference_that_no_float_shows_needs_a_tiny_number(
    function: Callable[..., Any], spec: Attention, verdict: str
) -> None:
    report = verify(function, spec, framework="torch", examples=20, domain=Domain(max_abs_score=40.0))
    assert report.verdict.value == verdict
    assert any("it differs from the specification" in words for words in (*report.notes, *report.missing))


def test_where_nothing_can_be_exported_floats_judge_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise InputError("torch cannot export")

    monkeypatch.setattr("symattn.programs.graphs.torch_reader.warm", broken)
    report = verify(in_place, framework="torch", examples=0)
    assert report.verdict.value == "no fault"
    assert any("torch cannot export" in note for note in report.notes)


def test_the_grade_of_a_function_of_tensors_is_that_of_the_identity() -> None:
    report = verify(by_steps, framework="torch", precision="bfloat16", examples=0)
    assert report.verdict.value == "no fault"
    assert str(report.grade).startswith("tested")
    assert any(c.epsilon for c in report.checks)
