"""Two functions on the same inputs: which is beyond the bound, by how much, and where they differ first."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from symattn import Attention
from symattn.arrays.precision import Precision
from symattn.bounds.domain import Domain
from symattn.models.comparing.comparison import DifferingEntry, JointRun, together
from symattn.programs.target import target
from symattn.programs.verifying import requested
from symattn.verification import engine
from symattn.verification.attention import OfAttention
from symattn.verification.report import Counterexample, Fault
from tests.models.comparing import programs


def session(function: Callable[..., Any], examples: int = 4) -> engine.Session:
    spec, precision = Attention(), Precision.of("float32")
    runner = target(function, requested(spec, dtype="float32", layout="nd", framework="numpy"))
    return engine.Session(runner, OfAttention(spec), precision, Domain(), 7, examples=examples, budget=60.0)


def held(first: Callable[..., Any], second: Callable[..., Any], *faults: Fault) -> JointRun:
    return together((session(first), session(second)), faults, most=16)


def test_two_right_ones_differ_by_rounding_alone() -> None:
    found = held(programs.plain, programs.late)
    assert found.cases > 10
    assert found.wrong == (0, 0)
    assert found.faulty is None
    assert found.first is not None
    assert 0 < found.apart <= 2
    assert found.equal < found.cases


def test_one_function_is_equal_to_itself() -> None:
    found = held(programs.plain, programs.plain)
    assert found.cases == found.equal > 10
    assert found.first is found.worst is found.faulty is None


def test_the_wrong_side_is_told_whichever_it_is() -> None:
    found = held(programs.plain, programs.of_values)
    turned = held(programs.of_values, programs.plain)
    assert found.wrong[0] == turned.wrong[1] == 0
    assert found.wrong[1] == turned.wrong[0] > 0
    assert found.faulty is not None
    assert turned.faulty is not None
    assert found.faulty.first.ratio <= 1 < found.faulty.second.ratio
    assert turned.faulty.second.ratio <= 1 < turned.faulty.first.ratio


def test_the_place_holds_what_both_give() -> None:
    place = held(programs.plain, programs.of_values).faulty
    assert isinstance(place, DifferingEntry)
    given = {name: np.asarray(a, dtype=np.float32) for name, a in place.inputs.items()}
    one, other = programs.plain(**given), programs.of_values(**given)
    assert (place.first.got, place.second.got) == (one[place.index], other[place.index])
    assert place.exact == pytest.approx(
        float(Attention()(**{n: a.astype(float) for n, a in given.items()})[place.index])
    )
    assert place.apart == pytest.approx(abs(place.first.got - place.second.got) / place.allowed)


def test_two_wrong_ones_that_agree_are_wrong() -> None:
    found = held(programs.unscaled, programs.unscaled)
    assert found.equal == found.cases
    assert found.wrong[0] == found.wrong[1] > 0


def test_inputs_that_one_refuses_are_left_out() -> None:
    found = held(programs.plain, programs.refusing)
    assert 0 < found.cases < held(programs.plain, programs.plain).cases
    assert found.wrong == (0, 0)


def test_the_counterexample_of_a_fault_comes_first() -> None:
    inputs = {"q": [[1.0, 0.0]], "k": [[0.0, 0.0], [1.0, 0.0]], "v": [[0.0], [1.0]]}
    fault = Fault("scale", None, "", Counterexample(inputs, (0, 0)))
    place = held(programs.plain, programs.of_values, fault).faulty
    assert place is not None
    assert place.inputs == inputs
    assert place.case.startswith("counterexample")
