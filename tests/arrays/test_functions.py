"""The table of functions: slopes and bounds of each row, and the kinds that read it."""

from typing import Any

import flint
import numpy as np
import pytest

from symattn.arrays.ball import Ball, precision
from symattn.arrays.dual import dual
from symattn.arrays.functions import FUNCTIONS, of_floats
from symattn.arrays.tape import pull_back, tape
from symattn.document.errors import Refused
from symattn.proof.gradients import gradient
from symattn.proof.prover import prove
from symattn.proof.statement import Declared, Letters

POINTS = [0.25, 0.5, 1.0, 2.75]
STEP = 2.0**-20


def values(name: str, x: Any) -> list[Any]:
    return list(getattr(Ball.xp, name)(Ball.lift(x)).entries)


def slopes(name: str) -> list[Any]:
    x = Ball.lift(POINTS)
    return list(FUNCTIONS[name].slope(Ball.xp, x, getattr(Ball.xp, name)(x)).entries)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_slope_is_that_of_a_short_chord(name: str) -> None:
    with precision(200):
        above, below = (values(name, [x + h for x in POINTS]) for h in (STEP, -STEP))
        for a, b, slope in zip(above, below, slopes(name), strict=True):
            chord = (a - b) / (2 * STEP)
            assert abs(chord - slope) < 1e-9
            assert abs(chord - 2 * slope) > 1e-4


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bounds_hold_where_there_are_any(name: str) -> None:
    row, x = FUNCTIONS[name], np.linspace(0.01, 3, 40)
    with precision(100):
        points = Ball.lift(x)
        found = row.slope(Ball.xp, points, getattr(Ball.xp, name)(points)).midpoints()
    assert (abs(found) <= row.steepest(x)).all()
    assert (abs(np.diff(found)) <= row.bend * np.diff(x) * (1 + 1e-9)).all()
    if np.isfinite(row.bend):
        assert abs(np.diff(found)).max() > 0.5 * row.bend * np.diff(x).min()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_dual_numbers_and_the_tape_give_the_slope(name: str) -> None:
    with precision(100):
        x = Ball.lift(POINTS)
        moved = getattr(dual(Ball).xp, name)(dual(Ball).made(x, Ball.lift([1] * len(POINTS))))
        taped = tape(Ball.xp).variable(x)
        (pulled,) = pull_back([(getattr(taped.xp, name)(taped), Ball.lift([1] * len(POINTS)))], [taped])
        for a, b, c in zip(moved.derivative.entries, pulled.entries, slopes(name), strict=True):
            assert a.overlaps(c)
            assert b.overlaps(c)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in ("exp", "log", "sqrt")])
def test_letters_have_the_slope_for_all_sizes(name: str) -> None:
    x = Letters().array("x", "n", Declared({}))
    xp = x.xp
    found = gradient(lambda x: xp.sum(getattr(xp, name)(x)), "x", x=x)
    assert prove(found, FUNCTIONS[name].slope(xp, x, getattr(xp, name)(x))).proved
    assert not prove(found, 2 * FUNCTIONS[name].slope(xp, x, getattr(xp, name)(x))).proved


def test_floats_have_what_numpy_or_the_c_library_has() -> None:
    assert of_floats("erf", np.float32([0, 9])).tolist() == [0, 1]
    assert of_floats("erf", np.float32([0, 9])).dtype == np.float32
    assert of_floats("exp", np.zeros(1)).tolist() == [1]
    with pytest.raises(Refused, match="float64 lacks zeta"):
        of_floats("zeta", np.zeros(1))


def test_the_slope_of_erf_holds_pi() -> None:
    assert flint.arb.pi().overlaps(slopes("erf")[0] ** -2 * 4 * flint.arb(-0.125).exp())
