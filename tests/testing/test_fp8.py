"""FP8 with descale factors: right kernels pass whatever they scale P by, and factors that are wrong are found."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, Precision
from symattn.arrays.formats import Format
from symattn.bounds.contracts import Contract, replay
from symattn.bounds.sharp import elements, means, rows_in_float64
from symattn.testing import AttentionFault, assert_close_to_exact
from tests.testing.fp8_kernels import BF16, E4M3, E5M2, KERNELS, Array, Kernel, Quantised, on_matrix_units, quantised
from tests.testing.half_kernels import INPUTS, normal

H, N, D, SIZE = 2, 128, 40, 32
CAUSAL = Attention(causal=True, heads=H)
Three = tuple[Quantised, Quantised, Quantised]


def made(per: str = "head", f: Format = E4M3, inputs: Any = normal, n: int = N, heads: int = H, seed: int = 0) -> Three:
    raw = inputs(np.random.default_rng(seed), (heads, n, D))
    spread = np.array([1.0, 3.0, 0.5, 2.0])[:heads, None, None]  # heads whose factors differ
    q, k, v = (quantised(a, f, per, SIZE) for a in (raw[0], spread * raw[1], spread * raw[2]))
    return q, k, v


def factors(three: Three, per: str) -> dict[str, Any]:
    """As FlashAttention-3 takes them."""
    take = {"tensor": lambda a: a[0, 0, 0], "head": lambda a: a[:, 0, 0], "block": lambda a: a[:, ::SIZE, 0]}[per]
    return {f"{name}_descale": take(a.factors) for name, a in zip("qkv", three, strict=True)}


def held(out: Array, three: Three, per: str, f: Format = E4M3, spec: Attention = CAUSAL, **how: Any) -> None:
    """With sums in float32, as the kernels here take them."""
    kept = how.pop("kept", BF16)
    how = {"precision": Precision.of(f.name, "fused", "float32", output=kept.name), **how}
    arrays = (f.cast(a.numbers) for a in three)
    assert_close_to_exact(kept.cast(out), *arrays, spec, **{**factors(three, per), **how})


def words(*given: Any, **how: Any) -> str:
    with pytest.raises(AttentionFault) as fault:
        held(*given, **how)
    return str(fault.value)


@pytest.mark.parametrize("per", ["tensor", "head", "block"])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_right_kernels_pass(kernel: Kernel, per: str) -> None:
    f = E4M3 if kernel.fits(E4M3) else E5M2
    three = made(per, f)
    mine = replace(kernel, tile=SIZE) if per == "block" else kernel  # a tile has one factor
    held(mine(*three), three, per, f, kept=kernel.output)


WRONG: dict[str, tuple[str, Callable[[Three], Array]]] = {
    "k's factor forgotten": ("head", lambda t: Kernel()(t[0], Quantised(t[1].numbers, np.ones((H, N, 1))), t[2])),
    "k's of another head": ("head", lambda t: Kernel()(t[0], t[1].of_another_head(), t[2])),
    "v's of another head": ("head", lambda t: Kernel()(t[0], t[1], t[2].of_another_head())),
    "k's of another block": ("block", lambda t: Kernel(tile=SIZE)(t[0], t[1].of_the_next_block(SIZE), t[2])),
    "v's of another block": ("block", lambda t: Kernel(tile=SIZE)(t[0], t[1], t[2].of_the_next_block(SIZE))),
    "the scale of P forgotten": ("tensor", lambda t: Kernel()(*t, over=1.0)),
    "P scaled by 256 and divided by 240": ("tensor", lambda t: Kernel()(*t, over=240.0)),
    "k's off by 6 %": ("head", lambda t: Kernel()(t[0], t[1].off(1.06), t[2])),
    "v's off by 4 %": ("head", lambda t: Kernel()(t[0], t[1], t[2].off(0.96))),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_factors_are_found(name: str) -> None:
    per, wrong = WRONG[name]
    three = made(per)
    assert words(wrong(three), three, per)
    held(Kernel(tile=SIZE)(*three), three, per)


def test_a_mean_says_how_far_a_factor_is_off() -> None:
    three = made()
    text = words(Kernel()(three[0], three[1].off(1.06), three[2]), three, "head")
    found = re.search(r"as if scores were scaled by (\S+) ± (\S+) of the scale", text)
    assert found is not None
    assert abs(float(found[1]) - 1.06) <= float(found[2]) < 0.05
    assert "mean of at most 0.0042 of a weight" in text
    assert "relative to the largest score so far" in text
    held(Kernel()(three[0], three[1].off(1.06), three[2]), three, "head", alpha=None)


@pytest.mark.deep
def test_a_factor_that_is_off_by_two_percent_is_found_at_256_keys() -> None:
    """As the page on half precision says."""
    raw = np.random.default_rng(256).standard_normal((3, 4, 256, 64))
    q, k, v = (quantised(a, E4M3, "head", SIZE) for a in raw)
    spec = Attention(causal=True, heads=4)
    held(Kernel()(q, k, v), (q, k, v), "head", spec=spec)
    held(Kernel()(q, k.off(1.01), v), (q, k, v), "head", spec=spec)
    assert "as if scores were scaled by 1.02" in words(Kernel()(q, k.off(1.02), v), (q, k, v), "head", spec=spec)


def test_weights_in_bfloat16_are_held_closer() -> None:
    three = made()
    wide = Precision.of("e4m3", "fused", output="bfloat16", stored="bfloat16")
    held(Kernel(weights=BF16, times=1.0)(*three), three, "head", precision=wide)
    assert "beyond what any implementation" in words(Kernel()(*three), three, "head", precision=wide)
    off = Kernel(weights=BF16, times=1.0)(three[0], three[1].off(1.01), three[2])
    assert words(off, three, "head", precision=wide)
    held(off, three, "head")


def test_a_scale_of_weights_that_is_known_shows_what_underflows() -> None:
    three = made()
    held(Kernel()(*three), three, "head", p_scale=256)
    small = Kernel(times=2.0**-3)(*three)
    held(small, three, "head")
    assert words(small, three, "head", p_scale=256)


def test_sums_of_matrix_units_are_held_to_the_worst_case() -> None:
    three = made()
    units = Precision.of("e4m3", "fused", "fp22", output="bfloat16")
    off = Kernel()(three[0], three[1].off(1.06), three[2])
    held(off, three, "head", precision=units)
    text = words(Kernel()(three[0], three[1].of_another_head(), three[2]), three, "head", precision=units)
    assert "the worst-case bound certifies" in text


@pytest.mark.deep
def test_sums_of_matrix_units_are_what_is_taken_for_granted() -> None:
    """2048 values near 2, which they cut off: beyond rounding to nearest, and right."""
    rng, n = np.random.default_rng(0), 2048
    q, k = (E4M3.rounded(rng.standard_normal((rows, 32))) for rows in (4, n))
    v = E4M3.rounded(rng.standard_normal((n, 8)) / 2 + 2)
    out, arrays = BF16.cast(on_matrix_units(q, k, v)), tuple(E4M3.cast(a) for a in (q, k, v))
    for named in ({}, {"contract": "fused"}, {"precision": "e4m3"}):
        assert_close_to_exact(out, *arrays, Attention(), p_scale=256, **named)
    wide = Precision.of("e4m3", "fused", "float32", output="bfloat16")
    with pytest.raises(AttentionFault, match=r"if roundings .* sums are taken in float32"):
        assert_close_to_exact(out, *arrays, Attention(), p_scale=256, precision=wide)
    assert_close_to_exact(BF16.cast(on_matrix_units(q, k, v, bits=23)), *arrays, p_scale=256, precision=wide)


@pytest.mark.deep
def test_another_heads_factor_is_found_whatever_sums_are_taken_in() -> None:
    three = made()
    arrays = [E4M3.cast(a.numbers) for a in three]
    right, wrong = Kernel()(*three), Kernel()(three[0], three[1].of_another_head(), three[2])
    assert_close_to_exact(BF16.cast(right), *arrays, CAUSAL, p_scale=256, **factors(three, "head"))
    with pytest.raises(AttentionFault, match="the worst-case bound certifies"):
        assert_close_to_exact(BF16.cast(wrong), *arrays, CAUSAL, p_scale=256, **factors(three, "head"))


def test_heads_that_share_keys_share_factors_of_queries() -> None:
    q, k, v = made(heads=4)
    spec = Attention(causal=True, heads=4, kv_heads=2)
    shared = Quantised(q.numbers, np.repeat(q.factors[::2], 2, axis=0))
    less = [Quantised(a.numbers[::2], a.factors[::2]) for a in (k, v)]
    whole = [Quantised(np.repeat(a.numbers, 2, axis=0), np.repeat(a.factors, 2, axis=0)) for a in less]
    out = Kernel()(shared, *whole)
    given = {"q_descale": q.factors[::2, 0, 0], "k_descale": less[0].factors[:, 0, 0]}
    arrays = [E4M3.cast(a.numbers) for a in (q, *less)]
    assert_close_to_exact(BF16.cast(out), *arrays, spec, **given, v_descale=less[1].factors[:, 0, 0])
    with pytest.raises(AttentionFault):
        assert_close_to_exact(BF16.cast(out), *arrays, spec, **given, v_descale=1.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"k_descale": np.ones(3)}, r"k_descale has the shape \(3,\)"),
        ({"v_descale": np.ones((H, 5))}, "equal blocks of tokens"),
        ({"q_descale": float("nan")}, "must hold finite numbers of at least 0"),
        ({"q_descale": "head"}, "q_descale is neither a number"),
        ({"power": {"scale": 0.1}}, "the output alone is judged"),
        ({"p_scale": 0.5}, "p_scale must be from 1 to 448"),
        ({"p_scale": float("nan")}, "p_scale must be from 1 to"),
        ({"p_scale": 449}, "p_scale must be from 1 to 448"),
        ({"p_scale": np.ones((2, 2))}, r"^p_scale must be from 1"),
        ({"p_scale": "all"}, "p_scale must be"),
        ({"cu_seqlens": [0, N]}, "is not split into sequences"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], said: str) -> None:
    three = made()
    with pytest.raises(InputError, match=said):
        held(three[2].numbers, three, "head", **given)


def test_an_output_is_an_array() -> None:
    q = E4M3.cast(np.ones((H, N, D)))
    with pytest.raises(InputError, match="out is not an array of NumPy or torch: it is of list"):
        assert_close_to_exact([1.0], q, q, q, CAUSAL, k_descale=2.0)


def test_factors_are_of_fp8() -> None:
    q = BF16.cast(np.ones((H, N, D)))
    with pytest.raises(InputError, match="q is bfloat16; hint: float8_e4m3fn or float8_e5m2"):
        assert_close_to_exact(q, q, q, q, CAUSAL, k_descale=2.0)


def test_a_replay_has_the_bits_of_a_kernel() -> None:
    three = made()
    given = {name: a.numbers * a.factors for name, a in zip("qkv", three, strict=True)}
    # In FP8 FlashAttention-3 subtracts 8 from the maximum in powers of 2, so that exponentials are times 256
    # (``scale_apply_exp2`` in hopper/softmax.h of its repository).
    preset = Contract(E4M3, (), "alone", 64, times=256.0, output=BF16)
    assert preset.words.endswith("over 64 keys, times 256; in float8_e4m3fn, the output in bfloat16")
    for contract, kernel in (
        (preset, Kernel()),
        (Contract(E4M3, (), "summed", 32, times=448.0, output=BF16), Kernel(times=448.0, tile=32, summed=True)),
    ):
        out = kernel(*three)
        assert (replay(contract, CAUSAL, given) == out).mean() > 0.97
        assert (replay(Contract(E4M3, (), contract.powers, 64, output=BF16), CAUSAL, given) == out).mean() < 0.9


@pytest.mark.deep
@pytest.mark.parametrize("f", [E4M3, E5M2], ids=lambda f: f.name)
@pytest.mark.parametrize("inputs", INPUTS, ids=lambda i: i.__name__)
def test_right_kernels_pass_on_inputs_of_many_kinds(f: Format, inputs: Any) -> None:
    for n in (32, 256):
        three = made("head", f, inputs, n)
        for kernel in KERNELS:
            if kernel.fits(f):
                held(kernel(*three), three, "head", f)


@pytest.mark.parametrize("part", ["elements", "means"])
def test_a_twentieth_of_the_limits_is_too_little(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    three = made()
    whole = rows_in_float64.QueryBlock.tolerance if part == "elements" else means.factor
    less: Any = lambda *given: whole(*given) / 20  # noqa: E731
    monkeypatch.setattr(*((rows_in_float64.QueryBlock, "tolerance") if part == "elements" else (means, "factor")), less)
    monkeypatch.setattr(elements, "GUARD", np.inf)
    monkeypatch.setattr(means, "GUARD", np.inf)
    if part == "elements":
        assert "beyond rounding to nearest" in words(Kernel()(*three), three, "head")
    else:
        assert "Weighted means" in words(Kernel()(*three), three, "head")
