"""Roundings of weights are decided exactly."""

from decimal import ROUND_FLOOR, Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symattn.arrays.field.quotient import Quotient
from symattn.derivations.walks.printed import floor, keeping_sum, nearest, rounded
from symattn.document.errors import InputError


def softmax(scores):
    powers = [Quotient.of(s).exp() for s in scores]
    total = sum(powers, Quotient.of(0))
    return [p / total for p in powers]


@pytest.mark.parametrize(
    ("x", "whole"),
    [
        ("7/2", 3),
        ("-7/2", -4),
        ("3", 3),
        ("exp(1)", 2),
        ("-exp(1)", -3),
        ("sqrt(2)*1000", 1414),
        ("exp(60)", 114200738981568428366295718),
    ],
)
def test_floor(x: str, whole: int) -> None:
    assert floor(Quotient.of(x)) == whole


def test_floor_next_to_a_whole_number() -> None:
    tiny = Quotient.of(-(10**9)).exp()
    assert floor(2 - tiny) == 1
    assert floor(2 + tiny) == 2


@given(st.integers(-400, 400), st.integers(1, 30))
def test_floor_agrees_with_decimal_arithmetic(k: int, d: int) -> None:
    with localcontext() as context:
        context.prec = 400
        expected = int((Decimal(k) / d).exp().to_integral_value(ROUND_FLOOR))
    assert floor((Quotient.of(k) / d).exp()) == expected


def test_halves_go_to_the_even_digit() -> None:
    assert [str(nearest(Quotient.of(x), 1)) for x in ("0.25", "0.35", "0.05", "-0.25")] == ["1/5", "2/5", "0", "-1/5"]
    assert nearest(Quotient.of("sqrt(2)"), 3) == Quotient.of("1.414")


@given(st.lists(st.integers(-6, 6), min_size=1, max_size=8), st.integers(0, 3))
def test_largest_remainders_keep_the_sum_and_stay_within_a_unit(scores: list[int], places: int) -> None:
    weights = softmax(scores)
    kept = keeping_sum(weights, places)
    assert sum(kept, Quotient.of(0)) == 1
    assert all(abs(k - w) * 10**places < 1 for k, w in zip(kept, weights, strict=True))
    gaps = sorted((w - k for k, w in zip(kept, weights, strict=True)), reverse=True)
    assert all(g * 10**places < 1 for g in gaps)


def test_equal_remainders_go_to_the_earlier_entry() -> None:
    assert keeping_sum(softmax([0, 0, 0]), 1) == [Quotient.of(x) for x in ("2/5", "3/10", "3/10")]


def test_a_sum_that_cannot_be_kept_is_refused() -> None:
    with pytest.raises(InputError, match="no rounding to 1 places"):
        keeping_sum([Quotient.of("1/3")], 1)


def test_rounding_goes_through_axes() -> None:
    rows = [softmax([0, 1]), softmax([1, 0])]
    assert rounded(rows, "nearest", 1) == [
        [Quotient.of(x) for x in row] for row in (("3/10", "7/10"), ("7/10", "3/10"))
    ]
    assert rounded(rows, "exact", 1) == rows
