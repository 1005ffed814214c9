"""The exponential against Arb, at its edges too, and that wrong tables are refused."""

import flint
import numpy as np
import pytest

from symattn.arrays.ball import precision
from symattn.arrays.enclosing import exponential
from symattn.arrays.enclosing.exponential import EPSILON, ETA, STEPS, U, check_table, exp, exp_moderate, powers
from symattn.document.errors import Refused

LN2 = float(np.log(2))


def worst(x: np.ndarray, got: np.ndarray, base: int | None = None, eta: float = 0.0) -> float:
    """The largest of (|got − exact| − η) / exact in units of u, where Arb gives what is exact."""
    with precision(120):
        log2 = flint.arb(2).log() / STEPS
        most = flint.arb(0)
        for a, e in zip(x.tolist(), got.tolist(), strict=True):
            exact = (flint.arb(a) if base is None else flint.arb(a) * log2).exp()
            most = most.max((abs(flint.arb(e) - exact) - eta) / exact)
        return float(most.upper()) / U


def near(points: np.ndarray, rng: np.random.Generator, size: int) -> np.ndarray:
    """Floats at, just above and just below some of the points."""
    chosen = rng.choice(points, size)
    return np.concatenate([chosen, np.nextafter(chosen, np.inf), np.nextafter(chosen, -np.inf)])


def arguments(most: float, size: int) -> np.ndarray:
    """Uniform and small ones, and those where the reduction goes from one integer to the next."""
    rng = np.random.default_rng(5)
    edges = (np.arange(-int(most * STEPS / LN2), int(most * STEPS / LN2)) + 0.5) * LN2 / STEPS
    whole = np.arange(-int(most / LN2), int(most / LN2) + 1) * LN2
    small = rng.choice([-1.0, 1.0], size) * 10.0 ** rng.uniform(-320, 1, size)
    ends = np.array([0.0, -0.0, most, -most, 2.0**-1074, -(2.0**-1074)])
    parts = [rng.uniform(-most, most, 2 * size), near(edges, rng, size), near(whole, rng, size // 4), small, ends]
    return np.clip(np.concatenate(parts), -most, most)


def test_moderate_arguments() -> None:
    x = arguments(700.0, 20_000)
    got = exp_moderate(x.copy())
    assert x.size > 120_000
    error = worst(x, got)
    assert 1.5 < error <= EPSILON / U  # near enough to the bound that the comparison says something
    assert (got[x == 0] == 1).all()


def test_powers() -> None:
    y = np.clip(arguments(690.0, 14_000) * (STEPS / LN2), -1000.0 * STEPS, 1000.0 * STEPS)
    y = np.concatenate([y, np.arange(-20_000, 20_000) / 2])
    assert y.size > 120_000
    assert worst(y, powers(y.copy()), base=2) <= EPSILON / U


def test_every_argument() -> None:
    rng = np.random.default_rng(6)
    x = np.concatenate([rng.uniform(-746, 709.78, 5000), rng.uniform(-746, -707, 5000), rng.uniform(709, 709.78, 2000)])
    got = exp(x)
    assert worst(x, got, eta=ETA) <= EPSILON / U
    assert (got > 0).any()
    assert (got[x < -745.2] == 0).all()
    assert (got[(x > -745) & (x < -709)] > 0).all()
    assert np.isfinite(got).all()


def test_beyond_all_floats() -> None:
    x = np.array([[-np.inf, -800.0, -746.5], [710.5, 1e308, np.inf]])
    assert exp(x).tolist() == [[0.0, 0.0, 0.0], [np.inf, np.inf, np.inf]]
    assert np.isnan(exp(np.array([np.nan, 0.0]))[0])
    assert exp(709.7827) < np.inf
    assert exp(709.7828) == np.inf


def test_the_argument_is_left_alone() -> None:
    x = np.array([1.0, 2.0])
    exp(x)
    assert x.tolist() == [1.0, 2.0]


def test_shapes_and_chunks() -> None:
    x = np.random.default_rng(7).uniform(-5, 5, (3, exponential.CHUNK + 1))
    whole = exp(x)
    assert whole.shape == x.shape
    assert np.array_equal(whole, np.array([exp(row) for row in x]))
    assert np.array_equal(whole, exp_moderate(x.copy()))
    assert exp(np.empty((0, 2))).shape == (0, 2)


@pytest.mark.parametrize("wrong", [np.zeros((3, 4))[:, 1:], np.zeros(3, dtype=np.float32)])
def test_what_cannot_be_overwritten_is_refused(wrong: np.ndarray) -> None:
    with pytest.raises(ValueError, match="contiguous"):
        powers(wrong)


@pytest.mark.parametrize("j", [0, 1, 777, STEPS - 1])
@pytest.mark.parametrize("ulps", [1, -1, 4])
def test_a_wrong_table_is_refused(j: int, ulps: int) -> None:
    table = exponential._constants().table.view(np.float64).copy()
    check_table(table)
    table.view(np.int64)[j] += ulps
    with pytest.raises(ArithmeticError, match=f"entry {j} "):
        check_table(table)


def test_a_wrong_table_shows_in_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison with Arb sees what the table's own check would have to let through."""
    right = exponential._constants()
    table = right.table.copy()
    table[100] += np.uint64(3)
    monkeypatch.setattr(exponential, "_constants", lambda: right._replace(table=table))
    y = 100 + np.linspace(-0.4, 0.4, 100)
    assert worst(y, powers(y.copy()), base=2) > EPSILON / U


def test_arithmetic_that_flushes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    exponential.check_arithmetic()
    monkeypatch.setattr(exponential.np, "array", lambda _: np.zeros(1))  # as if the smallest numbers were lost
    with pytest.raises(Refused, match="flushed"):
        exponential.check_arithmetic()
