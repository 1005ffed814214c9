"""Statements about number formats, and computations that give the same bits."""

from fractions import Fraction

import numpy as np
import pytest

from symattn.arrays.formats import NARROW, Format
from symattn.document.errors import Refused
from symattn.document.evidence import Grade
from symattn.proof.in_formats import InFormats
from symattn.proof.same_bits import Operations, RoundedTerm, SameBits

KNOWN = {  # digits, largest, smallest
    "float32": (24, Fraction(2**24 - 1) * 2**104, Fraction(1, 2**149)),
    "float16": (11, Fraction(65504), Fraction(1, 2**24)),
    "bfloat16": (8, Fraction(255) * 2**120, Fraction(1, 2**133)),
    "float8_e4m3fn": (4, Fraction(448), Fraction(1, 2**9)),
    "float8_e5m2": (3, Fraction(57344), Fraction(1, 2**16)),
}


@pytest.mark.parametrize("name", KNOWN)
def test_formats_are_what_their_standards_say(name: str):
    f = Format(name)
    assert (f.digits, f.largest, f.smallest) == KNOWN[name]
    assert f.u == Fraction(1, 2**f.digits)
    assert f.power_beyond / 2 <= f.largest < f.power_beyond


@pytest.mark.parametrize("name", NARROW)
def test_numbers_are_all_finite_ones(name: str):
    f = Format(name)
    every = f.numbers().astype(np.float64)
    assert every.max() == float(f.largest)
    assert every[every > 0].min() == float(f.smallest)
    assert len(set(every)) == len(every) - 1  # two zeros


@pytest.mark.parametrize("name", KNOWN)
def test_neighbours_are_on_both_sides(name: str):
    f = Format(name)
    for x in (-17.3, -0.1, 0.3, 5.7, 11.09):
        low, high = f.neighbours(x)
        assert low < x < high
        assert float(f.cast((low + high) / 2)) in (low, high)


def test_what_holds_in_every_format_is_checked_there():
    found = InFormats(NARROW, lambda f: f.digits <= 11, lambda f: f.digits <= 3, "every number of")
    assert found.decide().evidence.grade is Grade.CHECKED
    assert found.decide().evidence.where.startswith("every number of float16, bfloat16")
    assert found.refute().counterexample == "in float16"
    assert found.witness() == "in float16"


def test_what_fails_in_one_format_is_refuted_there():
    found = InFormats(NARROW, lambda f: [True, f.digits != 4], lambda f: True)
    assert found.decide().evidence.grade is Grade.REFUTED
    assert found.decide().evidence.where == "float8_e4m3fn"
    assert not found.refute().refuted


def test_no_format_shows_nothing():
    assert InFormats((), lambda f: True, lambda f: True).decide().evidence.grade is Grade.UNDECIDED


# -- the same bits -----------------------------------------------------------------------------------------------------


def _left(a, b, c):
    return [(a + b) + c]


def _right(a, b, c):
    return [a + (b + c)]


def _both(a, b, c):
    return _left(a, b, c), _right(a, b, c)


def _exchanged(a, b, c):
    return _left(a, b, c), [c + (b + a)]


def test_sums_commute_and_do_not_associate():
    found = SameBits(3, _exchanged, _both)
    assert found.decide().evidence.grade is Grade.PROVED
    assert found.refute().refuted
    assert not found.refute().accepted
    assert found.witness()


def test_other_operations_are_not_the_same():
    assert SameBits(3, _both, _both).decide().evidence.grade is Grade.UNDECIDED
    assert SameBits(3, lambda a, b, c: ([a - b], [b - a]), _both).decide().evidence.grade is Grade.UNDECIDED
    assert SameBits(3, lambda a, b, c: ([a / b], [b / a]), _both).decide().evidence.grade is Grade.UNDECIDED
    doubled = SameBits(3, lambda a, b, c: ([a * b + a * c], [a * (b + c)]), _both)
    assert doubled.decide().evidence.grade is Grade.UNDECIDED


def test_what_is_the_same_is_not_refuted():
    found = SameBits(3, _exchanged, _exchanged)
    assert not found.refute().refuted
    assert found.refute().accepted
    assert found.decide().evidence.grade is Grade.UNDECIDED


def test_terms_are_made_of_terms():
    a, b = RoundedTerm("a"), RoundedTerm("b")
    assert Operations.maximum(a, b) == Operations.maximum(b, a)
    assert Operations.exp(a) != Operations.exp(b)
    with pytest.raises(Refused):
        a + 1
