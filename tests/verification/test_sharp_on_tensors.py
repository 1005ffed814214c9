"""The limits of the sharp test on tensors are those on arrays: to 10⁻⁹ where both are in float64."""

from typing import Any

import numpy as np
import pytest

from symattn import Attention, Precision
from symattn.arrays.formats import Format
from symattn.bounds.sharp import elements, means, rows_in_float64
from symattn.bounds.sharp.limits import Stores, half_ulp

pytestmark = pytest.mark.torch
N_Q, N_K, D = 70, 90, 24
CASES: dict[str, tuple[Attention, dict[str, Any]]] = {
    "causal": (Attention(causal=True, heads=2), {}),
    "window, cap": (Attention(heads=2, window=(20, 0), softcap=15.0), {}),
    "sink, shared keys": (Attention(heads=2, kv_heads=1, sink="given"), {"sink": np.array([0.5, -1.0])}),
    "rows without keys": (
        Attention(mask="boolean", fully_masked="nan"),
        {"mask": np.random.default_rng(3).random((N_Q, N_K)) < 0.05},
    ),
    "powers of 2": (Attention(heads=2, base=2, block=16, causal=True), {}),
    "padding": (Attention(heads=2, padding=True), {"keep": np.arange(N_K) < 75}),
}


def drawn(spec: Attention, more: dict[str, Any], dtype: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same inputs as arrays and as tensors, with equal queries and equal keys among them."""
    import torch

    rng, heads = np.random.default_rng(0), {"q": spec.heads, "k": spec.key_heads, "v": spec.key_heads}
    found = dict(more)
    for name, h in heads.items():
        shape = (2, *((h,) if spec.heads > 1 else ()), N_Q if name == "q" else N_K, D)
        found[name] = Format(dtype).rounded(rng.standard_normal(shape))
    found["q"][..., 3, :], found["k"][..., 5, :] = found["q"][..., 40, :], found["k"][..., 7, :]
    return found, {n: torch.as_tensor(a) for n, a in found.items()}


def in_float64(a: Any, copy: bool = False) -> Any:
    """In the place of ``rows_in_float64.narrow``."""
    found = rows_in_float64.wide(a)
    return found * 1 if copy else found


def limits(spec: Attention, given: dict[str, Any], how: Stores, weights: Any) -> list[np.ndarray]:
    """Output and tolerance of each element, the limit of one mean, and the largest share of a wrong output's means."""
    out, tolerance = elements.tolerances(spec, given, how, 1e-9)
    wrong = means.judged(spec, given, how, out + 0.9 * tolerance, 1e-9, range(N_Q))
    assert wrong is not None
    found = [out, tolerance, means.of_mean(spec, given, how, weights, 1e-9), wrong.share, wrong.guard, wrong.certain]
    return [np.asarray(x) for x in found]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("wide", [True, False])
def test_limits_agree(monkeypatch: pytest.MonkeyPatch, name: str, dtype: str, wide: bool) -> None:
    """With NumPy in float64, too, and as it is: sums of squares in float32."""
    import torch

    if wide:
        monkeypatch.setattr(rows_in_float64, "narrow", in_float64)
    spec, more = CASES[name]
    arrays, tensors = drawn(spec, more, dtype)
    how = Stores.of(Precision.of(dtype, "fused"), True, spec.softcap is not None)
    assert how is not None
    weights = np.random.default_rng(1).standard_normal((*arrays["q"].shape[:-1], D))
    ours, theirs = limits(spec, arrays, how, weights), limits(spec, tensors, how, torch.as_tensor(weights))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9 if wide else 1e-5, atol=1e-13)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "float32"])
def test_roundings_are_those_of_numpy(dtype: str) -> None:
    """Among them the middles of two numbers, which float32 in between would round twice."""
    import torch

    rng, f = np.random.default_rng(2), Format(dtype)
    x = rng.standard_normal(4000) * 2.0 ** rng.integers(-30, 8, 4000)
    x[::4] = f.rounded(x[::4]) * (1 + 2.0**-f.digits)
    x[1::4] = f.rounded(x[1::4]) * (1 + 2.0**-f.digits + 2.0**-40)
    assert np.array_equal(f.rounded(torch.as_tensor(x)).numpy(), f.rounded(x))
    sizes = np.concatenate([np.abs(x), [0.0, np.inf, np.nan, 2.0**-1070]])
    assert np.array_equal(half_ulp(f, torch.as_tensor(sizes)).numpy(), half_ulp(f, sizes))
