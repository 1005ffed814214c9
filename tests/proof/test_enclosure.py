"""Strict inequalities on boxes."""

from __future__ import annotations

from fractions import Fraction

import flint
import pytest

from symattn.evidence import Grade
from symattn.proof.enclosure import EnclosedOverBox

SIDE = (Fraction(-1), Fraction(1))


def _arb(x: Fraction):
    return flint.arb(flint.fmpq(x.numerator, x.denominator))


def test_what_holds_everywhere_is_proved():
    method = EnclosedOverBox(
        lambda x, y: x * x + y * y - x * y + _arb(Fraction(1, 100)), (SIDE, SIDE), lambda x, y: x + y
    )
    decision = method.decide()
    assert decision.evidence.grade is Grade.ARGUED
    assert "[-1, 1] × [-1, 1]" in decision.evidence.where
    assert method.refute().refuted
    assert method.witness()


@pytest.mark.parametrize("least", [Fraction(-1, 1000), Fraction(-1)])
def test_what_fails_somewhere_is_refuted(least: Fraction):
    method = EnclosedOverBox(lambda x: x * x + _arb(least), (SIDE,), lambda x: x)
    assert method.decide().evidence.grade is Grade.REFUTED


def test_what_is_zero_at_a_point_stays_open():
    method = EnclosedOverBox(lambda x: x * x, ((Fraction(-1, 3), Fraction(1)),), lambda x: x, pieces=200)
    assert method.decide().evidence.grade is Grade.UNDECIDED


def test_the_ends_of_the_box_belong_to_it():
    method = EnclosedOverBox(lambda x: 1 - x * x, (SIDE,), lambda x: x, pieces=400)
    assert method.decide().evidence.grade not in (Grade.PROVED, Grade.ARGUED)


def test_a_true_variant_is_not_refuted():
    assert not EnclosedOverBox(lambda x: x + 2, (SIDE,), lambda x: x + 2).refute().refuted


def test_a_statement_in_numbers_has_no_box():
    decision = EnclosedOverBox(lambda: flint.arb(2).sqrt() - 1, (), lambda: flint.arb(2).sqrt() - 2).decide()
    assert decision.evidence.grade is Grade.ARGUED
    open_one = EnclosedOverBox(lambda: flint.arb(2).sqrt() ** 2 - 2, (), lambda: flint.arb(-1))
    assert open_one.decide().evidence.grade is Grade.UNDECIDED
