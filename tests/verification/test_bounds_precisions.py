"""Precisions by name, what the bound makes of them, and what presets say that libraries store."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import symattn
from symattn import Attention
from symattn.arrays.formats import TF32, Format, truncated
from symattn.arrays.precision import NAMES, SHORT, Precision
from symattn.bounds.contracts import Contract, family, near
from symattn.bounds.plain_bound import allowed
from symattn.document.errors import InputError
from symattn.verification.arithmetic.contract_presets import PRESETS, REPLAYED, named
from tests.refusals import refuses


def _bound(p: Precision, size: float = 1.0) -> float:
    rng = np.random.default_rng(71)
    given = {c: Precision.of("e5m2").input.rounded(rng.standard_normal((16, 8)) * size) for c in "qkv"}
    return float(allowed(Attention(), given, p).max())


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_a_precision_with_a_bound(name: str) -> None:
    for contract in ("eager", "fused"):
        assert _bound(Precision.of(name, contract)) > 0


def test_short_names_are_those_of_the_formats() -> None:
    assert all(Precision.of(short) == Precision.of(full) for short, full in SHORT.items())
    assert Precision.of("tf32", "fused") == Precision.of("tf32")


def test_the_format_of_factors_has_eleven_digits_in_the_range_of_float32() -> None:
    f = Format(TF32)
    assert f.u == Fraction(1, 2**11)
    assert f.smallest_normal == Format("float32").smallest_normal
    assert f.largest < Format("float32").largest


def test_rougher_arithmetic_has_wider_bounds() -> None:
    fused = Precision.of("bf16", "fused")
    by_sums = [_bound(Precision.of("bf16", "fused", a)) for a in ("float32", "fp32-truncated", "fp22", "bf16")]
    assert by_sums == sorted(by_sums)
    assert _bound(Precision.of("fp32")) < _bound(Precision.of("tf32")) < _bound(Precision.of("bf16"))
    assert _bound(Precision.of("fp32").in_tiles(16, 4)) < _bound(Precision.of("fp32"))
    assert _bound(fused) < _bound(replace(fused, kept=fused.input))
    assert _bound(fused) > _bound(replace(fused, output=Format("float32")))


def test_weights_of_eight_bits_may_be_lost_if_they_are_normalised_first() -> None:
    eight = Precision.of("e4m3", "fused", output="bf16")
    assert _bound(replace(eight, normalised=False)) < _bound(eight)


def test_a_matrix_unit_cuts_off() -> None:
    unit = truncated("float32", 13)
    assert unit.u == Fraction(1, 2**12)
    assert unit.aligned
    assert unit.largest == Format("float32").largest


def test_a_block_of_a_matrix_unit_is_within_so_many_roundings() -> None:
    """Products shifted to the largest exponent and cut off, block by block: off by no more than n u of their sizes."""
    rng, bits = np.random.default_rng(72), 13
    for k, n in ((4, 64), (16, 64), (32, 33), (1, 20)):
        terms, total = rng.standard_normal(n) * 10.0 ** rng.integers(-3, 3, n), 0.0
        for block in np.array_split(terms, -(-n // k)):
            parts = np.append(block, total)
            unit = 2.0 ** (np.floor(np.log2(np.abs(parts).max())) - bits)
            total = float((np.trunc(parts / unit) * unit).sum())
            unit = 2.0 ** (np.floor(np.log2(abs(total))) - bits)
            total = float(np.trunc(total / unit) * unit)
        assert abs(total - terms.sum()) <= n * float(truncated("float32", bits).u) * np.abs(terms).sum()


def test_results_below_the_normal_numbers_may_become_zero_or_not() -> None:
    gradual, flushed = (Precision.of("fp32", flush=flush) for flush in (False, True))
    assert gradual.score.eta == Fraction(1, 2**150)
    assert flushed.score.eta == Fraction(1, 2**126) == Precision.of("fp32").score.eta
    assert _bound(gradual, 2.0**-10) <= _bound(flushed, 2.0**-10)


@pytest.mark.parametrize("what", [{"tiles": -1}, {"merges": -2}, {"height": -1}, {"rescalings": -1}, {"exp_ulps": 0}])
def test_impossible_counts_are_refused(what: dict[str, int]) -> None:
    with pytest.raises(InputError, match=next(iter(what))):
        replace(Precision.of("fp32"), **what)  # type: ignore[arg-type]


def test_unknown_names_and_tiles_are_refused() -> None:
    refuses(Precision.of, "fp31", says="known: fp64, fp32")
    refuses(Precision.of, "fp32", accumulate="fp33", says="unknown precision 'fp33'")
    refuses(Precision.of("fp32").in_tiles, 8, 0, says="must be at least 1, got")


HOLDING = [name for name, preset in PRESETS.items() if preset.held]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_told_by_its_contract(name: str) -> None:
    for tile in (16, 128):
        assert named(PRESETS[name].contract(Format("float16"), tile)) == (name,)
    assert named(Contract(Format("float16"), ("scores",), "summed", 32)) == ()


def test_every_preset_is_among_what_is_tried_and_none_in_fp8_is_told() -> None:
    made = family(Attention(), frozenset("qkv"), Format("bfloat16"), 256)
    tried = [c for one in made for c in (one, *near(one, Attention()))]
    assert {name for c in tried for name in named(c)} == set(PRESETS)
    fp8 = [preset.contract(Format("float8_e4m3fn"), output=Format("bfloat16")) for preset in REPLAYED.values()]
    assert [named(c) for c in fp8] == [()]


def math(q: Any, k: Any, v: Any) -> Any:
    import torch

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def eager(q: Any, k: Any, v: Any) -> Any:
    import torch
    from transformers.models.llama.modeling_llama import eager_attention_forward

    module = torch.nn.Module().eval()
    module.num_key_value_groups = 1
    arrays = (a[None, None] for a in (q, k, v))
    out, _ = eager_attention_forward(module, *arrays, None, scaling=q.shape[-1] ** -0.5)
    return out[0, :, 0]


REAL = {"PyTorch's math path on a CPU": math, "Transformers' eager attention": eager}


@pytest.mark.torch
@pytest.mark.transformers
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", HOLDING)
def test_the_library_gives_the_bits_of_its_preset(name: str, dtype: str) -> None:
    pytest.importorskip("transformers")
    found = symattn.arithmetic(REAL[name], Attention(), dtype=dtype, framework="torch", layout="nd")
    assert found.known
    assert found.share > 0.99
    assert found.like == (name,)
    assert f"So does {name}." in " ".join(found.document().text().split())
    other = next(n for n in HOLDING if n != name)
    assert other not in found.like
