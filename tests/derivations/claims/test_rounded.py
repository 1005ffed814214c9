"""Claims about digits that were rounded, and the rounding of weights, are decided exactly."""

from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from symattn import Grade, InputError, claim, kinds, walk


def beside(text: str, rest: str) -> bool:
    """Whether a number and what it lacks to 1, but for a rest, may be the weights of a row."""
    return any(claim("weights", *[text, f"1-({text}){sign}({rest})"]).record["holds"] for sign in "+-")


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("0.0634", "1/20000"),
        ("6.3379e-02", "1/2000000"),
        ("1.0", "1/20"),
        ("0.25", "1/200"),
        ("0.05", "1/200"),
        ("0.00", "1/200"),
        ("5.00e-3", "1/200000"),
    ],
)
def test_half_a_unit_of_the_last_digit(text: str, unit: str) -> None:
    assert beside(text, unit)
    assert not beside(text, f"{unit}+1/1000000000")


@pytest.mark.parametrize("text", [".3", "1", "1/3", "exp(-1)", "0.5"])
def test_what_is_exact(text: str) -> None:
    assert beside(text, "0")
    assert not beside(text, "1/1000000000")


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
    found = claim("weights", *values).record
    assert found["holds"] is True
    row = [kinds.Quotient.of(x) for x in found["values"]["row"]]
    assert sum(row, kinds.Quotient.of(0)) == 1
    assert all(x.sign() > 0 for x in row)


@pytest.mark.parametrize("values", FALSE, ids=str)
def test_not_possible(values: list[str]) -> None:
    assert claim("weights", *values).record["holds"] is False


def test_rows_stay_within_their_digits() -> None:
    texts = ["0.333", "0.334", "0.3325"]
    row = [Fraction(x) for x in claim("weights", *texts).record["values"]["row"]]
    assert sum(row) == 1
    units = [Fraction(1, 2 * 10 ** len(text.partition(".")[2])) for text in texts]
    assert all(abs(x - Fraction(text)) <= unit for x, text, unit in zip(row, texts, units, strict=True))


def test_softmax_against_published_digits() -> None:
    assert claim("equal", "softmax([2, 4, 4])", "[0.0634, 0.468, 0.468]").record["holds"] is True
    assert claim("equal", "softmax([1, 2, 3])", "[0.09, 0.24, 0.67]").record["holds"] is True
    assert claim("equal", "softmax([1, 2, 3])", "[0.08, 0.24, 0.67]").record["holds"] is False
    assert claim("equal", "softmax([0, 9])", "[0.00, 1.00]").record["holds"] is True
    assert claim("equal", "[0.0635, 0.468, 0.468]", "softmax([2, 4, 4])").record["holds"] is False
    assert claim("equal", "softmax([a, a])", "[1/2, 1/2]").record["holds"] is True


def test_a_sum_of_vectors() -> None:
    found = claim("equal", "[0.9, 0.3]", "9/10*[1, 0] + 1/10*[0, 1]")
    assert found.record["holds"] is False
    assert found.record["values"]["differing"]["[2]"]["difference"] == "1/5"
    assert claim("equal", "[9/10, 1/10]", "9/10*[1, 0] + 1/10*[0, 1]").record["holds"] is True
    assert claim("equal", "softmax([1])", "[1, 0]").record["holds"] is False


@pytest.mark.parametrize("text", ["softmax([1, 2]", "2*[1] 3*[2]", "[1] + [1, 2]", "softmax([[1]])"])
def test_no_vector(text: str) -> None:
    with pytest.raises(InputError):
        claim("equal", text, "softmax([1, 2])")


def test_only_what_is_undefined_is_left_out() -> None:
    document = claim("similarity", "[0, 0]", "[1, 2]")
    assert set(document.record["values"]) == {"dot", "distance"}
    assert {e.grade for e in document.evidence()} == {Grade.CHECKED}
    with pytest.raises(InputError, match="no direction"):
        claim("similarity", "[0, 0]", "[1, 2]", measure="cosine")


def test_which_digits_are_wrong() -> None:
    """Entries that round to their digits are not among those that differ."""
    found = claim("equal", "softmax([2, 4, 4])", "[0.0634, 0.4683, 0.4684]")
    assert found.record["holds"] is False
    assert list(found.record["values"]["differing"]) == ["[3]"]
    assert "[3] is not 0.4684, but 0.4683, rounded" in " ".join(found.text().split())
    other = claim("equal", "[0.07, 0.468, 0.468]", "softmax([2, 4, 4])")
    assert "[1] is not 0.07, but 0.06, rounded" in " ".join(other.text().split())


def test_an_exact_zero_is_a_masked_key_and_a_rounded_one_is_a_small_weight() -> None:
    masked = claim("weights", *["0", "0.33", "0.66"])
    assert "key 1 is masked" in " ".join(masked.text().split())
    assert masked.record["values"]["row"][0] == "0"
    assert "masked" not in claim("weights", *["0.00", "1.00"]).text()
    assert "[1] is not 0.09, but 0, rounded" in " ".join(
        claim("equal", "[0.09, 1.00]", "softmax([0, 9])").text().split()
    )


def test_what_is_taken_as_it_is() -> None:
    assert "A decimal of one digit is taken as it is" in claim("weights", *[".3", ".3", ".3"]).text()
    assert "one digit" not in claim("weights", *["0.333", "0.333", "0.331"]).text()


def rounded(rows: list[list[Any]], how: str, places: int = 1, normaliser: str = "sparsemax") -> Any:
    """Weights as a walk rounds them; sparsemax leaves rows whose sum is 1 as they are."""
    units = np.eye(len(rows[0]), dtype=int).tolist()
    attention = {"scale": "none", "normaliser": normaliser}
    inputs = {"q": rows, "k": units, "v": [[1]] * len(units)}
    sheet = {"attention": attention, "inputs": inputs, "printed": {"places": places}}
    return walk(sheet, rounding=how).record["roundings"][how]["weights"]


TINY = "exp(-1000000000)"


@pytest.mark.parametrize(
    ("x", "places", "nearest"),
    [
        ("sqrt(2)/2", 3, "707/1000"),
        ("exp(-1)", 2, "37/100"),
        ("1/2", 3, "1/2"),
        (f"1/8-{TINY}", 2, "3/25"),
        (f"1/8+{TINY}", 2, "13/100"),
    ],
)
def test_rounding_to_nearest(x: str, places: int, nearest: str) -> None:
    assert rounded([[x, f"1-({x})"]], "nearest", places)[0][0] == nearest


def test_rounding_agrees_with_decimal_arithmetic() -> None:
    draw = np.random.default_rng(3)
    powers = [(int(draw.integers(-40, 0)), int(draw.integers(3, 31))) for _ in range(20)]
    with localcontext() as context:
        context.prec = 400
        scaled = [10**6 * (Decimal(k) / d).exp() + Decimal(1) / 2 for k, d in powers]
        expected = [str(Fraction(int(x.to_integral_value(ROUND_FLOOR)), 10**6)) for x in scaled]
    rows = [[f"exp({k}/{d})", f"1-exp({k}/{d})"] for k, d in powers]
    assert [first for first, _ in rounded(rows, "nearest", 6)] == expected


def test_halves_go_to_the_even_digit() -> None:
    assert rounded([["0.25", "0.35", "0.05", "0.35"]], "nearest") == (("1/5", "2/5", "0", "2/5"),)


@pytest.mark.parametrize("places", [1, 2, 3])
def test_largest_remainders_keep_the_sum_and_stay_within_a_unit(places: int) -> None:
    unit, scores = Fraction(1, 10**places), np.random.default_rng(places).integers(-6, 7, (4, 6)).tolist()
    for row, kept in zip(scores, rounded(scores, "sum", places, "softmax"), strict=True):
        powers = [kinds.Quotient.of(s).exp() for s in row]
        total = sum(powers, kinds.Quotient.of(0))
        assert sum(map(Fraction, kept)) == 1
        left = [power / total - Fraction(k) for power, k in zip(powers, kept, strict=True)]
        assert all(abs(x) < unit for x in left)
        up, down = [x + unit for x in left if x < 0], [x for x in left if not x < 0]
        assert all(x > y for x in up for y in down if str(x) != str(y))  # the largest remainders go up


def test_equal_remainders_go_to_the_earlier_entry() -> None:
    assert rounded([[0, 0, 0]], "sum", 1, "softmax") == (("2/5", "3/10", "3/10"),)


def test_a_sum_that_cannot_be_kept_is_refused() -> None:
    with pytest.raises(InputError, match="no rounding to 1 places"):
        walk({"q": [[1]], "k": [[0], [0]], "v": [[1], [1]]}, sink="zero", rounding="sum")


def test_rounding_goes_through_axes() -> None:
    rows = [["0.26", "0.74"], ["0.74", "0.26"]]
    assert rounded(rows, "nearest") == (("3/10", "7/10"), ("7/10", "3/10"))


def test_one_digit_is_taken_as_it_is_in_every_list() -> None:
    for list_ in ("[0.1, 0.2, 0.7]", "[0.1, 0.24, 0.67]", "[0.1, 0.2, 0.67]"):
        said = " ".join(claim("equal", list_, "softmax([1, 2, 3])").text().split())
        assert "A decimal of one digit is taken as it is" in said
        assert "rounded" not in said


def test_a_digit_that_is_exact_is_not_said_to_be_rounded() -> None:
    found = claim("equal", "softmax([1000, 0])", "[1.0, 0.0]")
    assert list(found.record["values"]["differing"]) == ["[2]"]
    assert "1 of 2 entries differ; the first is [2]" in found.text()
    both = " ".join(claim("equal", "softmax([1, 2, 3])", "[0.1, 0.26, 0.67]").text().split())
    assert "[2] is not 0.26, but 0.24, rounded" in both


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_count_as_their_own_format_prints_them(dtype: str) -> None:
    row = np.array([0.1, 0.9]).astype(dtype)
    assert claim("weights", row).record["values"]["weights"] == ["1/10", "9/10"]
    assert claim("weights", *row).record["holds"] is True
    assert claim("equal", row[None], [[0.1, 0.9]]).record["holds"] is True


@pytest.mark.parametrize("list_", ["[]", "[[]]", "[[], []]"])
def test_lists_without_entries_are_not_equal_to_anything(list_: str) -> None:
    for pair in ((list_, list_), ("[1]", list_)):
        with pytest.raises(InputError, match="has no entries to compare"):
            claim("equal", *pair)
