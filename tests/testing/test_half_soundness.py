"""No right kernel is accused, at any strength: kernels of others and of our own, on inputs of many kinds, by chance.

``exhaustive`` takes as many cases as ``SYMATTN_CASES`` says (2000 by default, a few hours); what they gave stands in
docs/figures.md. Each case has thousands of statistics: every element, every mean.
"""

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from symattn import Attention
from symattn.arrays.formats import Format
from tests.testing.half_kernels import INPUTS, KERNELS, Array, Inputs, cut_off, made, refused, tiles, wide

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

KEYS = (5, 12, 37, 64, 130, 256, 400, 700)
WIDTHS = (16, 40, 64, 80, 128)


class Case(NamedTuple):
    """One set of inputs."""

    format: Format
    inputs: Inputs
    causal: bool
    arrays: tuple[Array, Array, Array]


def drawn(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    shape = int(rng.choice([1, 2, 4])), int(rng.choice(KEYS)), int(rng.choice(WIDTHS))
    f, inputs = Format(str(rng.choice(["bfloat16", "float16"]))), INPUTS[rng.integers(len(INPUTS))]
    q, k, v = made(f, inputs, shape, seed)
    return Case(f, inputs, bool(rng.integers(2)), (f.rounded(q * rng.choice([1, 1, 1, 3, 10])), k, v))


def right(case: Case) -> Iterator[tuple[str, str | None, Array]]:
    """Outputs of right kernels: their name, and the contract that they keep."""
    for kernel in KERNELS:
        contract = "fused" if kernel in (wide, tiles, cut_off) else None
        yield kernel.__name__, contract, kernel(*case.arrays, case.format, case.causal)
    given = [torch.tensor(np.ascontiguousarray(a)).to(getattr(torch, case.format.name))[None] for a in case.arrays]
    backends = torch.nn.attention.SDPBackend
    for name, backend in (("flash", backends.FLASH_ATTENTION), ("math", backends.MATH)):
        with torch.nn.attention.sdpa_kernel(backend):
            out = torch.nn.functional.scaled_dot_product_attention(*given, is_causal=case.causal)
        yield f"torch {name}", "fused", out[0].double().numpy()


def accused(seed: int) -> list[str]:
    """The right outputs of a case that are accused, with the words."""
    case = drawn(seed)
    heads = len(case.arrays[0])
    arrays = [a if heads > 1 else a[0] for a in case.arrays]
    given: dict[str, Any] = dict(zip("qkv", arrays, strict=True)) | {"precision": case.format.name}
    given["spec"] = Attention(causal=case.causal, heads=heads)
    outs = ((name, contract, out if heads > 1 else out[0]) for name, contract, out in right(case))
    every = ((name, words) for name, contract, out in outs for words in refused(out, contract, **given))
    return [f"{seed} {case.inputs.__name__} {name} {words}" for name, words in every]


@pytest.mark.parametrize("seed", range(3))
def test_right_kernels_are_not_accused(seed: int) -> None:
    assert not accused(seed)


@pytest.mark.exhaustive
def test_right_kernels_are_never_accused() -> None:
    for seed in range(int(os.environ.get("SYMATTN_CASES", "2000"))):
        assert not accused(seed)
