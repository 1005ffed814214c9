"""Certificates of computations that give the same bits, and of numbers that show others not to."""

import copy
from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from symattn.document.evidence import Grade
from symattn.proof.certified import certificates
from symattn.proof.checker import check
from symattn.proof.checker_bits import FORMATS
from symattn.proof.same_bits import SameBits
from symattn.theorems.rounding_formats import merge_commutes

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
