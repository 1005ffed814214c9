"""The a-priori bound is what its printed equations give; precisions by name; what presets say that is stored."""

from dataclasses import replace
from fractions import Fraction
from math import expm1, isfinite, log
from typing import Any

import numpy as np
import pytest

import symattn
from symattn import Attention, InputError, Precision, Undecided, bound
from symattn import printing as pr
from symattn.arrays.formats import Format
from symattn.bounds import formula as formula_of
from symattn.bounds import priori
from symattn.bounds.contracts import Contract, family, near
from symattn.bounds.priori import InputLimits, a_priori
from symattn.bounds.rule import Counts, NumberKind, RuleGivens
from symattn.bounds.rule import exponents as by_rule
from symattn.verification.arithmetic.answer import PRESETS, named
from tests.refusals import refuses

FORMATS = ("fp32", "fp16", "bf16", "fp64")


def rate(f: Format) -> float:
    """λ = u/(1 − u), at least the logarithm of what a rounding may change."""
    return float(f.u / (1 - f.u))


def growth_of(x: Any) -> float:
    """e^x − 1; +∞ beyond the range of float64."""
    return expm1(x) if x < 700 else float("inf")


def g(n: int, f: Format) -> float:
    """What n roundings may change, as a share."""
    return growth_of(n * rate(f))


def drawn(number: int) -> list[tuple[InputLimits, Precision]]:
    """Sizes and arithmetics as if at random: few and many keys, small and large scores, values and underflows."""
    rng = np.random.default_rng(7)
    found = []
    for i in range(number):
        n, d = int(2 ** rng.uniform(0, 14)), int(2 ** rng.uniform(0, 8))
        sizes = InputLimits(n, d, float(2 ** rng.uniform(-6, 5)), float(2 ** rng.uniform(-12, 8)),
                      lowest_max=float(-rng.integers(0, 2) * 2 ** rng.uniform(0, 3)))  # fmt: skip
        precision = Precision.of(FORMATS[i % 4], contract=("eager", "fused")[i // 4 % 2])
        found.append((sizes, precision.in_tiles(n) if i % 3 == 0 else precision))
    return found


def exponents(sizes: InputLimits, precision: Precision) -> Any:
    """What the equations start from; None where nothing is said."""
    try:
        return priori._Formula(sizes, precision, Counts(precision, sizes.n, np.array([[sizes.n]])))
    except (Undecided, OverflowError):
        return None


@pytest.mark.parametrize("number", [60, pytest.param(1000, marks=pytest.mark.deep)])
def test_the_printed_equations_give_the_bound(number: int) -> None:
    finite = 0
    for sizes, precision in drawn(number):
        terms = a_priori(sizes, precision)
        if isfinite(terms.value):
            finite += 1
            assert terms.value == pytest.approx(by_hand(exponents(sizes, precision), sizes, precision), rel=1e-12)
    assert finite > number / 2


def test_what_has_no_value_is_refused() -> None:
    for x in (pr.Name("Q"), pr.call("sin", pr.Name("V")), -(pr.Name("V") ** pr.Name("V"))):
        with pytest.raises(ValueError, match="has no value"):
            formula_of.value(x, {"V": 1.0})
    assert formula_of.value(pr.node(2) ** -pr.node(3) - 1, {}) == -0.875


def test_what_is_printed_is_what_was_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = formula_of.equations(True, True)
    definitions = tuple(pr.Relation(e.first, (("=", 2 * e.rest[0][1]),)) if pr.text(e.first) == "W" else e
                        for e in honest.definitions)  # fmt: skip
    p = Precision.of("fp32")
    before, common = a_priori(InputLimits(64, 64, 8.0, 4.0), p), {pr.text(x) for x in formula_of.formula()}
    monkeypatch.setattr(formula_of, "equations", lambda *_: honest._replace(definitions=definitions))
    after = a_priori(InputLimits(64, 64, 8.0, 4.0), p)
    assert after.value > 1.2 * before.value
    assert after.formula != before.formula
    assert len(common & {pr.text(x) for x in before.formula}) >= len(common) - 1


def rule(sizes: InputLimits, precision: Precision) -> list[float]:
    """a, s and b by the rule on numbers."""
    known = exponents(sizes, precision)
    factors = rate(precision.factors) if precision.factors else 0.0
    given = RuleGivens(
        known.tau, known.t, 2 * known.t, known.times, known.t, known.tau, known.log_n, known.eps, factors
    )
    found = by_rule(given, precision, known.counts, NumberKind(g, rate, np.maximum))
    return [float(np.max(x)) for x in (found.a, found.alone, found.below)]


def test_the_printed_exponents_are_those_of_the_rule() -> None:
    cases = [(s, p) for s, p in drawn(60) if exponents(s, p)]
    p = Precision.of("fp16", contract="fused")
    cases += [(cases[0][0], replace(p, lse=lse, merges=merges)) for lse in (True, False) for merges in (0, 2)]
    for sizes, precision in cases:
        known = exponents(sizes, precision)
        assert [known.a, known.alone, known.below] == pytest.approx(rule(sizes, precision), rel=1e-12)


def test_the_contract_that_is_printed_is_the_one_that_was_given() -> None:
    for dtype in ("float64", "float32", "bfloat16"):
        for contract in ("eager", "fused"):
            assert f"; {contract} contract" in bound(n=8, dtype=dtype, contract=contract).text()
        assert "; fused contract" in bound(n=8, dtype=dtype).text()


def test_another_rule_is_another_print(monkeypatch: pytest.MonkeyPatch) -> None:
    p = Precision.of("fp32")
    before = a_priori(InputLimits(64, 64, 8.0, 4.0), p)
    monkeypatch.setattr(formula_of.rule, "exponents", lambda x, *rest: by_rule(x._replace(times=2 * x.times), *rest))
    after = a_priori(InputLimits(64, 64, 8.0, 4.0), p)
    assert after.value > 1.01 * before.value
    assert "2B" in pr.text(after.formula[-1])
    assert "2B" not in pr.text(before.formula[-1])


@pytest.mark.parametrize("given", [None, {name: np.eye(4) for name in "qkv"}])
def test_the_tolerance_as_it_is_typed_is_the_bound(given: dict[str, np.ndarray] | None) -> None:
    found = bound(None, given, n=None if given else 64)
    (typed,) = [part.text for block in found.document().blocks if isinstance(block, pr.Result)
                for part in block.text if "atol=" in getattr(part, "text", "")]  # fmt: skip
    read = dict(pair.split("=") for pair in typed.split(", "))
    assert found.value <= float(read.pop("atol")) <= 1.01 * found.value
    assert read == {"rtol": "0"}


def by_hand(known: Any, sizes: InputLimits, p: Precision) -> float:
    """The bound; ``known`` has a, s, b (``a``, ``alone``, ``below``), λ (``lam``) and the numbers of roundings."""
    v, lam_p, twice = sizes.v_max, rate(p.stored), _e(2 * known.a)
    moved = min(v * _e(known.a) * growth_of(known.a), 2 * v)
    whole, apart = v * twice, v * twice * growth_of(known.alone)
    spread = whole + (v if p.stored.u <= p.accumulate.u else 0.0)
    kept = growth_of(lam_p) * max((spread + moved) * _e(lam_p), whole + apart)
    lost = twice * growth_of(known.below) * _e(2 * lam_p)
    centre = v + moved + kept
    sums = _sums(known, p, whole + apart, centre + apart)
    total = moved + kept + lost * centre + (1 + lost) * _e(2 * lam_p) * (apart + sums)
    total += _underflow(known, sizes, p, lost)
    last = (v + total) * g(1, p.returned) + float(p.returned.eta)
    return (total + last) * (1 + 2.0**-10 + sizes.n * 2.0**-22)


def share_of(known: Any, p: Precision) -> float:
    """By how much the additions that round may change a sum, as a share of it; 1 where that is not known."""
    events = known.counts.partial_sums
    return 1.0 if events is None else float(events[0, 0]) * float(p.accumulate.u)


def _sums(known: Any, p: Precision, sizes: float, total: float) -> float:
    by_path = growth_of(float(known.counts.path[0, 0]) * known.lam) * sizes
    share = share_of(known, p)
    return by_path if share >= 0.5 else min(by_path, share / (1 - share) * (sizes + total) / 2)


def _underflow(known: Any, sizes: InputLimits, p: Precision, lost: float) -> float:
    n, v, c = sizes.n, sizes.v_max, known.counts
    factor = _e(known.alone + float(c.path[0, 0]) * known.lam + 2 * rate(p.stored)) * (1 + lost)
    lowest = -log(float(min(p.score.smallest_normal, p.accumulate.smallest_normal)))
    rise = _e(min(max(-sizes.lowest_max, 0.0), lowest + 1))
    every, weight = rise * float(max(p.score.eta, p.accumulate.eta)) * c.underflowing, rise * float(p.stored.eta)
    divisor = (1 - 2.0**-30) / _e(known.below) - (every + weight) * n
    return ((every + weight) * n * v * (1 + factor) + every * n) / divisor


def _e(x: float) -> float:
    return (1 + growth_of(x)) * (1 + 2.0**-52)


def _bound(p: Precision, size: float = 1.0) -> float:
    rng = np.random.default_rng(71)
    short = Precision.of("e5m2").input
    given = {c: p.input.rounded(short.rounded(rng.standard_normal((16, 8)) * size)) for c in "qkv"}
    return float(bound(None, given, p).allowed.max())


#: Formats by the names that people use, and in full.
SHORT = {
    "fp64": "float64", "f64": "float64", "double": "float64", "fp32": "float32", "f32": "float32", "single": "float32",
    "tf32": "tfloat32", "fp16": "float16", "f16": "float16", "half": "float16", "bf16": "bfloat16",
    "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
}  # fmt: skip


@pytest.mark.parametrize("name", [*SHORT, *dict.fromkeys(SHORT.values())])
def test_every_name_has_a_precision_with_a_bound(name: str) -> None:
    for contract in ("eager", "fused"):
        assert _bound(Precision.of(name, contract)) > 0


def test_short_names_are_those_of_the_formats() -> None:
    assert all(Precision.of(short) == Precision.of(full) for short, full in SHORT.items())
    assert Precision.of("tf32", "fused") == Precision.of("tf32")


def test_the_format_of_factors_has_eleven_digits_in_the_range_of_float32() -> None:
    f = Precision.of("tf32").factors
    assert f is not None
    assert f.u == Fraction(1, 2**11)
    assert f.smallest_normal == Precision.of("fp32").input.smallest_normal
    assert f.largest < Precision.of("fp32").input.largest


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
    unit = Precision.of("bf16", "fused", "fp22").accumulate
    assert unit.u == Fraction(1, 2**12)
    assert unit.aligned
    assert unit.largest == Precision.of("fp32").input.largest


def test_a_block_of_a_matrix_unit_is_within_so_many_roundings() -> None:
    """Products shifted to the largest exponent and cut off, block by block: off by no more than n u of their sizes."""
    rng, bits, rounded = np.random.default_rng(72), 13, Precision.of("bf16", "fused", "fp22").accumulate
    for k, n in ((4, 64), (16, 64), (32, 33), (1, 20)):
        terms, total = rng.standard_normal(n) * 10.0 ** rng.integers(-3, 3, n), 0.0
        for block in np.array_split(terms, -(-n // k)):
            parts = np.append(block, total)
            unit = 2.0 ** (np.floor(np.log2(np.abs(parts).max())) - bits)
            total = float((np.trunc(parts / unit) * unit).sum())
            unit = 2.0 ** (np.floor(np.log2(abs(total))) - bits)
            total = float(np.trunc(total / unit) * unit)
        assert abs(total - terms.sum()) <= n * float(rounded.u) * np.abs(terms).sum()


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
    refuses(Precision.of, "fp31", says="did you mean fp32?")
    refuses(Precision.of, "fp32", accumulate="fp33", says="unknown precision 'fp33'")
    refuses(Precision.of("fp32").in_tiles, 8, 0, says="must be at least 1, got")


HOLDING = list(PRESETS)[:2]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_told_by_its_contract(name: str) -> None:
    for tile in (16, 128):
        tiles = tile if PRESETS[name].tiles else None
        assert named(replace(PRESETS[name], format=Format("float16"), tiles=tiles)) == (name,)
    assert named(Contract(Format("float16"), ("scores",), "summed", 32)) == ()


def test_every_preset_is_among_what_is_tried_and_none_in_fp8_is_told() -> None:
    made = family(Attention(), frozenset("qkv"), Format("bfloat16"), 256)
    tried = [c for one in made for c in (one, *near(one, Attention()))]
    assert {name for c in tried for name in named(c)} == set(PRESETS)
    assert named(Contract(Format("float8_e4m3fn"), (), "alone", 64, times=256.0, output=Format("bfloat16"))) == ()


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
    assert f"The same bits come from {name}." in " ".join(found.document().text().split())
    other = next(n for n in HOLDING if n != name)
    assert other not in found.like
