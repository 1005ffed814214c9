"""torch's own attention has no fault in any type; attention that sums in float16 is certified wrong in float32."""

from typing import Any

import numpy as np
import pytest

from symattn import Attention, Verdict
from symattn.programs.child import verify_target
from symattn.programs.verify import verify
from symattn.testing import AttentionFault, assert_attention, assert_close_to_exact

pytestmark = pytest.mark.torch
SDPA = "torch.nn.functional:scaled_dot_product_attention"
QUICK: Any = {"examples": 5}
WAYS: dict[str, tuple[Attention, list[str]]] = {
    "plain": (Attention(), []),
    "causal": (Attention(causal=True, alignment="top-left"), ["is_causal=true"]),
    "boolean mask": (Attention(mask="boolean"), []),
    "additive mask": (Attention(mask="additive"), []),
    "grouped queries": (Attention(heads=4, kv_heads=2), ["enable_gqa=true"]),
    "grouped queries, causal": (
        Attention(heads=4, kv_heads=2, causal=True, alignment="top-left"), ["enable_gqa=true", "is_causal=true"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("way", WAYS)
def test_torch_has_no_fault(way: str, dtype: str) -> None:
    spec, call = WAYS[way]
    report = verify_target(SDPA, spec, dtype=dtype, call=call, layout="bhnd", framework="torch", **QUICK)
    assert report.faults == ()
    assert report.verdict is Verdict.NO_FAULT
    assert report.cases > 20


def _summed(add: Any) -> Any:
    """Attention in float32 whose weighted sum of values is taken in float16."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        s = q @ k.mT / q.shape[-1] ** 0.5
        e = np.exp(s - s.max(-1, keepdims=True))
        return add((e / e.sum(-1, keepdims=True))[..., None], v[..., None, :, :])

    return attention


def _numpy_in_half(w: Any, v: Any) -> Any:
    return (w.astype(np.float16) * v.astype(np.float16)).sum(axis=-2, dtype=np.float16).astype(w.dtype)


def _torch_in_half(q: Any, k: Any, v: Any) -> Any:
    import torch

    w = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, dim=-1)
    return (w.half() @ v.half()).to(q.dtype)


@pytest.mark.parametrize("program", [_summed(_numpy_in_half), _torch_in_half], ids=["NumPy", "torch"])
def test_sums_in_float16_are_certified_wrong_in_float32(program: Any) -> None:
    framework = "torch" if program is _torch_in_half else "numpy"
    report = verify(program, Attention(), layout="bhnd", framework=framework, **QUICK)  # type: ignore[arg-type]
    assert report.verdict is Verdict.FAULT
    assert not any(fault.step in ("score", "scale", "mask") for fault in report.faults), report.faults
    assert report.faults[0].counterexample is not None
    half = verify(program, Attention(), precision="float16", layout="bhnd", framework=framework, **QUICK)  # type: ignore[arg-type]
    assert half.verdict is Verdict.NO_FAULT, half.faults


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_outputs_of_torch_are_close_to_the_exact_one(dtype: str) -> None:
    import torch
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, h, 16, 8, generator=generator).to(getattr(torch, dtype)) for h in (4, 2, 2))
    assert_close_to_exact(sdpa(q, k, v, enable_gqa=True), q, k, v, Attention(heads=4, kv_heads=2))
    causal = Attention(heads=4, kv_heads=2, causal=True)
    out = sdpa(q, k, v, enable_gqa=True, is_causal=True)
    assert_close_to_exact(out, q, k, v, causal)
    with pytest.raises(AttentionFault, match="beyond"):
        assert_close_to_exact(sdpa(q, k, v, enable_gqa=True), q, k, v, causal)
    with pytest.raises(AttentionFault, match="beyond"):
        assert_close_to_exact(out.float() + 0.5, q, k, v, causal)


def test_an_assertion_on_a_function_of_torch() -> None:
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    assert_attention(sdpa, Attention(mask="boolean"), layout="bhnd", framework="torch", **QUICK)
    with pytest.raises(AttentionFault, match="scale"):
        assert_attention(
            lambda q, k, v: sdpa(q, k, v, scale=1.0), Attention(), layout="bhnd", framework="torch", **QUICK
        )
