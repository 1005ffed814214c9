"""Bounds for programs that take some steps in float32 and the others in float64."""

import numpy as np
import pytest

from symattn.arrays.rounded import rounded
from symattn.attention.spec import Attention
from tests.models.mixed import read, run

pytestmark = pytest.mark.transformers
WIDE, NARROW = rounded("float64"), rounded("float32")


def test_numbers_are_read_in_float32_with_one_rounding() -> None:
    x = np.array([1 / 3, 0.1, -7.7, 1e-3])
    found = read(read(WIDE.lift(x), NARROW), WIDE)
    assert found.within(x.astype(np.float32)).all()
    assert found.within(x).all()
    assert not found.within(x * (1 + 2.0**-23)).any()
    assert not np.any(WIDE.lift(x).within(x.astype(np.float32)))


def test_what_float32_holds_is_read_as_it_is() -> None:
    x = np.array([0.5, -3.0, 0.0, 1 + 2.0**-23])
    assert not read(WIDE.lift(x), NARROW).error.any()


def test_numbers_of_float32_are_read_in_float64_as_they_are() -> None:
    x = NARROW.lift(np.array([1.0, 3.0])) / NARROW.lift(np.array([3.0, 7.0]))
    assert np.array_equal(read(x, WIDE).error, x.error)


def inputs() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {"q": draw.standard_normal((4, 3)), "k": draw.standard_normal((5, 3)), "v": draw.standard_normal((5, 2))}


def attended(given: dict[str, np.ndarray], single: bool) -> np.ndarray:
    scores = (given["q"] @ given["k"].T) / np.sqrt(3)
    scores = scores.astype(np.float32) if single else scores
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray((e / e.sum(-1, keepdims=True)).astype(np.float64) @ given["v"])


def test_softmax_in_float32_is_within_its_bound_alone() -> None:
    given = inputs()
    mixed, wide = run(Attention(), given, ["weights"]), run(Attention(), given)
    assert mixed.within(attended(given, True)).all()
    assert mixed.within(attended(given, False)).all()
    assert wide.within(attended(given, False)).all()
    assert not wide.within(attended(given, True)).any()
    assert np.all(mixed.bound < 2.0**-18)


def test_a_step_that_is_not_taken_is_refused() -> None:
    with pytest.raises(AssertionError, match="not taken"):
        run(Attention(), inputs(), ["cos"])
