"""torch's own attention is right in every type; a copy with another scale is not; the orders of its sums are read."""

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import symattn
from symattn import Attention, Domain, Verdict, summation, verify
from symattn.programs.child import verify_target
from tests.verification.sums import Adding, lanes, loop, tiles, tree_of

pytestmark = pytest.mark.torch
SDPA = "torch.nn.functional:scaled_dot_product_attention"
TYPES = ("float64", "float32", "float16", "bfloat16")


@pytest.mark.long
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("spec", "call"),
    [
        (Attention(), []),
        (Attention(causal=True, alignment="top-left"), ["is_causal=true"]),
        (Attention(mask="boolean"), []),
        (Attention(mask="additive"), []),
        (Attention(scale=0.25), []),
        (Attention(heads=4, kv_heads=2), ["enable_gqa=true"]),
        (
            Attention(heads=4, kv_heads=2, causal=True, alignment="top-left"),
            ["enable_gqa=true", "is_causal=true"],
        ),
    ],
    ids=["plain", "causal", "boolean mask", "additive mask", "scale", "groups", "causal groups"],
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
    assert fault.cause == "the causal mask is aligned top-left; expected bottom-right"


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


@pytest.mark.long
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("program", [_in_steps, _in_tiles, _by_log_softmax], ids=lambda p: p.__name__)
def test_right_programs_in_torch(program: Any, dtype: str) -> None:
    assert verify(program, precision=dtype, layout="bhnd", framework="torch", examples=30).faults == ()


torch: Any = pytest.importorskip("torch")


def math(q: Any, k: Any, v: Any) -> Any:
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def flash(q: Any, k: Any, v: Any) -> Any:
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def eager(q: Any, k: Any, v: Any) -> Any:
    from types import SimpleNamespace

    from transformers.models.llama.modeling_llama import eager_attention_forward

    module = SimpleNamespace(num_key_value_groups=1, training=False)
    return eager_attention_forward(module, q, k, v, None, q.shape[-1] ** -0.5)[0].transpose(1, 2)


def told(function: Any) -> Any:
    answer = symattn.arithmetic(
        function, dtype="float32", domain=Domain(same_width=True), layout="bhnd", framework="torch"
    )
    return answer.order


@pytest.mark.parametrize("function", [math, flash, pytest.param(eager, marks=pytest.mark.transformers)])
def test_attention_in_float32_has_an_order_that_explains_it(function: Any) -> None:
    """Which one is the machine's affair: its matrix products decide. All tell one, with float32 inside."""
    found = told(function)
    assert found.tree is not None, found.words
    assert found.widths is not None
    assert found.widths[1].digits == 24


def adds(adding: Adding) -> Any:
    """A sum over rows by tensors alone, in an order that is known whatever the machine."""
    return lambda x: adding(list(x.unbind(-1)))


@pytest.mark.parametrize("adding", [loop, lanes(4), tiles(16)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tensors_are_asked(adding: Adding, dtype: str) -> None:
    found = summation(adds(adding), terms=64, dtype=dtype, framework="torch")
    assert found.tree == tree_of(adding, 64)
    assert found.widths is not None
    assert found.widths[0].digits == {"float32": 24, "bfloat16": 8}[dtype]
