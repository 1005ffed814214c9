"""Claims about digits that were rounded."""

from fractions import Fraction

import pytest

from symattn.arrays.field.quotient import Quotient
from symattn.derivations import claims
from symattn.derivations.claims.measures import rounded_example, rounds_to
from symattn.derivations.claims.reading import half_unit, number
from symattn.document.errors import InputError
from symattn.document.evidence import Grade


@pytest.mark.parametrize(
    ("text", "unit"),
    [("0.0634", "1/20000"), ("6.3379e-02", "1/2000000"), ("12.5", "1/20"), ("1.0", "1/20"), ("-0.25", "1/200")],
)
def test_half_a_unit_of_the_last_digit(text: str, unit: str) -> None:
    assert half_unit(text) == Fraction(unit)


@pytest.mark.parametrize("text", [".3", "3", "1/3", "exp(1)", "0.5", "12"])
def test_what_is_exact(text: str) -> None:
    assert half_unit(text) == 0


POSSIBLE = [["6.3379e-02", "4.6831e-01", "4.6831e-01"], ["0.333", "0.333", "0.333"], ["[0.34, 0.34, 0.33]"]]
FALSE = [[".3", ".7", ".1"], ["0.333", "0.333", "0.331"], ["0.50", "0.60", "-0.10"], ["0.333", "1/3", "0.332"]]


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
    row = list(map(number, texts))
    found = rounded_example(texts, row)
    assert all(rounds_to(x, text) for x, text in zip(found, texts, strict=True))
    assert not rounds_to(row[0] + Quotient.of("1/1000"), "0.333")


def test_softmax_against_published_digits() -> None:
    assert claims.equal("softmax([2, 4, 4])", "[0.0634, 0.468, 0.468]").record["holds"] is True
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


def test_what_is_taken_as_it_is() -> None:
    assert "A decimal of one digit is taken as it is" in claims.weights([".3", ".3", ".3"]).text()
    assert "one digit" not in claims.weights(["0.333", "0.333", "0.331"]).text()
