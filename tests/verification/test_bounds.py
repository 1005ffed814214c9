"""The bound holds for every implementation it speaks for, is not idle, and refuses what is wrong."""

from dataclasses import replace

import numpy as np
import pytest

from symattn import Attention, Precision, kinds
from symattn import kind as kind_of
from symattn.bounds import plain_bound
from symattn.bounds.arithmetic import upper
from symattn.bounds.balls import allowed
from symattn.bounds.judge import expected
from symattn.bounds.reference import run
from tests.faults.programs import softmax
from tests.verification.legal import Row

Ball = kind_of("ball")

PRECISIONS = ("float32", "float16", "bfloat16")
ASKED = {
    "float64": Precision.of("fp64"),
    "float32": Precision.of("fp32"),
    "float16": Precision.of("fp16"),
    "bfloat16": Precision.of("bf16"),
    "float16 fused": Precision.of("fp16", "fused"),
    "bfloat16 fused": Precision.of("bf16", "fused"),
    "float8 fused": Precision.of("e4m3", "fused", output="bf16"),
    "float8 as on Hopper": Precision.of("e5m2", "fused", accumulate="fp22", output="bf16"),
    "truncated sums": Precision.of("bf16", "fused", accumulate="fp32-truncated"),
    "one tile": replace(Precision.of("fp32"), tiles=0, merges=0, lse=False),
}
NARROWER = 1000.0


def inputs(rng: np.random.Generator, p: Precision) -> dict[str, np.ndarray]:
    """One query and up to twelve keys: random, equal, far apart, with an offset, or with one favourite."""
    n, d, kind = int(rng.integers(1, 13)), int(rng.integers(1, 6)), rng.choice(["random", "equal", "offset", "one"])
    made = {name: rng.standard_normal((rows, d if name != "v" else 1)) for name, rows in (("q", 1), ("k", n), ("v", n))}
    if kind == "equal":
        made["q"] *= 0
    if kind == "offset":
        made["v"] += 8
    if kind == "one":
        made["k"][int(rng.integers(n))] *= 4
    return {name: p.input.rounded(a) for name, a in made.items()}


def ratios(p: Precision, seed: int, cases: int, each: int, rougher: float = 1.0) -> list[float]:
    """|y − exact| / allowed, for so many implementations of so many inputs."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(cases):
        given = inputs(rng, p)
        right = expected(Attention(), given, p)
        arrays = given["q"][0], given["k"], given["v"][:, 0]
        rows = (Row(p, rng).rougher(rougher).output(*arrays) for _ in range(each))
        found += [float(right.ratios(np.array([[y]]))[0, 0]) for y in rows]
    return found


@pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.deep)])
@pytest.mark.parametrize("name", ASKED)
def test_none_is_outside_and_a_narrower_bound_would_refuse_some(name: str, many: bool) -> None:
    found = ratios(ASKED[name], *((32, 100, 10) if many else (31, 60, 12) if name in PRECISIONS else (31, 12, 5)))
    assert max(found) <= 1
    assert max(found) > 0.2 or name not in PRECISIONS, "the bound has become so wide that nothing comes near it"
    assert sum(x * NARROWER > 1 for x in found) > len(found) / 4


@pytest.mark.parametrize("name", PRECISIONS)
def test_a_rougher_arithmetic_exceeds_it(name: str) -> None:
    """The same implementations with roundings eight times as large: the tests above can fail."""
    assert max(ratios(ASKED[name], 12, 100, 1, rougher=8)) > 1


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, width: int) -> np.ndarray:
    return softmax(q @ k.T / np.sqrt(np.asarray(width, dtype=q.dtype))) @ v


@pytest.mark.parametrize("n", [4, 16, 64])
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_a_scale_of_one_over_the_root_of_d_plus_one_exceeds_it(name: str, n: int) -> None:
    p, rng, d = Precision.of(name), np.random.default_rng(n), 64
    inputs = {c: p.input.rounded(rng.standard_normal((n, d))) for c in "qkv"}
    right = expected(Attention(), inputs, p)
    arrays = [inputs[c].astype(p.input.dtype) for c in "qkv"]
    assert right.ratios(_attention(*arrays, width=d).astype(float)).max() < 1
    assert right.ratios(_attention(*arrays, width=d + 1).astype(float)).max() > 10


@pytest.mark.parametrize("name", PRECISIONS)
def test_equal_scores_are_told_apart_from_a_missing_key(name: str) -> None:
    """Zero scores are exact in any order, so that the bound is a few units of roundoff."""
    p = Precision.of(name)
    inputs = {"q": np.zeros((1, 2)), "k": np.zeros((2, 2)), "v": np.array([[1.0], [7.0]])}
    right = expected(Attention(), inputs, p)
    assert right.ratios(np.array([[4.0]]))[0, 0] <= 1
    assert right.ratios(np.array([[1.0]]))[0, 0] > 1


def test_nothing_is_said_where_a_sum_may_overflow() -> None:
    p = Precision.of("float16")
    inputs = {"q": np.full((1, 2), 200.0), "k": np.full((2, 2), 200.0), "v": np.ones((2, 1))}
    assert expected(Attention(), inputs, p).allowed.tolist() == [[np.inf]]
    wide = expected(Attention(), inputs, Precision.of("float32"))
    assert np.isfinite(wide.allowed).all()


def test_a_forbidden_key_has_no_part() -> None:
    p = Precision.of("float16")
    inputs = {"q": np.ones((2, 1)), "k": np.ones((2, 1)), "v": np.array([[0.0], [1000.0]])}
    right = expected(Attention(causal=True), inputs, p)
    assert right.ratios(np.array([[0.5], [500.0]])).ravel().tolist()[0] > 1
    assert right.ratios(np.array([[0.0], [500.0]])).max() <= 1


@pytest.mark.parametrize("contract", ["eager", "fused"])
def test_the_fused_contract_is_the_narrower_one(contract: str) -> None:
    rng = np.random.default_rng(5)
    eager, fused = (Precision.of("float16", c) for c in ("eager", "fused"))  # type: ignore[arg-type]
    inputs = {c: eager.input.rounded(rng.standard_normal((5, 8))) for c in "qkv"}
    wide, narrow = (expected(Attention(), inputs, p).allowed for p in (eager, fused))
    assert (narrow < wide / 4).all()


def test_the_bound_of_projections_covers_both_orders() -> None:
    """(x W_Q)(y W_K)ᵀ and x (W_Q W_Kᵀ) yᵀ in float16 stay within it; a wrong width does not."""
    p, rng = Precision.of("float16"), np.random.default_rng(3)
    shapes = {"x": (3, 4), "y": (5, 4), "w_q": (4, 2), "w_k": (4, 2), "w_v": (4, 3)}
    inputs = {n: p.input.rounded(rng.standard_normal(s) / 2) for n, s in shapes.items()}
    right = expected(Attention(), inputs, p)
    x, y, w_q, w_k, w_v = (inputs[n].astype(np.float16) for n in shapes)
    for s in ((x @ w_q) @ (y @ w_k).T, x @ (w_q @ w_k.T) @ y.T):
        e = np.exp(s / np.sqrt(np.float16(2)))
        assert right.ratios((e / e.sum(axis=1, keepdims=True) @ (y @ w_v)).astype(float)).max() <= 1


def test_the_reference_is_sharp_enough_for_float64() -> None:
    rng, p = np.random.default_rng(9), Precision.of("float64")
    inputs = {c: rng.standard_normal((4, 3)) for c in "qkv"}
    with kinds.precision(30):
        blunt = run(Attention(), inputs)
    right = expected(Attention(), inputs, p)
    radii = [float(x.rad()) for x in right.entries.flat]
    assert max(radii) < right.allowed.min() * 1e-6
    assert max(float(x.rad()) for x in blunt.output.entries.flat) > right.allowed.max()
    with kinds.precision(128):
        assert allowed(run(Attention(), inputs), p).shape == (4, 3)


def test_an_undefined_number_has_no_upper_end() -> None:
    with np.errstate(all="ignore"):
        numbers = Ball.lift(np.array([0.0, 1.0])) / Ball.lift(np.array([0.0, 2.0]))
    assert upper(numbers)[0] == np.inf
    assert 0.5 <= upper(numbers)[1] < 0.6


GOALS = {"float32": 250.0, "float16": 16.0, "bfloat16": 6.0}
TILE = 32


def _exact(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    s = q @ k.T / np.sqrt(q.shape[1])
    e = np.exp(s - s.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True) @ v)


def _in_tiles(q: np.ndarray, k: np.ndarray, v: np.ndarray, p: Precision, scale: float) -> np.ndarray:
    m, total = np.full((len(q), 1), -np.inf, np.float32), np.zeros((len(q), 1), np.float32)
    out = np.zeros((len(q), v.shape[1]), np.float32)
    for j in range(0, len(k), TILE):
        s = q @ k[j : j + TILE].T * np.float32(scale)
        grown = np.maximum(m, s.max(axis=1, keepdims=True))
        e, shrink = np.exp(s - grown), np.exp(m - grown)
        total = total * shrink + e.sum(axis=1, keepdims=True)
        out = out * shrink + p.stored.rounded(e).astype(np.float32) @ v[j : j + TILE]
        m = grown
    return np.asarray(p.returned.rounded(out / total))


@pytest.mark.parametrize("name", GOALS)
def test_the_slack_is_small_and_a_wrong_scale_is_found(name: str) -> None:
    p, rng, d = Precision.of(name, "fused"), np.random.default_rng(61), 64
    given = {c: p.input.rounded(rng.standard_normal((128, d))) for c in "qkv"}
    q, k, v = (given[c].astype(np.float32) for c in "qkv")
    bound, exact = plain_bound.allowed(Attention(), given, p.in_tiles(128, TILE)), _exact(**given)
    error = np.abs(_in_tiles(q, k, v, p, 1 / np.sqrt(d)) - exact)
    assert (error <= bound).all()
    assert bound.max() / error.max() <= GOALS[name]
    wrong = np.abs(_in_tiles(q, k, v, p, 1 / np.sqrt(d + 1)) - exact)
    assert (wrong > bound).any()


def test_an_accumulator_of_half_precision_is_found_in_float32() -> None:
    p, rng = Precision.of("fp32"), np.random.default_rng(62)
    given = {c: p.input.rounded(rng.standard_normal((64, 32))) for c in "qkv"}
    s = given["q"] @ given["k"].T / np.sqrt(32)
    e = np.exp(s - s.max(axis=1, keepdims=True))
    total = np.zeros((64, 32), np.float16)
    for j in range(64):
        total = (total + e[:, j : j + 1] * given["v"][j]).astype(np.float16)
    error = np.abs(total / e.sum(axis=1, keepdims=True) - _exact(**given))
    assert (error > plain_bound.allowed(Attention(), given, p)).any()


# -- what has no value -------------------------------------------------------------------------------------------------
def _ratios(spec: Attention, got: object, **inputs: np.ndarray) -> np.ndarray:
    return expected(spec, inputs, Precision.of("fp32")).ratios(np.asarray(got, dtype=float))


@pytest.mark.parametrize("fields", [{"qk_norm": "l2"}, {"qk_norm": "rms"}, {"qk_norm": "layer"}, {"score": "cosine"}])
def test_of_a_vector_divided_by_its_length_0_nothing_is_said(fields: dict[str, str]) -> None:
    spec, v = Attention(**fields), np.array([[1.0], [2.0]])  # type: ignore[arg-type]
    inputs = {"q": np.array([[0.0, 0.0], [1.0, -1.0]]), "k": np.array([[1.0, -1.0], [1.0, -1.0]]), "v": v}
    for undefined in (0.0, 1.5, np.nan, np.inf):
        assert (_ratios(spec, [[undefined], [1.5]], **inputs) <= 1).all()
    for wrong in (1.6, np.nan):  # in the row that has a value
        assert _ratios(spec, [[1.5], [wrong]], **inputs)[1] > 1
    inputs["k"] = np.array([[0.0, 0.0], [1.0, -1.0]])  # which every query sees
    assert (_ratios(spec, [[7.0], [7.0]], **inputs) <= 1).all()


def test_of_joined_heads_nothing_is_said_where_one_has_no_value() -> None:
    x, w = np.array([[1.0, 1.0], [0.0, 1.0]]), np.eye(2)
    spec = Attention(heads=2, qk_norm="l2", causal=True)
    ratios = _ratios(spec, [[5.0, 5.0], [5.0, 5.0]], x=x, w_q=w, w_k=w, w_v=w)
    assert ratios.shape == x.shape
    assert (ratios[0] > 1).all()
    assert (ratios[1] <= 1).all()


def test_rows_without_keys_and_numbers_that_are_nan_are_still_judged() -> None:
    open_ = np.array([[False, False], [True, True]])
    ones = np.array([[1.0, 1.0], [1.0, 1.0]])
    spec = Attention(qk_norm="l2", mask="boolean", fully_masked="nan")
    assert _ratios(spec, [[0.0, 0.0], [1.0, 1.0]], q=ones, k=ones, v=ones, mask=open_)[0, 0] > 1
    assert _ratios(spec, [[np.nan, np.nan], [1.0, 1.0]], q=ones, k=ones, v=ones, mask=open_).max() <= 1
