"""Claims about digits that were rounded, and the rounding of weights, are decided exactly."""

from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from symattn import Grade, InputError
from symattn.arrays.field.quotient import Quotient
from symattn.derivations import claims
from symattn.derivations.claims.measures import half_unit
from symattn.derivations.walks.printed import floor, keeping_sum, nearest, rounded


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("0.0634", "1/20000"),
        ("6.3379e-02", "1/2000000"),
        ("12.5", "1/20"),
        ("1.0", "1/20"),
        ("-0.25", "1/200"),
        ("0.05", "1/200"),
        ("0.00", "1/200"),
        ("5.00e-3", "1/200000"),
    ],
)
def test_half_a_unit_of_the_last_digit(text: str, unit: str) -> None:
    assert half_unit(text) == Fraction(unit)


@pytest.mark.parametrize("text", [".3", "3", "1/3", "exp(1)", "0.5", "12"])
def test_what_is_exact(text: str) -> None:
    assert half_unit(text) == 0


POSSIBLE = [
    ["6.3379e-02", "4.6831e-01", "4.6831e-01"],
    ["0.333", "0.333", "0.333"],
    ["[0.34, 0.34, 0.33]"],
    ["0.05", "0.05", "0.05", "0.84"],
    ["0.00", "0.33", "0.66"],
    ["0.00", "1.00"],
    ["0.01", "0.01", "0.97"],
]
FALSE = [
    [".3", ".7", ".1"],
    ["0.333", "0.333", "0.331"],
    ["0.50", "0.60", "-0.10"],
    ["0.333", "1/3", "0.332"],
    ["0.00", "0.98"],
    ["0.05", "0.05", "0.05", "0.88"],
    ["-0.01", "1.00"],
]


@pytest.mark.parametrize("values", POSSIBLE, ids=str)
def test_possible_as_rounded(values: list[str]) -> None:
    found = claims.weights(values).record
    assert found["holds"] is True
    row = [Quotient.of(x) for x in found["values"]["row"]]
    assert sum(row, Quotient.of(0)) == 1
    assert all(x.sign() > 0 for x in row)


@pytest.mark.parametrize("values", FALSE, ids=str)
def test_not_possible(values: list[str]) -> None:
    assert claims.weights(values).record["holds"] is False


def test_rows_stay_within_their_digits() -> None:
    texts = ["0.333", "0.334", "0.3325"]
    row = [Fraction(x) for x in claims.weights(texts).record["values"]["row"]]
    assert sum(row) == 1
    units = [Fraction(1, 2 * 10 ** len(text.partition(".")[2])) for text in texts]
    assert all(abs(x - Fraction(text)) <= unit for x, text, unit in zip(row, texts, units, strict=True))


def test_softmax_against_published_digits() -> None:
    assert claims.equal("softmax([2, 4, 4])", "[0.0634, 0.468, 0.468]").record["holds"] is True
    assert claims.equal("softmax([1, 2, 3])", "[0.09, 0.24, 0.67]").record["holds"] is True
    assert claims.equal("softmax([1, 2, 3])", "[0.08, 0.24, 0.67]").record["holds"] is False
    assert claims.equal("softmax([0, 9])", "[0.00, 1.00]").record["holds"] is True
    assert claims.equal("[0.0635, 0.468, 0.468]", "softmax([2, 4, 4])").record["holds"] is False
    assert claims.equal("softmax([a, a])", "[1/2, 1/2]").record["holds"] is True


def test_a_sum_of_vectors() -> None:
    claim = claims.equal("[0.9, 0.3]", "9/10*[1, 0] + 1/10*[0, 1]")
    assert claim.record["holds"] is False
    assert claim.record["values"]["differing"]["[2]"]["difference"] == "1/5"
    assert claims.equal("[9/10, 1/10]", "9/10*[1, 0] + 1/10*[0, 1]").record["holds"] is True
    assert claims.equal("softmax([1])", "[1, 0]").record["holds"] is False


@pytest.mark.parametrize("text", ["softmax([1, 2]", "2*[1] 3*[2]", "[1] + [1, 2]", "softmax([[1]])"])
def test_no_vector(text: str) -> None:
    with pytest.raises(InputError):
        claims.equal(text, "softmax([1, 2])")


def test_only_what_is_undefined_is_left_out() -> None:
    document = claims.similarity("[0, 0]", "[1, 2]")
    assert set(document.record["values"]) == {"dot", "distance"}
    assert {e.grade for e in document.evidence()} == {Grade.CHECKED}
    with pytest.raises(InputError, match="no direction"):
        claims.similarity("[0, 0]", "[1, 2]", "cosine")


def test_which_digits_are_wrong() -> None:
    """Entries that round to their digits are not among those that differ."""
    found = claims.equal("softmax([2, 4, 4])", "[0.0634, 0.4683, 0.4684]")
    assert found.record["holds"] is False
    assert list(found.record["values"]["differing"]) == ["[3]"]
    assert "[3] is not 0.4684, but 0.4683, rounded" in " ".join(found.text().split())
    other = claims.equal("[0.07, 0.468, 0.468]", "softmax([2, 4, 4])")
    assert "[1] is not 0.07, but 0.06, rounded" in " ".join(other.text().split())


def test_an_exact_zero_is_a_masked_key_and_a_rounded_one_is_a_small_weight() -> None:
    masked = claims.weights(["0", "0.33", "0.66"])
    assert "key 1 is masked" in " ".join(masked.text().split())
    assert masked.record["values"]["row"][0] == "0"
    assert "masked" not in claims.weights(["0.00", "1.00"]).text()
    assert "[1] is not 0.09, but 0, rounded" in " ".join(claims.equal("[0.09, 1.00]", "softmax([0, 9])").text().split())


def test_what_is_taken_as_it_is() -> None:
    assert "A decimal of one digit is taken as it is" in claims.weights([".3", ".3", ".3"]).text()
    assert "one digit" not in claims.weights(["0.333", "0.333", "0.331"]).text()


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
    for list_ in ("[0.1, 0.2, 0.7]", "[0.1, 0.24, 0.67]", "[0.1, 0.2, 0.67]"):
        said = " ".join(claims.equal(list_, "softmax([1, 2, 3])").text().split())
        assert "A decimal of one digit is taken as it is" in said
        assert "rounded" not in said


def test_a_digit_that_is_exact_is_not_said_to_be_rounded() -> None:
    found = claims.equal("softmax([1000, 0])", "[1.0, 0.0]")
    assert list(found.record["values"]["differing"]) == ["[2]"]
    assert "1 of 2 entries differ; the first is [2]" in found.text()
    both = " ".join(claims.equal("softmax([1, 2, 3])", "[0.1, 0.26, 0.67]").text().split())
    assert "[2] is not 0.26, but 0.24, rounded" in both


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_count_as_their_own_format_prints_them(dtype: str) -> None:
    row = np.array([0.1, 0.9]).astype(dtype)
    assert claims.claim("weights", row).record["values"]["weights"] == ["1/10", "9/10"]
    assert claims.claim("weights", *row).record["holds"] is True
    assert claims.claim("equal", row[None], [[0.1, 0.9]]).record["holds"] is True


@pytest.mark.parametrize("list_", ["[]", "[[]]", "[[], []]"])
def test_lists_without_entries_are_not_equal_to_anything(list_: str) -> None:
    for pair in ((list_, list_), ("[1]", list_)):
        with pytest.raises(InputError, match="has no entries to compare"):
            claims.equal(*pair)
