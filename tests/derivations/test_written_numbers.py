"""Floats of Python are the decimals that were written: what is printed is what the steps compute."""

from fractions import Fraction
from typing import Any

import pytest

from symattn import Rotary, YarnScaling, derive, walk

_EXACT = Fraction(13, 10)
_FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "scale": ({"scale": 0.3}, {"scale": Fraction(3, 10)}),
    "softcap": ({"softcap": 1e-3}, {"softcap": Fraction(1, 1000)}),
    "eps": ({"value_norm": "rms", "eps": 1e-6}, {"value_norm": "rms", "eps": Fraction(1, 10**6)}),
    "a field of a field of a position": (
        {"position": Rotary(scaling=YarnScaling(factor=1.3, length=64))},
        {"position": Rotary(scaling=YarnScaling(factor=_EXACT, length=64))},
    ),
}


@pytest.mark.deep
def test_a_derivation_takes_a_float_as_the_decimal_that_was_written() -> None:
    for name, (floats, exact) in _FIELDS.items():
        steps = [derive("attention", **fields).text().split("Made with")[0] for fields in (floats, exact)]
        assert steps[0] == steps[1], name


def test_a_walk_takes_a_float_as_the_decimal_that_was_written() -> None:
    assert walk(scale=0.3).text() == walk(scale=Fraction(3, 10)).text()
    assert walk(scale=0.3).text() != walk(scale=Fraction(1, 3)).text()
