"""Frequencies for longer contexts: in letters, where a ramp lies, what is refused, and magnitudes to many digits."""

from fractions import Fraction
from functools import partial
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy

from symattn.arrays import kind
from symattn.arrays.ball import precision
from symattn.attention.positions.rotary import inverse_frequencies
from symattn.attention.positions.rotary_fields import (
    LongRopeScaling,
    NTKScaling,
    YarnScaling,
    correction_range,
)
from symattn.document.errors import Refused
from tests.attention.frequencies import BITS, LENGTH, ball, is_close
from tests.refusals import refuses

TURNS = partial(YarnScaling, factor=8, length=LENGTH, ramp="turns")


def _long(factors: tuple[Any, ...]) -> LongRopeScaling:
    return LongRopeScaling(short=factors, long=factors, factor=1, length=LENGTH)


def test_a_scaling_in_letters() -> None:
    frequencies = inverse_frequencies(4, 100, kind("symbolic").lift(0))
    half_way = YarnScaling(factor=2, length=40, fast=4, ramp="turns").frequencies(frequencies, 100, 0).entries
    turns = 40 / (2 * sympy.pi * 10)
    assert half_way[0] == 1
    assert sympy.simplify(half_way[1] - sympy.Rational(1, 20)) == 0  # it turns 2/π < 1 times
    assert turns < 1
    longer = YarnScaling(factor=2, length=126, fast=4, ramp="turns").frequencies(frequencies, 100, 0).entries
    assert sympy.N(longer[1]) > sympy.Rational(1, 20)


def test_yarn_as_written_is_not_yarn_as_it_is_run() -> None:
    """The ramp of the paper is even in the number of turns, that of the implementations in the index of the pair."""
    frequencies = inverse_frequencies(128, 10000, np.zeros(()))
    written = YarnScaling(factor=16, length=4096, ramp="turns").frequencies(frequencies, 10000, 0)
    run = YarnScaling(factor=16, length=4096).frequencies(frequencies, 10000, 0)
    assert np.max(np.abs(written / run - 1)) > 0.6
    inside = (written != run) & (written != frequencies)
    assert 20 < int(np.argmax(inside)) < 46  # both leave the fast ones alone, and divide the slow ones by s
    np.testing.assert_allclose(written[46:], frequencies[46:] / 16)
    np.testing.assert_allclose(run[46:], frequencies[46:] / 16)


def test_the_range_of_the_ramp() -> None:
    assert correction_range(64, 10000, 4096, 1, 32) == (20, 46)
    assert correction_range(64, 10000, 4096, 32, 33) == (20, 21)
    assert correction_range(2, 10000, 8, 1, 32) == (0, 1)  # nothing turns 32 times in 8 positions
    assert correction_range(1, 10000, 3 * 10**6, 1, 32) == (1, 1 + Fraction(1, 1000))  # kept below r = 2


def test_scaling_refuses_what_makes_no_sense() -> None:
    one = inverse_frequencies(2, 10000, np.zeros(()))
    refuses(NTKScaling(factor=2).frequencies, one, 10000, 0, says="infinite for r = 2")
    refuses(_long((1, 2)).frequencies, one, 10000, 0, says="a factor for each of 1 pairs; 2 were given")
    with pytest.raises(Refused, match="exact lacks π"):
        TURNS().frequencies(inverse_frequencies(4, 10000, kind("exact").lift(0)), 10000, 0)


def test_dynamic_scaling_begins_after_the_trained_length() -> None:
    scaling = NTKScaling(factor=4, length=8192)
    assert [scaling.grown(n) for n in (8192, 100, 16384)] == [1, 1, 5]


def test_magnitudes() -> None:
    with precision(BITS), mpmath.workdps(70):
        yarn_16 = mpmath.log(16) / 10 + 1
        for how, wanted in (
            ({"factor": 16}, yarn_16),
            ({"factor": 16, "weight": 2}, 2 * yarn_16 - 1),
            ({"factor": 16, "weight": 2, "shared": 1}, (2 * yarn_16 - 1) / yarn_16),
            ({"factor": 1}, 1),
        ):
            assert is_close(YarnScaling(length=4096, **how).magnitude(ball())[None], [wanted])
        for factor, wanted in ((32, mpmath.sqrt(1 + mpmath.log(32) / mpmath.log(4096))), (0.5, 1)):
            scaling = LongRopeScaling(short=(1,), long=(1,), factor=factor, length=4096)
            assert is_close(scaling.magnitude(ball())[None], [wanted])
