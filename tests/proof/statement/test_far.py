"""What fails only at sizes far out, or at sizes that a condition asks for."""

import pytest

from symattn.document.errors import InputError
from symattn.document.formulas import formula
from symattn.proof.relations.comparing import FalseStep
from symattn.proof.relations.judging import RelationQuestion, judged
from symattn.proof.theorem import theorem
from symattn.theorems.texts import letters_of

LETTERS = letters_of(
    "new | s n, x n, z m, A n n, w L h, Q n_q d_k, K n_k d_k, V n_k d_v | index i n, j n"
    " | sizes n, m, n_q, n_k, d_k, d_v, L, h | where p = softmax(s)",
    {},
)
FALSE = [
    *("n ≤ 20001", "log(n) ≤ 10", "√n ≤ 1000000", "1/n ≥ 10^{−20}", "n² ≤ 1000000 n", "(1 + 1/n)^n ≤ 2718/1000"),
    *("n ≤ 1000 m", "n m ≤ 10^{12}", "n ≤ m² + 100000", "n_q ≤ 30 n_k", "1/√d_k ≥ 1/10000", "(n − 10007)² > 0"),
    *("cos(n) ≥ −9999999/10000000", "sin(n) ≤ 99999/100000"),
    "Σ_{i=1}^{n} 1/i ≥ log n + 57725/100000",
    *("n² − 20000 n + 100000000 > 0", "max(n, 20001) ≤ 40000", "relu(n − 20001) = 0", "relu(log(n) − 20) = 0"),
    *(
        "Σ_{i=1}^{n} 1/i ≤ 12",
        "Σ_{i=1}^{n} 1/i² ≤ 16/10",
        "Σ_{i=1}^{n} 1/i ≥ log n + 57725/100000",
        "Σ_{i=1}^{n} i ≤ 10^{9}",
        "lse(s) ≤ max(s) + 12",
    ),
    *("max(p) ≥ 1/5000", "Σ_j p_j² ≥ 1/100000", "‖x‖_1 ≤ 1000 ‖x‖", "H(p) ≤ 25", "x·x ≤ 1000 max(|x|)² + 10^{7}"),
    *("√n ≤ n/10000 + 2500 − 1/1000", "log(n) ≤ n/123456789 + 17", "‖A‖_F ≤ 100 ‖A‖_∞", "L ≤ 96", "h L ≤ 10^{9}"),
    *("max(s) − min(s) ≤ n + 10^{5}", "‖Q Kᵀ‖_F ≤ 10^{9} ‖Q‖_F ‖K‖_F/√d_k", "max(softmax(Q Kᵀ) V) ≤ log(d_v) + 10^{5}"),
]
TRUE = [
    *(
        "n ≤ n²",
        "log(n) ≤ n",
        "(1 + 1/n)^n ≤ e",
        "n m ≥ n",
        "2 log n = log n²",
        "log(n) ≤ √n + 1",
        "max(p) ≥ 1/n",
        "‖x‖_1 ≤ √n ‖x‖",
    ),
    *("Σ_{i=1}^{n} 1/i ≤ 1 + log(n)", "Σ_{i=1}^{n} 1/i² ≤ 2", "lse(s) ≤ max(s) + log(n)"),
    "2 log n = log n²",
]
ASKED = [
    ("n² − 62 n + 961 > 0", "n ≥ 30"),
    ("n ≤ 10^{20}", "n ≥ 30"),
    ("n ≤ 200", "n ≥ 100"),
    ("n ≤ 10 m + 5", "n ≥ 10 m"),
    ("x_1 ≤ n", "n ≥ 1000"),
    ("max(x) ≤ 4000", "n ≥ 30"),
    ("x·x ≥ 1/10000", "n ≥ 30"),
]
MET = [
    ("n² − 62 n + 961 ≥ 0", "n ≥ 30"),
    ("n² > 3000", "n ≥ 60"),
    ("n ≥ 9 m", "n ≥ 10 m"),
    ("x_{30} ≤ max(x)", "n ≥ 30"),
]


@pytest.mark.parametrize("typed", FALSE)
def test_what_fails_far_out_is_refuted(typed: str) -> None:
    with pytest.raises(FalseStep, match="false at"):
        judged(RelationQuestion(formula(typed), LETTERS))  # type: ignore[arg-type]


@pytest.mark.parametrize("typed", TRUE)
def test_what_holds_at_all_sizes_is_checked(typed: str) -> None:
    judged(RelationQuestion(formula(typed), LETTERS))  # type: ignore[arg-type]


@pytest.mark.parametrize(("typed", "where"), ASKED)
def test_sizes_that_a_condition_asks_for_are_drawn(typed: str, where: str) -> None:
    with pytest.raises(FalseStep, match="false at"):
        judged(RelationQuestion(formula(typed), LETTERS, where=(formula(where),)))  # type: ignore[arg-type]


@pytest.mark.parametrize(("typed", "where"), MET)
def test_what_holds_at_sizes_that_a_condition_asks_for_is_checked(typed: str, where: str) -> None:
    judged(RelationQuestion(formula(typed), LETTERS, where=(formula(where),)))  # type: ignore[arg-type]


def test_conditions_on_sizes_are_met_before_entries_are_compared() -> None:
    where = (formula("x_1 ≥ x_2"), formula("n ≥ 2"))
    with pytest.raises(FalseStep, match="false at"):
        judged(RelationQuestion(formula("x_1 ≤ 1000 x_2"), LETTERS, where=where))  # type: ignore[arg-type]


def test_a_root_or_a_logarithm_of_what_has_none_refutes_nothing() -> None:
    letters = letters_of("new | a | sizes n", {})
    for typed in ("log(a) ≤ a", "√a ≤ a² + 1"):
        evidence = judged(RelationQuestion(formula(typed), letters))  # type: ignore[arg-type]
        assert evidence.where.endswith("where both sides are defined")


def test_a_counterexample_without_sizes_names_its_entries() -> None:
    with pytest.raises(FalseStep, match=r"false at a = \S+$"):
        judged(RelationQuestion(formula("a² ≥ a + 1"), letters_of("new | a", {})))  # type: ignore[arg-type]


def test_mistakes_in_letters_are_said_by_name() -> None:
    with pytest.raises(InputError, match="laws x : a letter, its deviation"):
        letters_of("new | x n | laws x", {})
    with pytest.raises(InputError, match="letters are a Glossary"):
        theorem("t", "softmax", "says", arrays={}, false=(), false_says="", letters="new | x")
