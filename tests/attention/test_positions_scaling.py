"""Frequencies for longer contexts: each formula written out one frequency at a time, to many digits."""

from collections.abc import Callable
from fractions import Fraction
from math import floor
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy

from symattn.arrays import kind
from symattn.arrays.ball import precision
from symattn.attention.positions import rotary_scaling as scaling
from symattn.attention.positions.rotary import inverse_frequencies
from symattn.document.errors import InputError, Refused
from tests.attention.frequencies import BASE, BITS, LENGTH, ball, is_close, true_frequencies

WIDTH = 12


def pair_turning(turns: Any, length: int = LENGTH) -> Any:
    return WIDTH * mpmath.log(mpmath.mpf(length) / (turns * 2 * mpmath.pi)) / (2 * mpmath.log(BASE))


def blend(share: Any, w: Any, s: Any) -> Any:
    return share * w + (1 - share) * w / s


def cut(x: Any) -> Any:
    return min(max(x, mpmath.mpf(0)), mpmath.mpf(1))


def yarn(whole: bool, s: Any = 16) -> list[Any]:
    low, high = pair_turning(32), pair_turning(1)
    if whole:
        low, high = mpmath.mpf(floor(low)), mpmath.ceil(high)
    low, high = max(low, mpmath.mpf(0)), min(high, mpmath.mpf(WIDTH - 1))
    return [blend(1 - cut((i - low) / (high - low)), w, s) for i, w in enumerate(true_frequencies(WIDTH))]


def llama(s: Any = 8) -> list[Any]:
    found = []
    for w in true_frequencies(WIDTH):
        wavelength = 2 * mpmath.pi / w
        if wavelength < mpmath.mpf(LENGTH) / 4:
            found.append(w)
        elif wavelength > LENGTH:
            found.append(w / s)
        else:
            found.append(blend((LENGTH / wavelength - 1) / 3, w, s))
    return found


def with_base(base: Any) -> list[Any]:
    return true_frequencies(WIDTH, base)


LONG = [Fraction(9, 8), 2, 3.5, 4, 5, 64]
SCALINGS: dict[str, tuple[Callable[[Any], Any], Callable[[], list[Any]], Callable[[Any], Any]]] = {
    "linear": (
        lambda w: scaling.linear(w, 2.5),
        lambda: [x / mpmath.mpf(2.5) for x in true_frequencies(WIDTH)],
        lambda w: w,
    ),
    "ntk": (
        lambda w: scaling.ntk_aware(w, 4),
        lambda: with_base(BASE * mpmath.mpf(4) ** (mpmath.mpf(WIDTH) / (WIDTH - 2))),
        lambda w: scaling.linear(w, 4),
    ),
    "dynamic": (
        lambda w: scaling.ntk_aware(w, scaling.dynamic_factor(20000, LENGTH, 4)),
        lambda: with_base(BASE * (mpmath.mpf(4 * 20000) / LENGTH - 3) ** (mpmath.mpf(WIDTH) / (WIDTH - 2))),
        lambda w: scaling.ntk_aware(w, 4),
    ),
    "yarn": (
        lambda w: scaling.by_index(w, BASE, 16, LENGTH),
        lambda: yarn(True),
        lambda w: scaling.by_index(w, BASE, 16, LENGTH, fast=1000),
    ),
    "yarn, not rounded": (
        lambda w: scaling.by_index(w, BASE, 16, LENGTH, whole=False),
        lambda: yarn(False),
        lambda w: scaling.by_index(w, BASE, 16, LENGTH),
    ),
    "llama 3": (
        lambda w: scaling.by_parts(w, 8, LENGTH, 1, 4),
        llama,
        lambda w: scaling.by_parts(w, 8, LENGTH, 1, 32),
    ),
    "longrope": (
        lambda w: scaling.longrope(w, LONG),
        lambda: [x / mpmath.mpf(float(f)) for x, f in zip(true_frequencies(WIDTH), LONG, strict=True)],
        lambda w: scaling.longrope(w, LONG[::-1]),
    ),
    "proportional": (
        lambda w: scaling.proportional(w, 0.5),
        lambda: [*true_frequencies(WIDTH)[:3], 0, 0, 0],
        lambda w: scaling.proportional(w, 0.25),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALINGS)
def test_a_scaling(name: str) -> None:
    run, reference, wrong = SCALINGS[name]
    with precision(BITS), mpmath.workdps(70):
        frequencies = inverse_frequencies(WIDTH, BASE, ball())
        assert is_close(run(frequencies), reference())
        assert not is_close(wrong(frequencies), reference())


@pytest.mark.parametrize("name", [n for n in SCALINGS if n != "yarn, not rounded"])
def test_a_scaling_in_floats_is_near_the_true_one(name: str) -> None:
    run, reference, _ = SCALINGS[name]
    with mpmath.workdps(40):
        wanted = [float(x) for x in reference()]
    np.testing.assert_allclose(run(inverse_frequencies(WIDTH, BASE, np.zeros(()))), wanted, rtol=2**-46)


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
