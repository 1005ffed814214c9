"""Bounds that fail near equal arrays, near multiples, by little, or where a sign is 0; and sharp bounds that hold."""

import pytest

from symattn.document.formulas import formula
from symattn.proof.relations.comparing import FalseStep, NotDecided
from symattn.proof.relations.judging import RelationQuestion, judged
from symattn.theorems.texts import letters_of

LETTERS = letters_of("new | x 3, y 3, a, b, s n_k, t n_k | sizes n 3 | where p = softmax(s); q = softmax(t)", {})
FALSE = [
    "a (1 − a) ≤ 1/4 − 1/10000",
    "‖p − q‖ ≤ 249/500 ‖s − t‖",
    "TV(p, q) ≤ 9/20 max(max(s − t), −min(s − t))",
    "max(p − q) ≤ 2/5 max(max(s − t), −min(s − t))",
    "(x·y)/(1 + ‖x‖ ‖y‖) ≤ 99/100",
    "|sigmoid(a) − sigmoid(b)| ≤ 6/25 |a − b|",
    "a e^(−3 a) ≤ 61/500",
    "tanh(relu(a)) (1 − tanh(relu(a))) ≤ 249/1000",
    "(3 a − 7)² + (5 b − 2)² > 0",
    "(a b − 3)² > 0",
    "0 < (a² − 2)² + (b − 1/7)²",
    "‖(a − 3/7) x − y‖ > 0",
    "(tanh(a b) − tanh(2/3))² > 0",
    "sign(a)² = 1",
    "|sign(a)| + |sign(b)| ≥ 1",
    "|sign(a − 41/7)| + |sign(a b − 3)| ≥ 1",
    "|sign(2 a + b)| + |sign(a b + 18)| > 0",
    "sign(x_1 − y_1)² ≥ 1",
    "(a² − 2)² ≥ 10^{−20}",
    "|e^a − 3| ≥ 10^{−30}",
    "cos(a) ≥ 10^{−20} − 1",
    "cos(a) + cos(√2 a) ≥ −1999/1000",
    "cos(a² + 1) + cos(√2 (a² + 1)) ≤ 2 − 1/2000",
]
TRUE = [
    "a (1 − a) ≤ 1/4",
    "‖p − q‖ ≤ 1/2 ‖s − t‖",
    "|x·y| ≤ ‖x‖ ‖y‖",
    "|sigmoid(a) − sigmoid(b)| ≤ 1/4 |a − b|",
    "‖relu(x) − relu(y)‖ ≤ ‖x − y‖",
    "sign(a) sign(b) = sign(a b)",
    "lse(x) > x_1",
    "√{1 + a²} − |a| > 0",
    "a⁴ b² + a² b⁴ + 1 + 1/1000 > 3 a² b²",
]


@pytest.mark.parametrize("typed", FALSE)
def test_a_smooth_bound_that_fails_by_little_is_refuted(typed: str) -> None:
    with pytest.raises(FalseStep, match="false at"):
        judged(RelationQuestion(formula(typed), LETTERS))  # type: ignore[arg-type]


@pytest.mark.parametrize("typed", TRUE)
def test_a_sharp_bound_is_not_refuted(typed: str) -> None:
    judged(RelationQuestion(formula(typed), LETTERS))  # type: ignore[arg-type]


SIGNED = letters_of("new | a, b, x n | sizes n | positive a | nonnegative b", {})


@pytest.mark.parametrize("typed", ["a + 1 > 1", "1/a ≥ 0", "a + b > 0", "a b ≥ 0", "a + b² + 1 > 1"])
def test_entries_that_are_positive_stay_positive(typed: str) -> None:
    judged(RelationQuestion(formula(typed), SIGNED))  # type: ignore[arg-type]


@pytest.mark.parametrize("typed", ["b > 0", "a ≥ 1/10^9", "b + x_1² > 0"])
def test_a_bound_of_signed_entries_is_refuted(typed: str) -> None:
    with pytest.raises(FalseStep, match="false at"):
        judged(RelationQuestion(formula(typed), SIGNED))  # type: ignore[arg-type]


SHUFFLED = letters_of("new | x n, a | sizes n | permutations Π n", {})
RARE = [
    "n² − 62 n + 961 > 0",
    "sign(n² − 62 n + 961) = 1",
    "√n ≤ n/10 + 5/2 − 1/1000",
    "(n − 6)² + (x_1 − 1/7)² > 0",
    "n² − 12 n + 36 + (2 x_1 − 3)² > 0",
    "relu(x_1 − 1) relu(1 − x_1) = relu(x_1 − 999) relu(n − 20)",
    "‖x‖_1 ‖x‖_∞ ≤ 2 ‖x‖²",
    "x·(Π x) ≥ −99/100 ‖x‖²",
]


@pytest.mark.parametrize("typed", RARE)
def test_what_fails_at_one_size_or_for_one_permutation_is_refuted(typed: str) -> None:
    where = (formula("n ≥ 3"),) if "Π" in typed else ()
    with pytest.raises(FalseStep, match="false at"):
        judged(RelationQuestion(formula(typed), SHUFFLED, where=where))  # type: ignore[arg-type]


MAGNITUDES = [
    *("a ≤ 10^{30}", "a² + b² ≤ 10^{60}", "log(1 + a²) ≤ 500", "a/(1 + |a|) ≤ 1 − 10^{−60}", "tanh(a) ≤ 1 − 10^{−90}"),
    *("KL(p, q) ≤ 10^{10}", "KL(p, q) ≥ 10^{−20} TV(p, q)", "‖x − y‖² ≥ 10^{−12} ‖x‖²", "TV(p, q) ≤ 1 − 10^{−40}"),
    *("max(s) − min(s) ≤ 10^{12}", "lse(s) ≥ max(s) + 10^{−50}", "relu(a − 10^{9}) relu(10^{9} + 1 − a) = 0"),
]


@pytest.mark.parametrize("typed", MAGNITUDES)
def test_what_fails_for_tiny_huge_or_nearly_equal_numbers_is_refuted(typed: str) -> None:
    with pytest.raises(FalseStep, match="false at"):
        judged(RelationQuestion(formula(typed), LETTERS))  # type: ignore[arg-type]


def test_a_permutation_has_the_size_that_is_set() -> None:
    judged(RelationQuestion(formula("Π Π Π Π Π Π x = x"), SHUFFLED, {"n": 3}))  # type: ignore[arg-type]
    with pytest.raises(FalseStep, match="false at"):
        judged(RelationQuestion(formula("Π Π Π Π x = x"), SHUFFLED, {"n": 3}))  # type: ignore[arg-type]


@pytest.mark.parametrize("typed", ["(e^a − 2)² > 0", "(a³ − 2)² > 0"])
def test_a_strict_bound_whose_sides_meet_at_numbers_that_have_no_name_is_not_decided(typed: str) -> None:
    with pytest.raises(NotDecided, match="as near to each other"):
        judged(RelationQuestion(formula(typed), LETTERS))  # type: ignore[arg-type]


@pytest.mark.parametrize(("typed", "where"), [("max(x) ≥ x_2", "n ≥ 2"), ("relu(x_3) − relu(−x_3) = x_3", "n ≥ 3")])
def test_an_entry_that_small_sizes_lack_needs_a_condition(typed: str, where: str) -> None:
    judged(RelationQuestion(formula(typed), SHUFFLED, where=(formula(where),)))  # type: ignore[arg-type]


OPEN = [("(a − b)⁴ > 0", "a ≠ b"), ("(a − 7/3)⁴ > 0", "a ≠ 7/3"), ("1/a > 0", "a > 0")]


@pytest.mark.parametrize(("typed", "where"), OPEN)
def test_a_strict_bound_whose_sides_meet_outside_its_conditions_is_checked(typed: str, where: str) -> None:
    judged(RelationQuestion(formula(typed), LETTERS, where=(formula(where),)))  # type: ignore[arg-type]
