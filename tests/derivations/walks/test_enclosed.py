"""Numbers known by balls: proven digits, no comparison that is not decided, and how a walk shows them."""

from fractions import Fraction

import flint
import pytest

from symattn.arrays.field.quotient import Quotient
from symattn.derivations.enclosed import Enclosed, ball_of, least_proven, taken
from symattn.derivations.printed_elements import ball_json, decimal_json, digits, exact_json
from symattn.derivations.walks import walk
from symattn.derivations.walks.run import WalkFormat, binade
from symattn.document.errors import Undecided
from symattn.document.evidence import Grade
from symattn.document.notation import Words
from symattn.document.render import render

BITS = 256


def enclosed(text: str, bits: int = BITS) -> Enclosed:
    """A ball around an exact number, so that its digits are known."""
    ball = ball_of(Quotient.of(text), bits)
    assert ball is not None
    return Enclosed(ball, bits)


@pytest.mark.parametrize("text", ["sqrt(2)", "exp(1)", "exp(-40)", "-exp(3)", "10**9*sqrt(3)", "exp(60)"])
@pytest.mark.parametrize("count", [3, 9, 17])
def test_digits_are_those_of_the_number(text: str, count: int) -> None:
    assert enclosed(text).decimal(count) == Quotient.of(text).decimal(count)


def test_a_ball_that_does_not_say_gives_fewer_digits() -> None:
    wide = Enclosed(flint.arb("1.2331", "1e-3"), BITS)
    assert wide.shown(9) == "1.23"
    with pytest.raises(Undecided):
        wide.decimal(9)


def test_a_ball_around_zero_has_no_digits() -> None:
    gap = enclosed("sqrt(2)") - enclosed("sqrt(2)")
    assert isinstance(gap, Enclosed)
    assert gap.proven() == 0
    assert digits(gap, 9) == Words(gap.shown(9))
    assert gap.shown(9).startswith("<1e-7")
    with pytest.raises(Undecided):
        gap.is_zero()
    with pytest.raises(Undecided):
        _ = gap < 0
    assert WalkFormat.of("float32").error(gap, 0.0) is None


def test_arithmetic_with_exact_numbers() -> None:
    root = enclosed("sqrt(2)")
    for made, wanted in (
        (root + 1, "1+sqrt(2)"),
        (Quotient.of("1/3") * root, "sqrt(2)/3"),
        (1 / root, "1/sqrt(2)"),
        (Fraction(1, 2) - root, "1/2-sqrt(2)"),
        (-root, "-sqrt(2)"),
        (abs(-root), "sqrt(2)"),
    ):
        assert made.overlaps(Quotient.of(wanted)), wanted
        assert not made.overlaps(Quotient.of(wanted) + Fraction(1, 10**60)), wanted
    assert root.apply("exp").decimal(12) == "4.11325037878"


def test_zero_times_a_ball_is_zero_exactly() -> None:
    product = Quotient.of(0) * enclosed("sqrt(2)")
    assert isinstance(product, Quotient)
    assert product.is_zero()
    assert taken(flint.arb(0.375), BITS) == Fraction(3, 8)


def test_equality_is_never_said() -> None:
    assert enclosed("sqrt(2)") != enclosed("sqrt(2)")
    assert enclosed("sqrt(2)") < 2
    assert enclosed("sqrt(2)") > Fraction(7, 5)
    assert least_proven([Quotient.of(1)]) is None
    assert least_proven([enclosed("sqrt(2)"), enclosed("sqrt(2)", 64)]) < 20  # type: ignore[operator]


def test_errors_are_those_of_the_exact_number() -> None:
    for text, c in (("sqrt(2)", 1.4142135381698608), ("exp(-3)", 0.0497870706), ("-exp(2)", -7.4)):
        exact = WalkFormat.of("float32").error(Quotient.of(text), c)
        assert WalkFormat.of("float32").error(enclosed(text), c) == pytest.approx(exact, rel=1e-12)
    assert binade(enclosed("sqrt(2)")) == 0
    assert binade(Enclosed(flint.arb(4, 1e-30), BITS)) == 1  # the smaller spacing where the ball spans two


def test_what_json_has() -> None:
    root = enclosed("sqrt(2)")
    assert exact_json(root) is None
    assert decimal_json(root) == 2**0.5
    assert ball_json(root).startswith("[1.41421356237309504880168872420969")
    assert ball_json(Quotient.of("sqrt(2)")) is None


def test_a_walk_says_which_digits_are_proven() -> None:
    document = walk("additive")
    entries = {entry["name"]: entry for entry in document.record["steps"]}
    weights = entries["weights"]
    assert weights["grade"] is Grade.ENCLOSED
    assert "digits proven" in weights["where"]
    assert all(x is None for x in weights["exact"][0])
    for ball, decimal in zip(weights["enclosed"][0], weights["decimal"][0], strict=True):
        assert ball[1:14] == f"{decimal:.15f}"[:13]
    assert "enclosed" not in entries["scores"]
    assert document.verdict_word == "enclosed"
    text = " ".join(render(document, "text").split())
    assert "no closed form of them is known whose equality with another could be decided" in text
    assert "weights, weighted and output" in text


def test_weights_that_do_not_sum_to_one_are_not_said_to() -> None:
    document = walk("decoder-step")
    assert "sums to 1" not in render(document, "text")
    assert "a weighted sum of the values" in render(document, "text")


def test_rounded_weights_that_only_balls_are_known_of(run, refused) -> None:
    ran = run("walk", "decoder-step", "--rounding", "nearest", "-f", "json")
    assert ran.status == 0, ran.stderr
    assert list(ran.json["roundings"]) == ["nearest"]
    assert ran.json["roundings"]["nearest"]["weights"][2][0] == ["0", "1/10", "2/5", "3/10", "1/5"]
    assert "no exact sum to keep" in refused("walk", "decoder-step", "--rounding", "sum")


def test_a_norm_of_zero_is_undefined_and_said_to_be(run) -> None:
    ran = run("walk", "E1", "--qk-norm", "layer", "-f", "json")
    entries = {entry["name"]: entry for entry in ran.json["steps"]}
    assert entries["q_normed"]["exact"] == [
        ["0", "-sqrt(6)/2", "sqrt(6)/2"],
        [None] * 3,
        ["0", "-sqrt(6)/2", "sqrt(6)/2"],
    ]
    assert entries["q_normed"]["grade"] == "checked"
    assert "each of 2 rows sums to 1 exactly; 1 undefined" in entries["weights"]["where"]
    assert entries["weights"]["computed"][1] == ["nan"] * 3
