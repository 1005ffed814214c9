"""Statements about number formats, computations that give the same bits, and their certificates."""

import copy
from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from symattn.arrays.formats import NARROW, Format
from symattn.document.errors import Refused
from symattn.document.evidence import Grade
from symattn.proof.certified import certificates
from symattn.proof.checker import check
from symattn.proof.checker_bits import FORMATS
from symattn.proof.same_bits import Operations, RoundedTerm, SameBits
from symattn.theorems.rounding import merge_commutes

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


KINDS = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def _certificate() -> dict[str, Any]:
    decision = merge_commutes.decide()
    assert decision.evidence.grade is Grade.PROVED
    (record,) = certificates((), decision.premises)
    return dict(copy.deepcopy(record))


def _another(r: dict[str, Any], old: str, new: str, n: int = 0) -> None:
    """The n-th operation of a kind is another one."""
    found = [term for term in r["terms"] if term[0] == old]
    found[n][0] = new


TAMPERED: dict[str, Callable[[dict[str, Any]], object]] = {
    "a product for a sum": lambda r: _another(r, "+", "×"),
    "a difference for a sum": lambda r: _another(r, "+", "−"),
    "a difference turned round": lambda r: next(t for t in r["terms"] if t[0] == "−").reverse(),
    "another operand": lambda r: next(t for t in r["terms"] if t[0] == "×").__setitem__(1, 0),
    "an operand that comes later": lambda r: r["terms"][2].__setitem__(1, len(r["terms"]) - 1),
    "inputs changed": lambda r: r.update(inputs=["1/2"] * 9),
    "inputs that are zero": lambda r: r.update(inputs=["0"] * 9),
    "an input that is not a number of the format": lambda r: r["inputs"].__setitem__(4, "1/3"),
    "an input dropped": lambda r: r["inputs"].pop(),
    "a maximum of its own": lambda r: r["inputs"].__setitem__(0, "1"),
    "a format that is finer": lambda r: r.update(format="float64"),
    "a result dropped": lambda r: r["same"][0].pop(),
    "nothing stated": lambda r: r.update(same=[[], []]),
    "both bracketings called the same": lambda r: r.update(same=r["different"]),
    "the same called different": lambda r: r.update(different=r["same"]),
    "another rule": lambda r: r.update(kind="sign"),
    "a number for a truth": lambda r: next(t for t in r["terms"] if t[0] == "where").__setitem__(1, 0),
}


def test_the_checker_accepts_what_was_found():
    verdict = check(_certificate())
    assert verdict.accepted, verdict.why


@pytest.mark.parametrize("how", TAMPERED)
def test_what_is_tampered_with_is_refused(how: str):
    record = _certificate()
    TAMPERED[how](record)
    assert not check(record).accepted


def test_what_rests_on_another_exponential_than_that_of_zero_is_not_proved():
    untied = SameBits(merge_commutes.inputs, merge_commutes.same, merge_commutes.different)
    assert untied.decide().evidence.grade is Grade.UNDECIDED


@pytest.mark.parametrize("name", FORMATS)
def test_the_checker_rounds_as_formats_do(name: str):
    random = Random(name)
    for _ in range(500):
        x = float(np.float32(random.gauss(0, 1) * 2.0 ** random.randint(-30, 10)))
        assert FORMATS[name](Fraction(x)) == Fraction(float(KINDS[name](x)))
    ties = 1 + Fraction(1, 2 ** FORMATS[name].digits)
    assert FORMATS[name](ties) == 1
    assert FORMATS[name](ties + Fraction(1, 2**60)) > 1
