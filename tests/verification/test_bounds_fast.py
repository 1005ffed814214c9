"""The bound in floats is that in balls, rounded up; it comes in parts, and beforehand as a formula that is above it."""

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, Precision, bound, kinds, printing
from symattn.bounds import exponents, growth, plain_bound
from symattn.bounds.balls import allowed
from symattn.bounds.judge import of_attention
from symattn.bounds.priori import InputLimits, a_priori
from symattn.bounds.reference import run

SPECS = {
    "plain": Attention(),
    "causal": Attention(causal=True),
    "one head of keys": Attention(heads=2, kv_heads=1, causal=True, window=3, sink="given"),
    "off by one": Attention(sink="zero"),
    "mask": Attention(mask="boolean"),
    "padding": Attention(padding=True, scale="1/d_k"),
    "documents": Attention(documents=True, causal=True, window=2),
    "scales": Attention(heads=2, scale="given", mask="boolean"),
}
PRECISIONS = {
    "fp64": Precision.of("fp64"),
    "fp32": Precision.of("fp32"),
    "tf32": Precision.of("tf32"),
    "fp16": Precision.of("fp16", "fused"),
    "bf16 eager": Precision.of("bf16"),
    "e4m3": replace(Precision.of("e4m3", "fused", output="bf16"), normalised=False),
    "e5m2": Precision.of("e5m2", "fused", accumulate="fp22"),
    "in tiles": Precision.of("fp32").in_tiles(12, 4),
    "kept": replace(Precision.of("fp32"), kept=Precision.of("bf16").input),
}


def bound_of(spec: Attention, given: Any, precision: Precision) -> Any:
    """The worst case of given inputs."""
    return bound(spec, given, precision).asked.bound


def inputs(spec: Attention, p: Precision, rng: np.random.Generator, n_q: int, n_k: int, d: int) -> dict[str, Any]:
    """Random inputs, some with zeros, far apart, or with an offset."""
    heads = (spec.heads,) if spec.heads > 1 else ()
    keys = (spec.key_heads,) if spec.heads > 1 else ()
    shapes = {"q": (*heads, n_q, d), "k": (*keys, n_k, d), "v": (*keys, n_k, 3)}
    size, offset = rng.choice([0.5, 1.0, 6.0]), rng.choice([0.0, 4.0])
    made: dict[str, Any] = {name: p.input.rounded(rng.standard_normal(s) * size) for name, s in shapes.items()}
    made["v"] = p.input.rounded(made["v"] + offset)
    if rng.random() < 0.3:
        made["q"][..., : d // 2] = 0
    if spec.sink == "given":
        made["sink"] = p.input.rounded(rng.standard_normal(spec.heads))
    if spec.scale == "given":
        made["scale"] = p.input.rounded(rng.standard_normal(spec.heads))
    if spec.documents:
        made |= {"doc_q": np.sort(rng.integers(0, 3, n_q)), "doc_k": np.sort(rng.integers(0, 3, n_k))}
    if spec.mask:
        made["mask"] = rng.random((n_q, n_k)) < 0.6
    return made | ({"keep": rng.random(n_k) < 0.7} if spec.padding else {})


def _compared(spec: Attention, p: Precision, given: dict[str, Any]) -> np.ndarray:
    assert plain_bound.applies(spec, given)
    with kinds.precision(128), np.errstate(invalid="ignore"):
        ball, fast = allowed(run(spec, given), p), plain_bound.allowed(spec, given, p)
        assert fast.shape == ball.shape
        return np.asarray(np.where(np.isinf(fast), 1.0, fast / ball))


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("variant", SPECS)
def test_it_is_not_below_the_one_in_balls(variant: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, p = np.random.default_rng(41), PRECISIONS[name]
    given = inputs(SPECS[variant], p, rng, 3, 6, 4)
    found = _compared(SPECS[variant], p, given)
    assert found.min() >= 1
    assert np.median(found) < 1.05
    monkeypatch.setattr(plain_bound, "_MANY", 0)  # most in float32, distances by chords, ranks by buckets
    monkeypatch.setattr("symattn.bounds.float_worst_case._EACH", 0)
    monkeypatch.setattr(exponents, "PAIRWISE", 0)
    assert _compared(SPECS[variant], p, given).min() >= 1


@pytest.mark.deep
@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("variant", SPECS)
def test_it_is_not_below_on_larger_inputs(variant: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, p = np.random.default_rng(42), PRECISIONS[name]
    monkeypatch.setattr(plain_bound, "_MANY", 100)
    monkeypatch.setattr("symattn.bounds.float_worst_case._EACH", 100)
    for _ in range(3):
        n_k = int(rng.integers(1, 24))
        given = inputs(SPECS[variant], p, rng, int(rng.integers(1, n_k + 1)), n_k, int(rng.integers(1, 9)))
        assert _compared(SPECS[variant], p, given).min() >= 1


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("n", [7, 60])
def test_a_head_has_the_bound_that_it_has_alone(n: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads are evaluated together: one of far scores, one of which nothing is said, one of a few values."""
    spec, rng = Attention(heads=4, causal=True, sink="given"), np.random.default_rng(43)
    sizes = np.array([1.0, 30.0, 1e20, 1e-3])[:, None, None]
    given = {c: rng.standard_normal((4, n, 8)) * (sizes if c == "q" else 1.0) for c in "qkv"} | {"sink": np.ones(4)}
    given["k"][3, :, :4] = 0.0
    together = plain_bound.allowed(spec, given, PRECISIONS[name])
    monkeypatch.setattr(plain_bound, "TOGETHER", 0)
    alone = plain_bound.allowed(spec, given, PRECISIONS[name])
    assert np.isinf(alone[2]).any()
    assert np.isfinite(alone[[0, 3]]).all()
    assert (np.isinf(together) == np.isinf(alone)).all()
    assert np.allclose(together, alone, rtol=1e-3, atol=0)


def test_a_bound_that_is_a_part_smaller_is_told_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above can fail: without one of six roundings of constants the bound is below."""
    p, given = PRECISIONS["fp32"], inputs(SPECS["plain"], PRECISIONS["fp32"], np.random.default_rng(41), 3, 6, 4)
    monkeypatch.setattr(plain_bound, "SCALE_ROUNDINGS", 5)
    assert _compared(SPECS["plain"], p, given).min() < 1


@pytest.mark.deep
@pytest.mark.parametrize("spec", [Attention(), Attention(causal=True, window=100)], ids=["plain", "window"])
def test_memory_is_that_of_tiles(spec: Attention, monkeypatch: pytest.MonkeyPatch) -> None:
    """One array of all scores would take 8 MiB; tiles of 16 queries take less."""
    monkeypatch.setattr(plain_bound, "BLOCK", 1 << 14)
    rng = np.random.default_rng(47)
    given = {name: rng.standard_normal((1024, 8)) for name in "qkv"}
    tracemalloc.start()
    plain_bound.allowed(spec, given, Precision.of("fp32"))
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    assert peak < 4


def test_powers_in_float32_are_off_by_what_is_said() -> None:
    """At random, at the entries of the table and halfway between two, where the rest of the polynomial is largest."""
    steps = np.arange(int(growth.DEEPEST / np.log(2) * 1024) - 1) / 1024 * np.log(2)
    rng = np.random.default_rng(48)
    for x in (-growth.DEEPEST * rng.random(10**5), -1e-3 * rng.random(10**4), -steps, -steps - np.log(2) / 2048):
        part = np.abs(growth.single(x.copy()) / np.exp(x) - 1)
        assert part.max() < growth.SINGLE
    assert part.max() > growth.SINGLE / 3
    assert growth.single(np.array([[0.0]])) == [[1.0]]


def _without_keys(rng: np.random.Generator) -> tuple[Attention, dict[str, Any], dict[str, Any]]:
    """The first query has no key at all."""
    mask = np.ones((128, 128), dtype=bool)
    mask[0] = False
    given = {name: rng.standard_normal((128, 8)) for name in "qkv"}
    return Attention(mask="boolean"), {**given, "mask": mask}, {**given, "q": given["q"][:2], "mask": mask[:2]}


def _far_apart(rng: np.random.Generator) -> tuple[Attention, dict[str, Any], dict[str, Any]]:
    """The key with all the weight has a large error, one is 79.9 below it, and the others are far below."""
    d, n = 256, 400
    k, v = np.zeros((n + 2, d)), np.zeros((n + 2, 3))
    k[0], k[1, 0], v[1] = 90 / np.sqrt(d), (90 - 79.9) * np.sqrt(d), 1.0
    given = {"q": np.ones((130, d)), "k": k, "v": v}
    return Attention(), given, {**given, "q": given["q"][:2]}


def _tiny(rng: np.random.Generator) -> tuple[Attention, dict[str, Any], dict[str, Any]]:
    """A head of values whose squares float32 does not hold, beside one of usual size."""
    given = {"q": 4 * rng.standard_normal((2, 130, 8)), "k": 4 * rng.standard_normal((2, 140, 8))}
    given["v"] = rng.standard_normal((2, 140, 8)) * np.array([1e-24, 1.0])[:, None, None]
    first = {name: a[0, :2] if name == "q" else a[0] for name, a in given.items()}
    return Attention(heads=2), given, first


@pytest.mark.parametrize(
    ("made", "precision"),
    [
        (_without_keys, Precision.of("bf16")),
        (_without_keys, Precision.of("fp16")),
        (_far_apart, Precision.of("fp16", "fused", accumulate="bfloat16").in_tiles(402, 64)),
        (_tiny, Precision.of("tf32")),
    ],
)
def test_extreme_rows_are_not_below_the_one_in_balls(made: Any, precision: Precision) -> None:
    """Two rows of the first head, at sizes at which the bound is evaluated by buckets or in float32."""
    spec, given, rows = made(np.random.default_rng(49))
    fast = plain_bound.allowed(spec, given, precision)
    with kinds.precision(512):
        balls = allowed(run(replace(spec, heads=1), rows), precision)
    assert ((fast[0] if spec.heads > 1 else fast)[:2] >= balls).all()


@pytest.mark.parametrize(("size", "d", "scale"), [(8.0, 64, None), (2.0**40, 200, 2.0**40)])
def test_scores_of_any_size_have_a_bound_or_none(size: float, d: int, scale: float | None) -> None:
    rng = np.random.default_rng(50)
    given = {name: rng.standard_normal((200, d)) * (1 if name == "v" else size) for name in "qkv"}
    alike = {**given, "q": np.full((200, d), size), "k": np.full((200, d), size)}
    for each in (given, alike):
        found = plain_bound.allowed(Attention(causal=True, scale=scale), each, Precision.of("bf16"))
        assert not np.isnan(found).any()
        assert (found > 0).all()


def test_nothing_is_said_where_weights_are_lost() -> None:
    """Scores of 10¹⁶ in float64: the bound is the distance to the farthest value, or more."""
    given = {"q": np.full((1, 2), 1e8), "k": np.full((3, 2), 1e8), "v": np.array([[0.0], [1.0], [5.0]])}
    assert plain_bound.allowed(Attention(), given, Precision.of("fp64"))[0, 0] >= 5


@pytest.mark.parametrize("name", PRECISIONS)
def test_parts_sum_to_it(name: str) -> None:
    p = PRECISIONS[name]
    found = bound_of(Attention(causal=True), inputs(SPECS["causal"], p, np.random.default_rng(43), 9, 9, 4), p)
    assert found.method == "floats"
    assert np.isfinite(found.allowed).all()
    np.testing.assert_allclose(sum(found.parts.values()), found.allowed, rtol=1e-9)
    assert all((part >= 0).all() for part in found.parts.values())
    assert sum(found.steps().values()) == pytest.approx(found.largest)


def test_parts_are_where_the_roundings_are() -> None:
    rng = np.random.default_rng(44)
    given = {name: rng.standard_normal((64, 64)).astype(np.float16) for name in "qkv"}
    of_half = bound_of(Attention(), given, Precision.of("fp16", "fused"))
    assert next(iter(of_half.steps())) == "stored weights"
    of_sums = bound_of(
        Attention(), given, replace(Precision.of("fp16", "fused", accumulate="fp22"), stored=Precision.of("fp32").input)
    )
    assert next(iter(of_sums.steps())) == "sums"


def test_what_no_enclosure_serves_is_bounded_in_balls() -> None:
    rng = np.random.default_rng(45)
    given = {name: rng.standard_normal((3, 2)).astype(np.float32) for name in "qkv"}
    other = bound_of(Attention(normaliser="sigmoid"), given, Precision.of("fp32"))
    assert other.method == "balls"
    assert not other.parts
    assert (other.allowed > 0).all()


@pytest.mark.parametrize("normaliser", ["relu", "relu_sum", "sigmoid"])
def test_sums_of_positive_scores_may_leave_the_range(normaliser: Any) -> None:
    """A sum that is divided last overflows in float16, as does one that is not divided."""
    q = np.array([[128.0], [1.0]])
    given = {"q": q, "k": np.full((8, 1), 128.0), "v": np.ones((8, 1))}
    found = bound_of(Attention(normaliser=normaliser, scale=1), given, Precision.of("fp16", "fused"))
    # Eight scores of 2¹⁴ exceed float16, and eight of 2⁷ do not; a sigmoid is 1 at most.
    assert np.isfinite(found.allowed).tolist() == [[normaliser == "sigmoid"], [True]]


def test_parts_of_a_variant_sum_to_its_bound() -> None:
    rng = np.random.default_rng(45)
    found = bound_of(
        Attention(softcap=2),
        {name: rng.standard_normal((3, 2)).astype(np.float32) for name in "qkv"},
        Precision.of("fp32"),
    )
    assert found.method == "floats"
    np.testing.assert_allclose(sum(found.parts.values()), found.allowed, rtol=1e-9)


@pytest.mark.parametrize("name", PRECISIONS)
def test_the_formula_is_above_every_element(name: str) -> None:
    rng, p = np.random.default_rng(46), PRECISIONS[name]
    for n, d in ((1, 1), (4, 3), (40, 16)):
        given = inputs(Attention(), p, rng, n, n, d)
        known = p.in_tiles(n, 4) if name == "in tiles" else p
        sizes = (np.abs(given["q"]) @ np.abs(given["k"]).T).max() / np.sqrt(d), np.abs(given["v"]).max()
        entries = max(np.abs(given["q"]).max(), np.abs(given["k"]).max())
        lowest = (given["q"] @ given["k"].T).max(axis=1).min() / np.sqrt(d)
        found = a_priori(InputLimits(n, d, *sizes, entries, lowest), known)
        assert found.value >= bound_of(Attention(), given, known).allowed.max()
        if np.isfinite(found.value):
            assert sum(found.parts.values()) == pytest.approx(found.value)


def test_the_formula_is_told_with_its_letters() -> None:
    found = a_priori(InputLimits(1024, 64, 8.0, 4.0), Precision.of("fp32").in_tiles(1024))
    assert r"e^{2\lambda_P}" in printing.tex(found.formula[1]).replace(" ", "")
    letters = {printing.tex(letter): value for letter, _, value in found.quantities}
    assert letters["n"] == 1024
    assert letters["W"] <= found.value
    assert "at most 80" in " ".join(found.derivation)
    assert max(found.parts, key=lambda step: found.parts[step]) == "scores"


@pytest.mark.parametrize("what", [{"n": 0}, {"d_k": 0}, {"v_max": float("nan")}, {"score_max": -1.0}])
def test_impossible_sizes_are_refused(what: dict[str, float]) -> None:
    sizes: dict[str, Any] = {"n": 4, "d_k": 2, "score_max": 1.0, "v_max": 1.0} | what
    with pytest.raises(InputError, match=next(iter(what))):
        InputLimits(**sizes)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("size", [0.5, 1.0, 2.0, 4.0, 8.0])
def test_the_second_bound_is_left_out_only_where_no_key_is_far_below(dtype: str, size: float) -> None:
    rng = np.random.default_rng(7)
    given = {name: rng.normal(size=(128, 16)).astype(np.float16).astype(np.float32) for name in "qkv"}
    given |= {name: given[name] * np.float32(size) for name in "qk"}
    precision = Precision.of(dtype)
    scores = given["q"].astype(np.float64) @ given["k"].T.astype(np.float64) / 4.0
    widest = plain_bound.evaluate(Attention(), given, precision).widest
    assert widest >= (scores.max(-1) - scores.min(-1)).max()
    every = np.ones(scores.shape, dtype=bool)
    far = exponents.far_below(scores, np.zeros_like(scores), every, np.zeros((128, 1)), precision)
    assert far.any() <= (widest >= exponents.least_far_distance(precision))


def test_keys_far_below_make_the_bound_smaller() -> None:
    """Their weights are 0 in float16, so that errors of their scores have no part in it."""
    rng, precision = np.random.default_rng(0), Precision.of("float16")
    given = {name: rng.normal(size=(128, 16)).astype(np.float16).astype(np.float32) for name in "qkv"}
    given |= {name: given[name] * np.float32(4.0) for name in "qk"}
    (right,) = of_attention(Attention(), precision, given).ways[0]()
    assert (right.allowed / plain_bound.allowed(Attention(), given, precision)).min() < 0.9
