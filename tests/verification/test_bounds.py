"""The bound holds for every implementation it speaks for, is not idle, and refuses what is wrong."""

import numpy as np
import pytest

from symattn import Attention
from symattn.arrays.ball import Ball
from symattn.arrays.ball import precision as bits
from symattn.arrays.precision import Precision
from symattn.bounds.arithmetic import upper
from symattn.bounds.balls import allowed
from symattn.bounds.judge import expected
from symattn.bounds.reference import run
from tests.verification.legal import Row

PRECISIONS = ("float32", "float16", "bfloat16")


def _inputs(rng: np.random.Generator, p: Precision) -> dict[str, np.ndarray]:
    n, d = int(rng.integers(1, 9)), int(rng.integers(1, 6))
    size = float(rng.choice([0.1, 1.0, 3.0]))
    shapes = {"q": (1, d), "k": (n, d), "v": (n, 1)}
    made = {name: p.input.rounded(rng.standard_normal(shape) * size) for name, shape in shapes.items()}
    if rng.random() < 0.3:
        made["q"][:] = 0
    if rng.random() < 0.3:
        made["v"] = p.input.rounded(made["v"] + 4)
    return made


@pytest.mark.parametrize("name", PRECISIONS)
def test_no_legal_implementation_exceeds_it(name: str) -> None:
    p, rng, worst = Precision.of(name), np.random.default_rng(11), []
    for _ in range(60):
        inputs = _inputs(rng, p)
        right = expected(Attention(), inputs, p)
        for _ in range(12):
            y = Row(p, rng).output(inputs["q"][0], inputs["k"], inputs["v"][:, 0])
            worst.append(float(right.ratios(np.array([[y]]))[0, 0]))
    assert max(worst) <= 1
    assert max(worst) > 0.2, "the bound has become so wide that nothing comes near it"


@pytest.mark.parametrize("name", PRECISIONS)
def test_a_rougher_arithmetic_exceeds_it(name: str) -> None:
    """The same implementations with roundings eight times as large: the test above can fail."""
    p, rng = Precision.of(name), np.random.default_rng(12)
    broken = 0
    for _ in range(100):
        inputs = _inputs(rng, p)
        rough = Row(p, rng).rougher(8)
        y = rough.output(inputs["q"][0], inputs["k"], inputs["v"][:, 0])
        broken += bool(expected(Attention(), inputs, p).ratios(np.array([[y]]))[0, 0] > 1)
    assert broken


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, width: int) -> np.ndarray:
    s = q @ k.T / np.sqrt(np.asarray(width, dtype=q.dtype))
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v


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
    with bits(30):
        blunt = run(Attention(), inputs)
    right = expected(Attention(), inputs, p)
    radii = [float(x.rad()) for x in right.entries.flat]
    assert max(radii) < right.allowed.min() * 1e-6
    assert max(float(x.rad()) for x in blunt.output.entries.flat) > right.allowed.max()
    with bits(128):
        assert allowed(run(Attention(), inputs), p).shape == (4, 3)


def test_an_undefined_number_has_no_upper_end() -> None:
    with np.errstate(all="ignore"):
        numbers = Ball.lift(np.array([0.0, 1.0])) / Ball.lift(np.array([0.0, 2.0]))
    assert upper(numbers)[0] == np.inf
    assert 0.5 <= upper(numbers)[1] < 0.6
