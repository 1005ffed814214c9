"""The table of functions, the exponential against Arb, and floats that stand for π or e."""

import math
from typing import Any

import flint
import numpy as np
import pytest

from symattn import InputError, Refused, kind, kinds, proving
from symattn.arrays.enclosing import exponential
from symattn.arrays.functions import FUNCTIONS

Ball = kind("ball")

#: The unit roundoff of float64.
U = 2.0**-53
POINTS = [0.25, 0.5, 1.0, 2.75]
STEP = 2.0**-20


def values(name: str, x: Any) -> list[Any]:
    return list(getattr(Ball.xp, name)(Ball.lift(x)).entries)


def slopes(name: str) -> list[Any]:
    x = Ball.lift(POINTS)
    return list(FUNCTIONS[name].slope(Ball.xp, x, getattr(Ball.xp, name)(x)).entries)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_slope_is_that_of_a_short_chord(name: str) -> None:
    with kinds.precision(200):
        above, below = (values(name, [x + h for x in POINTS]) for h in (STEP, -STEP))
        for a, b, slope in zip(above, below, slopes(name), strict=True):
            chord = (a - b) / (2 * STEP)
            assert abs(chord - slope) < 1e-9
            assert abs(chord - 2 * slope) > 1e-4


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bounds_hold_where_there_are_any(name: str) -> None:
    row, x = FUNCTIONS[name], np.linspace(0.01, 3, 40)
    with kinds.precision(100):
        points = Ball.lift(x)
        found = row.slope(Ball.xp, points, getattr(Ball.xp, name)(points)).midpoints()
    assert (abs(found) <= row.steepest(x)).all()
    assert (abs(np.diff(found)) <= row.bend * np.diff(x) * (1 + 1e-9)).all()
    if np.isfinite(row.bend):
        assert abs(np.diff(found)).max() > 0.5 * row.bend * np.diff(x).min()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_dual_numbers_and_the_tape_give_the_slope(name: str) -> None:
    with kinds.precision(100):
        x = Ball.lift(POINTS)
        moved = getattr(kinds.dual(Ball).xp, name)(kinds.dual(Ball).made(x, Ball.lift([1] * len(POINTS))))
        taped = kinds.tape(Ball.xp).variable(x)
        (pulled,) = kinds.pull_back([(getattr(taped.xp, name)(taped), Ball.lift([1] * len(POINTS)))], [taped])
        for a, b, c in zip(moved.derivative.entries, pulled.entries, slopes(name), strict=True):
            assert a.overlaps(c)
            assert b.overlaps(c)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in ("exp", "log", "sqrt")])
def test_letters_have_the_slope_for_all_sizes(name: str) -> None:
    x = proving.Letters().array("x", "n", proving.Declared({}))
    xp = x.xp
    found = proving.gradient(lambda x: xp.sum(getattr(xp, name)(x)), "x", x=x)
    assert proving.prove_equal(found, FUNCTIONS[name].slope(xp, x, getattr(xp, name)(x))).proved
    assert not proving.prove_equal(found, 2 * FUNCTIONS[name].slope(xp, x, getattr(xp, name)(x))).proved


def test_floats_have_what_numpy_or_the_c_library_has() -> None:
    xp = kinds.tape(np).xp
    variable = kinds.tape(np).variable
    assert xp.erf(variable(np.float32([0, 9]))).value.tolist() == [0, 1]
    assert xp.erf(variable(np.float32([0, 9]))).value.dtype == np.float32
    assert xp.exp(variable(np.zeros(1))).value.tolist() == [1]
    with pytest.raises(Refused, match="lacks zeta"):
        variable(np.zeros(1)).offer("zeta")


@pytest.mark.parametrize("x", [math.pi, -math.pi, math.tau, math.pi / 180, 3 * math.pi / 4, math.e, 1 / math.pi])
def test_multiples_are_known(x: float):
    with pytest.raises(Refused, match="hint: the pi of the array's namespace"):
        kinds.Indexed.lift(x).at(())


@pytest.mark.parametrize("x", [0.0, 3.0, 3.14, 22 / 7, 0.1, 1e-5, math.sqrt(2), math.log(2), 1e300])
def test_other_numbers_are_not(x: float):
    kinds.Indexed.lift(x).at(())


@pytest.mark.parametrize("x", [math.inf, math.nan])
def test_what_is_no_number_is_taken_for_no_irrational_one(x: float) -> None:
    with pytest.raises(InputError, match="only a mask may hold -inf"):
        kinds.Indexed.lift(x).at(())


LN2 = float(np.log(2))


def worst(x: np.ndarray, got: np.ndarray, base: int | None = None, eta: float = 0.0) -> float:
    """The largest of (|got − exact| − η) / exact in units of u, where Arb gives what is exact."""
    with kinds.precision(120):
        log2 = flint.arb(2).log() / exponential.STEPS
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
    edges = (
        (np.arange(-int(most * exponential.STEPS / LN2), int(most * exponential.STEPS / LN2)) + 0.5)
        * LN2
        / exponential.STEPS
    )
    whole = np.arange(-int(most / LN2), int(most / LN2) + 1) * LN2
    small = rng.choice([-1.0, 1.0], size) * 10.0 ** rng.uniform(-320, 1, size)
    ends = np.array([0.0, -0.0, most, -most, 2.0**-1074, -(2.0**-1074)])
    parts = [rng.uniform(-most, most, 2 * size), near(edges, rng, size), near(whole, rng, size // 4), small, ends]
    return np.clip(np.concatenate(parts), -most, most)


@pytest.mark.deep
def test_moderate_arguments() -> None:
    x = arguments(700.0, 20_000)
    got = exponential.exp_moderate(x.copy())
    assert x.size > 120_000
    error = worst(x, got)
    assert 1.5 < error <= exponential.EPSILON / U  # near enough to the bound that the comparison says something
    assert (got[x == 0] == 1).all()


def test_powers() -> None:
    y = np.clip(
        arguments(690.0, 14_000) * (exponential.STEPS / LN2), -1000.0 * exponential.STEPS, 1000.0 * exponential.STEPS
    )
    y = np.concatenate([y, np.arange(-20_000, 20_000) / 2])
    assert y.size > 120_000
    assert worst(y, exponential.powers(y.copy()), base=2) <= exponential.EPSILON / U


def test_every_argument() -> None:
    rng = np.random.default_rng(6)
    x = np.concatenate([rng.uniform(-746, 709.78, 5000), rng.uniform(-746, -707, 5000), rng.uniform(709, 709.78, 2000)])
    got = exponential.exp(x)
    assert worst(x, got, eta=2.0**-1074) <= exponential.EPSILON / U
    assert (got > 0).any()
    assert (got[x < -745.2] == 0).all()
    assert (got[(x > -745) & (x < -709)] > 0).all()
    assert np.isfinite(got).all()


def test_beyond_all_floats() -> None:
    x = np.array([[-np.inf, -800.0, -746.5], [710.5, 1e308, np.inf]])
    assert exponential.exp(x).tolist() == [[0.0, 0.0, 0.0], [np.inf, np.inf, np.inf]]
    assert np.isnan(exponential.exp(np.array([np.nan, 0.0]))[0])
    assert exponential.exp(709.7827) < np.inf
    assert exponential.exp(709.7828) == np.inf


def test_the_argument_is_left_alone() -> None:
    x = np.array([1.0, 2.0])
    exponential.exp(x)
    assert x.tolist() == [1.0, 2.0]


def test_shapes_and_chunks() -> None:
    x = np.random.default_rng(7).uniform(-5, 5, (3, exponential.CHUNK + 1))
    whole = exponential.exp(x)
    assert whole.shape == x.shape
    assert np.array_equal(whole, np.array([exponential.exp(row) for row in x]))
    assert np.array_equal(whole, exponential.exp_moderate(x.copy()))
    assert exponential.exp(np.empty((0, 2))).shape == (0, 2)


@pytest.mark.parametrize("wrong", [np.zeros((3, 4))[:, 1:], np.zeros(3, dtype=np.float32)])
def test_what_cannot_be_overwritten_is_refused(wrong: np.ndarray) -> None:
    with pytest.raises(ValueError, match="contiguous"):
        exponential.powers(wrong)


@pytest.mark.parametrize("j", [0, 1, 777, exponential.STEPS - 1])
@pytest.mark.parametrize("ulps", [1, -1, 4])
def test_a_wrong_table_is_refused(j: int, ulps: int) -> None:
    table = exponential._compute_exp_constants().table.view(np.float64).copy()
    exponential.check_table(table)
    table.view(np.int64)[j] += ulps
    with pytest.raises(ArithmeticError, match=f"entry {j} "):
        exponential.check_table(table)


def test_a_wrong_table_shows_in_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison with Arb sees what the table's own check would have to let through."""
    right = exponential._compute_exp_constants()
    table = right.table.copy()
    table[100] += np.uint64(3)
    monkeypatch.setattr(exponential, "_compute_exp_constants", lambda: right._replace(table=table))
    y = 100 + np.linspace(-0.4, 0.4, 100)
    assert worst(y, exponential.powers(y.copy()), base=2) > exponential.EPSILON / U


def test_arithmetic_that_flushes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    exponential.check_arithmetic()
    monkeypatch.setattr(exponential.np, "array", lambda _: np.zeros(1))  # as if the smallest numbers were lost
    with pytest.raises(Refused, match="flushed"):
        exponential.check_arithmetic()
