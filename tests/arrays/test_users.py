"""Unmodified programs of users, by NumPy's dispatch alone: the same on every kind, and mistakes show."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from symattn.arrays import kind
from symattn.arrays.ball import precision
from symattn.arrays.notes import listening
from tests.arrays.users import RIGHT, WRONG, Program, cast_to_float32_and_back
from tests.bounded import bounded

RNG = np.random.default_rng(3)
Q, K, V = (RNG.integers(-6, 7, (4, 4)) / 4 for _ in range(3))


def exact(program: Program) -> Any:
    """The elements of the program's result on exact arrays."""
    return program(*map(kind("exact").lift, (Q, K, V))).entries


@pytest.mark.parametrize("program", RIGHT, ids=lambda f: f.__name__)
def test_a_users_program_means_the_same_on_exact_arrays_and_balls(program: Program) -> None:
    truth = exact(program)
    with precision(120):
        balls = program(*map(kind("ball").lift, (Q, K, V))).entries
    assert truth.shape == balls.shape
    for x, ball in zip(truth.flat, balls.flat, strict=True):
        assert ball.overlaps(x.arb(200))
        assert ball.rel_accuracy_bits() > 90


@pytest.mark.parametrize("program", RIGHT, ids=lambda f: f.__name__)
def test_what_numpy_computes_is_the_exact_result_rounded(program: Program) -> None:
    """The float64 result lies within the rounding errors of its own operations, see ``tests.bounded``."""
    arithmetic = bounded(np.float32 if program is cast_to_float32_and_back else np.float64)
    radius = program(*map(arithmetic.lift, (Q, K, V))).planes[1]
    assert (radius < 2**8 * arithmetic.u).all()
    result = np.asarray(program(Q, K, V), dtype=np.float64)
    truth = np.vectorize(lambda x: x.to_float(), otypes=[float])(exact(program))
    assert (np.abs(result - truth) <= radius).all()


@pytest.mark.parametrize(("program", "neighbour"), WRONG, ids=lambda f: f.__name__)
def test_a_mistake_shows_on_exact_arrays(program: Program, neighbour: Program) -> None:
    assert program(Q, K, V).shape == neighbour(Q, K, V).shape
    assert any(not x.same(y) for x, y in zip(exact(program).flat, exact(neighbour).flat, strict=True))


def test_programs_of_one_meaning_are_equal_exactly() -> None:
    """Not close: equal, as numbers like (1 + 4e²)/(1 + 2e²)."""
    by_name = {f.__name__: f for f in RIGHT}
    groups = [
        [
            "plain",
            "by_einsum",
            "written_in_place",
            "by_log_sum_exp",
            "by_tiles",
            "by_loops",
            "cast_to_float32_and_back",
        ],
        ["two_heads", "two_heads_in_a_list"],
        [name for name in by_name if name.startswith(("causal", "with_a"))],
    ]
    assert sum(map(len, groups)) == len(RIGHT)
    for first, *others in groups:
        for other in others:
            pairs = zip(exact(by_name[first]).flat, exact(by_name[other]).flat, strict=True)
            assert all(x.same(y) for x, y in pairs), other


def test_a_cast_in_a_users_program_is_noted() -> None:
    with listening() as notes:
        exact(cast_to_float32_and_back)
    assert "astype(float32) kept exact" in notes


def test_a_float_made_from_a_size_is_noted_and_shows() -> None:
    """math.sqrt(3) is not √3: the result differs from the exact one, and the note says why."""
    import math

    x = kind("exact").lift([[1, 2, Fraction(1, 2)]])
    with listening() as notes:
        scaled = x / math.sqrt(x.shape[-1])
    assert "a float was made from the size 3" in notes
    assert not (scaled == x / np.sqrt(x.shape[-1])).any()
