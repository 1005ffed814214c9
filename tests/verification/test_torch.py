"""torch's own attention is right in every type; a copy with another scale is not."""

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from symattn import Attention, Verdict
from symattn.programs.verify import verify
from symattn.programs.verifying import verify_target

pytestmark = pytest.mark.torch
SDPA = "torch.nn.functional:scaled_dot_product_attention"
TYPES = ("float64", "float32", "float16", "bfloat16")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("spec", "call"),
    [
        (Attention(), []),
        (Attention(causal=True, alignment="top-left"), ["is_causal=true"]),
        (Attention(mask="boolean"), []),
        (Attention(mask="additive"), []),
        (Attention(scale=0.25), []),
    ],
    ids=["plain", "causal", "boolean mask", "additive mask", "scale"],
)
def test_torch_has_no_fault(dtype: str, spec: Attention, call: list[str]) -> None:
    report = verify_target(SDPA, spec, dtype=dtype, call=call, layout="bhnd", examples=40)
    assert report.faults == ()
    assert report.verdict is Verdict.NO_FAULT


@pytest.mark.parametrize("dtype", TYPES)
def test_a_copy_with_another_scale(dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = """
        import torch

        def attention(q, k, v):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1 / q.shape[-1])
    """
    Path("attn.py").write_text(dedent(source), encoding="utf-8")
    (fault,) = verify_target("attn.py:attention", dtype=dtype, examples=20).faults
    assert fault.step == "scale"
    assert (fault.cause or fault.message).startswith("scores are scaled by 1/d_k")
    assert fault.counterexample is not None
    assert (fault.counterexample.sizes["n_q"], fault.counterexample.sizes["n_k"]) == (1, 2)


def test_bottom_right_is_not_what_torch_means_by_causal() -> None:
    report = verify_target(SDPA, Attention(causal=True), call=["is_causal=true"], examples=20)
    (fault,) = report.faults
    assert fault.cause == "the causal mask starts at the other corner"


def _in_steps(q: Any, k: Any, v: Any) -> Any:
    import torch

    s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return torch.softmax(s, dim=-1) @ v


def _in_tiles(q: Any, k: Any, v: Any) -> Any:
    import torch

    m = torch.full((*q.shape[:-1], 1), -torch.inf, dtype=q.dtype)
    total, out = torch.zeros_like(m), torch.zeros((*q.shape[:-1], v.shape[-1]), dtype=q.dtype)
    for j in range(0, k.shape[-2], 4):
        s = q @ k[..., j : j + 4, :].transpose(-1, -2) / q.shape[-1] ** 0.5
        grown = torch.maximum(m, s.amax(-1, keepdim=True))
        e, shrink = torch.exp(s - grown), torch.exp(m - grown)
        total = total * shrink + e.sum(-1, keepdim=True)
        out = out * shrink + e @ v[..., j : j + 4, :]
        m = grown
    return out / total


def _by_log_softmax(q: Any, k: Any, v: Any) -> Any:
    import torch

    return torch.exp(torch.log_softmax(q / q.shape[-1] ** 0.5 @ k.transpose(-1, -2), dim=-1)) @ v


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("program", [_in_steps, _in_tiles, _by_log_softmax], ids=lambda p: p.__name__)
def test_right_programs_in_torch(program: Any, dtype: str) -> None:
    assert verify(program, precision=dtype, layout="bhnd", framework="torch", examples=30).faults == ()
