"""On a GPU: kernels of PyTorch against the exact output, computed where they are. Run by hand (``pytest -m cuda``)."""

from typing import Any

import numpy as np
import pytest

from symattn import Attention
from symattn.attention.variants import VARIANTS
from symattn.derivations.variants import Support
from symattn.testing import AttentionFault, assert_close_to_exact

pytestmark = pytest.mark.cuda
SHAPE = (2, 4, 1024, 64)
FEW = 5000  # numbers that a verdict takes; out alone has 524,288
BACKENDS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
SPEC = Attention(causal=True, heads=SHAPE[1])


@pytest.fixture(autouse=True)
def gpu() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")


def drawn(dtype: str) -> list[Any]:
    import torch

    generator = torch.Generator("cuda").manual_seed(0)
    return [torch.randn(SHAPE, device="cuda", generator=generator).to(getattr(torch, dtype)) for _ in range(3)]


def sdpa(backend: str, *qkv: Any, scale: float | None = None) -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    with sdpa_kernel(getattr(SDPBackend, backend)):
        return scaled_dot_product_attention(*qkv, is_causal=True, scale=scale)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("rows", [None, 32])
def test_kernels_of_torch_are_right_and_stay_there(backend: str, dtype: str, rows: int | None) -> None:
    from tests.testing.leaving import leaving

    q, k, v = drawn(dtype)
    out = sdpa(backend, q, k, v)
    with leaving() as guard:
        assert_close_to_exact(out, q, k, v, SPEC, rows=rows)
    assert guard.elements <= FEW


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_scale_that_is_off_is_found_as_on_the_cpu(backend: str, dtype: str) -> None:
    q, k, v = drawn(dtype)
    out = sdpa(backend, q, k, v, scale=1.02 * SHAPE[-1] ** -0.5)
    with pytest.raises(AttentionFault) as there:
        assert_close_to_exact(out, q, k, v, SPEC)
    with pytest.raises(AttentionFault) as here:
        assert_close_to_exact(*(a.cpu() for a in (out, q, k, v)), SPEC)
    assert str(there.value).splitlines()[0] == str(here.value).splitlines()[0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own, as its compiler is imported
def test_what_torch_compiles_is_right() -> None:
    import torch

    def attention(q: Any, k: Any, v: Any) -> Any:
        s = (q @ k.mT) * q.shape[-1] ** -0.5
        later = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1)
        return torch.softmax(s.masked_fill(later, float("-inf")), -1, dtype=torch.float32).to(v.dtype) @ v

    q, k, v = drawn("bfloat16")
    assert_close_to_exact(torch.compile(attention)(q, k, v), q, k, v, SPEC)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_compiled_flex_attention_is_right_and_a_wide_window_found(dtype: str) -> None:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def attention(q: Any, k: Any, v: Any, window: int) -> Any:
        def seen(_batch: Any, _head: Any, i: Any, j: Any) -> Any:
            return (i >= j) & (i - j < window)

        mask = create_block_mask(seen, None, None, *q.shape[-2:-1] * 2, device="cuda")
        return torch.compile(flex_attention)(q, k, v, block_mask=mask)

    q, k, v = drawn(dtype)
    spec = Attention(causal=True, window=64, heads=SHAPE[1])
    assert_close_to_exact(attention(q, k, v, 64), q, k, v, spec)
    with pytest.raises(AttentionFault):
        assert_close_to_exact(attention(q, k, v, 65), q, k, v, spec)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_definition_runs_there(name: str) -> None:
    import torch

    spec, inputs = VARIANTS[name].spec, Support(name, VARIANTS[name]).example
    there = {
        n: torch.asarray(a, dtype=torch.float64 if a.dtype.kind == "f" else None, device="cuda")
        for n, a in inputs.items()
    }
    wanted, got = spec(**inputs), spec(**there)
    for ours, theirs in zip(*((x if spec.lse else (x,)) for x in (wanted, got)), strict=True):
        assert theirs.device.type == "cuda"
        np.testing.assert_allclose(theirs.cpu().numpy(), ours, rtol=2.0**-40, atol=2.0**-40)
