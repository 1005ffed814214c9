"""Tensors on a device are judged there: what is copied is a verdict. A CPU plays the device here; see ``test_cuda``."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, Verdict, verify
from symattn.testing import AttentionFault, assert_attention, assert_close_to_exact

pytestmark = pytest.mark.torch
N, D = 160, 40
FEW = 2000  # numbers that a verdict takes; q alone has 2 · N · D = 12,800


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU as a device whose tensors are judged where they are."""
    monkeypatch.setattr("symattn.programs.closeness.COPIED", ("mps",))


def drawn(spec: Attention, dtype: str, seed: int = 0) -> dict[str, Any]:
    import torch

    generator = torch.Generator().manual_seed(seed)
    heads = {"q": (spec.heads,), "k": (spec.key_heads,), "v": (spec.key_heads,)}
    shapes = {n: (*(h if spec.heads > 1 else ()), N, D) for n, h in heads.items()}
    found = {n: torch.randn(s, generator=generator).to(getattr(torch, dtype)) for n, s in shapes.items()}
    added = torch.randn(N, N, generator=generator).to(getattr(torch, dtype))
    if spec.bias:
        found["bias"] = added
    if spec.mask == "additive":
        found["mask"] = added.masked_fill(torch.rand(N, N, generator=generator) < 0.3, -torch.inf)
    elif spec.mask:
        found["mask"] = torch.rand(N, N, generator=generator) < 0.7
    if spec.padding:
        found["keep"] = torch.arange(N) < N - 30
    if spec.documents:
        found["doc"] = torch.arange(N) // 50
    if spec.sink == "given":
        found["sink"] = torch.linspace(-1, 1, spec.heads)
    return found


def kernel(spec: Attention, given: dict[str, Any]) -> Any:
    """The definition in float32 but for weights and output, which are stored."""
    half = given["q"].dtype
    wide = {n: a.float() if a.dtype == half else a for n, a in given.items()}
    made = spec.trace(**wide)
    v = wide["v"].repeat_interleave(spec.heads // spec.key_heads, 0)
    return (made["weights"].to(half).float() @ v).to(half)


SPECS = {
    "causal": Attention(causal=True, heads=2),
    "one head": Attention(),
    "grouped, window": Attention(heads=4, kv_heads=2, window=(30, 0)),
    "cap, padding": Attention(heads=2, softcap=20.0, padding=True),
    "sink, mask": Attention(heads=2, sink="given", mask="boolean"),
    "documents": Attention(heads=2, causal=True, documents=True),
    "bias, cap": Attention(heads=2, causal=True, bias=True, softcap=20.0),
    "additive": Attention(heads=2, mask="additive"),
}
CASES = [(name, dtype) for name in SPECS for dtype in ("bfloat16", "float16")]


@pytest.mark.parametrize(("name", "dtype"), CASES)
@pytest.mark.parametrize("rows", [None, 40])
def test_of_right_outputs_nothing_but_a_verdict_is_copied(device: None, name: str, dtype: str, rows: Any) -> None:
    from tests.testing.leaving import leaving

    spec, given = SPECS[name], drawn(SPECS[name], dtype)
    out = kernel(spec, given)
    with leaving() as guard:
        assert_close_to_exact(out, **given, spec=spec, contract="fused", rows=rows)
    assert guard.elements <= FEW


def test_of_many_tokens_a_verdict_is_no_longer(device: None) -> None:
    """As docs/half.md says; PyTorch's own attention, whose shapes have an axis of batches."""
    import torch

    from tests.testing.leaving import leaving

    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 2048, 128).bfloat16() for _ in range(3))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    with leaving() as guard:
        assert_close_to_exact(out, q, k, v, Attention(causal=True, heads=2))
    assert 0 < guard.elements < 1000


@pytest.mark.parametrize(("name", "dtype"), CASES)
@pytest.mark.parametrize("scale", [1.0, 1.004, 1.02])
def test_verdicts_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch, name: str, dtype: str, scale: float) -> None:
    spec, given = SPECS[name], drawn(SPECS[name], dtype, seed=1)
    out = kernel(replace(spec, scale=scale * D**-0.5), given)

    def judged() -> str:
        try:
            assert_close_to_exact(out, **given, spec=spec, contract="fused")
        except AttentionFault as fault:
            return str(fault)
        return ""

    wanted = judged()
    monkeypatch.setattr("symattn.programs.closeness.COPIED", ("mps",))
    assert judged() == wanted
    assert bool(wanted) or scale < 1.02


def test_of_a_wrong_mean_nothing_is_copied_either(device: None) -> None:
    from tests.testing.leaving import leaving

    spec = SPECS["causal"]
    given = drawn(spec, "bfloat16")
    out = kernel(replace(spec, scale=1.005 * D**-0.5), given)
    with leaving() as guard, pytest.raises(AttentionFault, match=r"as if scores were scaled by 1\.00"):
        assert_close_to_exact(out, **given, spec=spec, contract="fused")
    assert guard.elements <= 2 * FEW  # one verdict with the contract, and one without


@pytest.mark.parametrize("name", SPECS)
def test_what_is_made_is_made_where_the_tensors_are(device: None, name: str) -> None:
    """What named no device would be made on torch's default one here, which has no numbers."""
    import torch

    spec, given = SPECS[name], drawn(SPECS[name], "bfloat16")
    right, wrong = kernel(spec, given), kernel(replace(spec, scale=1.1 * D**-0.5), given)
    with torch.device("meta"):
        assert (torch.arange(3).device.type, torch.ones(3).device.type) == ("meta", "meta")
        assert_close_to_exact(right, **given, spec=spec, contract="fused")
        assert_close_to_exact(right, **given, spec=spec, contract="fused", rows=40)
        with pytest.raises(AttentionFault, match=r"beyond"):
            assert_close_to_exact(wrong, **given, spec=spec)


def test_the_guard_sees_a_copy() -> None:
    """On the CPU, where tensors are copied as before, and by each of the ways out."""
    import torch

    from tests.testing.leaving import leaving

    given = drawn(SPECS["causal"], "bfloat16")
    out = kernel(SPECS["causal"], given)
    with leaving() as guard:
        assert_close_to_exact(out, **given, spec=SPECS["causal"], contract="fused")
    assert guard.elements >= 4 * out.numel()
    for way in (np.asarray, lambda t: t.tolist(), lambda t: t.numpy(), lambda t: t.cpu(), np.from_dlpack):
        with leaving() as guard:
            way(torch.ones(7))
        assert guard.elements >= 7
    with leaving() as guard:
        [float(x) for x in torch.ones(7)]
    assert guard.elements == 7


def test_what_is_not_finite_is_refused_and_told(device: None) -> None:
    spec = SPECS["causal"]
    given = drawn(spec, "bfloat16")
    given["k"][0, N - 1, 3] = float("nan")
    with pytest.raises(InputError, match=rf"^k\[0, {N - 1}\] is not finite where it counts"):
        assert_close_to_exact(given["q"], **given, spec=spec)


def test_masks_of_numpy_go_to_the_device(device: None) -> None:
    from tests.testing.leaving import leaving

    spec = SPECS["sink, mask"]
    given = drawn(spec, "bfloat16")
    out = kernel(spec, given)
    given["mask"], given["sink"] = given["mask"].numpy(), given["sink"].numpy()
    with leaving() as guard:
        assert_close_to_exact(out, **given, spec=spec, contract="fused")
    assert guard.elements <= FEW


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_wide_formats_are_copied(device: None, dtype: str) -> None:
    from tests.testing.leaving import leaving

    spec = Attention(causal=True, heads=2)
    short = {n: a[..., :60, :] for n, a in drawn(spec, dtype).items()}
    out = spec(**short)
    with leaving() as guard:
        assert_close_to_exact(out, **short, spec=spec)
    assert guard.elements >= 4 * out.numel()


def test_devices_without_float64_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.testing.leaving import leaving

    spec, given = SPECS["causal"], drawn(SPECS["causal"], "bfloat16")
    out = kernel(spec, given)

    def copied(**others: Any) -> int:
        with leaving() as guard:
            assert_close_to_exact(out, **given | others, spec=spec, contract="fused")
        return guard.elements

    assert copied() >= 4 * out.numel()
    monkeypatch.setattr("symattn.programs.closeness.COPIED", ("mps",))
    assert copied() <= FEW
    assert copied(k=given["k"].float().numpy()) >= 3 * out.numel()


# -- attention that sums in float16 is certified wrong in float32, and right in float16 --------------------------------
QUICK: Any = {"examples": 5, "layout": "bhnd", "framework": "torch"}


def _torch_in_half(q: Any, k: Any, v: Any) -> Any:
    import torch

    w = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, dim=-1)
    return (w.half() @ v.half()).to(q.dtype)


def test_sums_in_float16_are_certified_wrong_in_float32() -> None:
    report = verify(_torch_in_half, Attention(), **QUICK)
    assert report.verdict is Verdict.FAULT
    assert not any(fault.step in ("score", "scale", "mask") for fault in report.faults), report.faults
    assert report.faults[0].counterexample is not None
    half = verify(_torch_in_half, Attention(), precision="float16", **QUICK)
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

    assert_attention(sdpa, Attention(mask="boolean"), **QUICK)
    with pytest.raises(AttentionFault, match="scale"):
        assert_attention(lambda q, k, v: sdpa(q, k, v, scale=1.0), Attention(), **QUICK)
