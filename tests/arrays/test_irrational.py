"""Floats that stand for π or e are known, and no others are taken for them."""

import math

import pytest

from symattn.arrays.met import irrational


@pytest.mark.parametrize("x", [math.pi, -math.pi, math.tau, math.pi / 180, 3 * math.pi / 4, math.e, 1 / math.pi])
def test_multiples_are_known(x: float):
    assert irrational(x)


@pytest.mark.parametrize("x", [0.0, 3.0, 3.14, 22 / 7, 0.1, 1e-5, math.sqrt(2), math.log(2), 1e300, math.inf, math.nan])
def test_other_numbers_are_not(x: float):
    assert not irrational(x)
