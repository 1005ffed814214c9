"""Mistakes drawn by rule over all definitions end in a report; ``drawn_mistakes`` measures how many are named."""

from __future__ import annotations

import pytest

from tests.verification.drawn_mistakes import SPECS, drawn, of_variant

EVERY, PAIRS = range(500), (17, 21, 25)  # of the latter both mistakes are named


@pytest.mark.deep
def test_half_of_what_is_drawn_are_two_mistakes_of_every_definition() -> None:
    some = [drawn(number) for number in range(2 * len(SPECS))]
    assert [len(one.causes) for one in some] == [1, 2] * len(SPECS)
    assert [one.spec for one in some[::2]] == list(SPECS)


@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=pytest.mark.deep if n < 12 or n in PAIRS else pytest.mark.exhaustive) for n in EVERY],
)
def test_a_drawn_mistake_is_found(number: int) -> None:
    word, said = drawn(number).outcome()
    assert word == "named" if number in PAIRS else word != "not found", said


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=pytest.mark.exhaustive if n % 50 else pytest.mark.deep) for n in range(200)]
)
def test_a_mistake_of_a_variant_ends_in_a_report(number: int) -> None:
    word, said = of_variant(number).outcome(examples=4)
    assert word
    assert said
