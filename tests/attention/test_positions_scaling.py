"""Frequencies for longer contexts: in letters, where a ramp lies, what is refused, and magnitudes to many digits."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
import sympy

from symattn.arrays import kind
from symattn.arrays.ball import precision
from symattn.attention.positions import rotary_scaling as scaling
from symattn.attention.positions.rotary import inverse_frequencies
from symattn.document.errors import InputError, Refused
from tests.attention.frequencies import BITS, LENGTH, ball, is_close

WIDTH = 12


def test_a_scaling_in_letters() -> None:
    frequencies = inverse_frequencies(4, 100, kind("symbolic").lift(0))
    half_way = scaling.by_parts(frequencies, 2, 40, 1, 4).entries
    turns = 40 / (2 * sympy.pi * 10)
    assert half_way[0] == 1
    assert sympy.simplify(half_way[1] - sympy.Rational(1, 20)) == 0  # it turns 2/π < 1 times
    assert turns < 1
    assert sympy.N(scaling.by_parts(frequencies, 2, 126, 1, 4).entries[1]) > sympy.Rational(1, 20)


def test_yarn_as_written_is_not_yarn_as_it_is_run() -> None:
    """The ramp of the paper is even in the number of turns, that of the implementations in the index of the pair."""
    frequencies = inverse_frequencies(128, 10000, np.zeros(()))
    written = scaling.by_parts(frequencies, 16, 4096)
    run = scaling.by_index(frequencies, 10000, 16, 4096)
    assert np.max(np.abs(written / run - 1)) > 0.6
    inside = (written != run) & (written != frequencies)
    assert 20 < int(np.argmax(inside)) < 46  # both leave the fast ones alone, and divide the slow ones by s
    np.testing.assert_allclose(written[46:], frequencies[46:] / 16)
    np.testing.assert_allclose(run[46:], frequencies[46:] / 16)


def test_the_range_of_the_ramp() -> None:
    assert scaling.correction_range(64, 10000, 4096, 1, 32) == (20, 46)
    assert scaling.correction_range(64, 10000, 4096, 32, 33) == (20, 21)
    assert scaling.correction_range(2, 10000, 8, 1, 32) == (0, 1)  # nothing turns 32 times in 8 positions
    assert scaling.correction_range(1, 10000, 3 * 10**6, 1, 32) == (1, 1 + Fraction(1, 1000))  # kept below r = 2


def test_scaling_refuses_what_makes_no_sense() -> None:
    one = inverse_frequencies(2, 10000, np.zeros(()))
    with pytest.raises(InputError, match="infinite for r = 2"):
        scaling.ntk_aware(one, 2)
    with pytest.raises(InputError, match="a factor for each of 1 pairs; 2 were given"):
        scaling.longrope(one, [1, 2])
    with pytest.raises(Refused, match="exact lacks π"):
        scaling.by_parts(inverse_frequencies(4, 10000, kind("exact").lift(0)), 8, LENGTH)


def test_dynamic_scaling_begins_after_the_trained_length() -> None:
    assert scaling.dynamic_factor(8192, 8192, 4) == 1
    assert scaling.dynamic_factor(100, 8192, 4) == 1
    assert scaling.dynamic_factor(16384, 8192, 4) == 5


def test_magnitudes() -> None:
    with precision(BITS), mpmath.workdps(70):
        yarn_16 = mpmath.log(16) / 10 + 1
        assert is_close(scaling.yarn_magnitude(16, ball())[None], [yarn_16])
        assert is_close(scaling.yarn_magnitude(16, ball(), 2)[None], [2 * yarn_16 - 1])
        assert is_close(scaling.yarn_magnitude(1, ball())[None], [1])
        wanted = mpmath.sqrt(1 + mpmath.log(32) / mpmath.log(4096))
        assert is_close(scaling.longrope_magnitude(32, 4096, ball())[None], [wanted])
        assert is_close(scaling.longrope_magnitude(0.5, 4096, ball())[None], [1])
