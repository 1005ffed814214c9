"""Bounds that hold of few keys and small numbers alone are not printed with a grade; certificates and demands."""

from fractions import Fraction
from typing import Any

import flint
import pytest

from symattn import Evidence, Grade, InputError, Undecided, proving, theorem
from symattn import printing as pr
from symattn.proof.relations.comparing import FalseStep, NotDecided, entry_holds
from symattn.proof.relations.compiling import Link
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.judging import DecidedRelation, RelationQuestion, decided, judged
from symattn.proof.relations.section import Section
from tests.proof.statement.certified import NONE, by, counted
from tests.proof.statement.falsify import DOCUMENTS, questions

e, s, t, B, S, A = (pr.Name(x) for x in ("e", "s", "t", "B", "S", "A"))
N_K = pr.name("n", "k")
Q, K = pr.Name("Q"), pr.Name("K")
p_j, s_j, r_j = pr.name("p", "j"), pr.name("s", "j"), pr.name("r", "j")
GIVEN = {"Q": "n_q d_k", "K": "n_k d_k", "s": "n_k", "r": "n_k", "t": "", "a": "", "b": "", "B": "n_k n_k"}


def section() -> Section:
    made = Section(Glossary(given=GIVEN, index={"i": "n_q", "j": "n_k", "l": "n_k"}))
    made.define(pr.equals(S, Q * pr.Transposed(K)))
    made.define(pr.equals(A, pr.call("softmax", S)))
    made.define(pr.equals(pr.Name("p"), pr.call("softmax", s)))
    return made


def norm(x: pr.Node, kind: str = "") -> pr.Node:
    return pr.Fence("norm", x, pr.Name(kind) if kind else None)


def over(operator: str, body: pr.Node) -> pr.Node:
    return pr.Big(operator, pr.Name("j"), None, None, body)


def size(x: pr.Node) -> pr.Node:
    return pr.Fence("abs", x)


OF_NUMBERS_AND_SIZES = [
    # entries past the numbers that are printed
    pr.relation(s_j, "≤", 35), pr.relation(t, "≥", -100), pr.relation(t * t, "≤", 10**7),
    pr.relation(over("max", size(s_j)), "≤", 10**4), pr.relation(e**t, "≤", e ** pr.node(40)),
    pr.relation(e**t, "≥", t**3),
    # weights that are as small, or as near to 1, as one likes
    pr.relation(p_j, "≥", Fraction(1, 10**40)), pr.relation(p_j, "≥", e ** pr.node(-2000)), pr.relation(p_j, "<", 1),
    pr.relation(p_j, "≤", 1 / N_K), pr.relation(pr.call("tanh", t), "≤", 1 - Fraction(1, 10**25)),
    pr.relation(e**t * (1 + Fraction(1, 10**45)), "≤", e**t),
    # more keys than are named
    pr.relation(N_K, "≤", 200), pr.relation(N_K, "≤", pr.Root(pr.node(40))), pr.relation(pr.call("log", N_K), "≤", 2),
    pr.relation(pr.total("j", 1, N_K, p_j * p_j), "≥", Fraction(1, 6)),
]  # fmt: skip
OF_KINDS_AND_TIES = [
    # norms of the wrong kind
    pr.relation(norm(s, "1"), "≤", 3 * norm(s)), pr.relation(norm(B, "∞"), "≤", 3 * norm(B, "F")),
    pr.equals(norm(B, "∞"), norm(pr.Transposed(B), "∞")), pr.relation(pr.call("lse", s), "≤", pr.call("max", s) + 7),
    # strict where both sides meet: zeros, ties, one key
    pr.relation(norm(s), ">", 0), pr.relation(norm(s), "<", norm(s, "1")),
    pr.relation(over("min", s_j), "<", over("max", s_j)),
    pr.relation(e**t, ">", 1 + t), pr.relation(N_K, "≥", 2),
    pr.relation(over("max", s_j + r_j), "<", over("max", s_j) + over("max", r_j)),
    # signs, axes, numbers that are nearly right
    pr.equals(over("max", pr.Name("a") * s_j), pr.Name("a") * over("max", s_j)),
    pr.equals(pr.call("softmax", pr.Transposed(S)), pr.Transposed(A)), pr.equals(pr.Name("π"), Fraction(355, 113)),
    pr.equals(pr.call("tanh", t), pr.call("tanh", t) + Fraction(1, 10**50)),
    pr.equals(pr.Partial(p_j, pr.name("s", "l")), p_j * (1 - pr.name("p", "l"))),
    pr.relation(pr.Partial(p_j, pr.name("s", "l")), "≤", Fraction(1, 5)),
]  # fmt: skip

u = t + pr.Name("a") - pr.Name("b")
THIN = [
    pr.equals(size(u - 37) + size(38 - u), size(2 * u - 75)),
    pr.equals(pr.call("relu", u - 37) * pr.call("relu", 38 - u), 0),
    pr.relation(size(u - 37) + size(38 - u), "≤", size(2 * u - 75)),
    pr.equals(pr.call("relu", t**3 - 37) * pr.call("relu", 38 - t**3), 0),
    pr.equals(pr.call("relu", pr.call("max", s) - 37) * pr.call("relu", 38 - pr.call("max", s)), 0),
    pr.relation(pr.call("relu", t**2 - 37) * pr.call("relu", 38 - t**2), "≤", 0),
    pr.relation(pr.call("relu", s_j * r_j - 37) * pr.call("relu", 38 - s_j * r_j), "≤", 0),
    pr.relation(pr.call("relu", e**t - 37) * pr.call("relu", 38 - e**t), "≤", 0),
]  # fmt: skip
"""False between 37 and 38 alone, where no number that is drawn falls."""

CELL = [
    pr.relation(pr.call("max", t, -(10**6)), "≤", 10**7),
    pr.relation(pr.call("relu", u - 37) * pr.call("relu", 38 - u), "<", Fraction(1, 4)),
    pr.relation(
        over("max", size(s_j)),
        "≤",
        pr.total("j", 1, N_K, size(s_j)) - pr.call("relu", pr.total("j", 1, N_K, size(s_j)) - 50),
    ),
]
"""False in a cell that is wide, or at one of its points alone."""

TRUE = [
    pr.relation(e**t, "≥", t), pr.relation(norm(s), "≤", norm(s, "1")), pr.relation(size(pr.call("tanh", t)), "≤", 1),
    pr.relation(pr.Partial(p_j, pr.name("s", "l")), "≤", Fraction(1, 4)),
    pr.relation(pr.total("j", 1, N_K, p_j * p_j), "≥", 1 / N_K),
    pr.relation(pr.call("relu", t - 37) * pr.call("relu", 38 - t), "≤", Fraction(1, 4)),
    pr.equals(pr.call("relu", t) - pr.call("relu", -t), t),
    pr.equals(size(t) * size(pr.Name("a")), size(t * pr.Name("a"))),
]  # fmt: skip


@pytest.mark.parametrize("formula", OF_NUMBERS_AND_SIZES, ids=pr.text)
def test_a_bound_of_small_numbers_or_few_keys_is_not_printed_with_a_grade(formula: pr.Node) -> None:
    with pytest.raises(FalseStep):
        section().claim(formula, "")


@pytest.mark.parametrize("formula", OF_KINDS_AND_TIES, ids=pr.text)
def test_a_bound_of_another_kind_or_without_ties_is_not_printed_with_a_grade(formula: pr.Node) -> None:
    with pytest.raises(FalseStep):
        section().claim(formula, "")


@pytest.mark.parametrize("formula", [*THIN, *CELL], ids=pr.text)
def test_what_is_false_in_a_cell_is_not_printed_with_a_grade(formula: pr.Node) -> None:
    with pytest.raises(FalseStep):
        section().claim(formula, "")


@pytest.mark.parametrize("formula", TRUE, ids=pr.text)
def test_a_true_bound_keeps_its_grade(formula: pr.Node) -> None:
    assert section().claim(formula, "").evidence is not None


@pytest.mark.deep
@pytest.mark.parametrize(("name", "parameters"), [asked for asked in DOCUMENTS if "tokens" not in asked[1]])
def test_what_derivations_call_proved_is_certified(name: str, parameters: dict[str, Any]) -> None:
    found, without = counted(questions(name, parameters))
    assert not without
    assert found.total() > 0


def test_a_grade_without_a_certificate_is_seen() -> None:
    relation = pr.equals(pr.name("x"), pr.name("x"))
    assert by(DecidedRelation(relation, lambda _: Evidence(Grade.PROVED, "all sizes"))) == NONE


X, Y, POSITIVE = pr.Name("x"), pr.Name("y"), pr.Name("z")
CANCELLED = pr.equals(pr.Product((pr.Over(X, Y), Y)), X)


def where(relation: pr.Relation, *conditions: pr.Relation, gaps: dict[pr.Node, pr.Node] | None = None) -> str:
    glossary = Glossary(given={"x": "", "y": "", "z": ""}, sizes={}, positive=("z",))
    evidence = decided(RelationQuestion(relation, glossary, gaps=gaps or {}, where=conditions))
    assert evidence.grade.value == "proved"
    return evidence.where


def test_what_an_equation_divides_by_is_told() -> None:
    assert where(CANCELLED) == "all sizes; y ≠ 0"
    assert where(pr.equals(pr.Product((pr.Over(X, POSITIVE), POSITIVE)), X)) == "all sizes"


def test_what_a_bound_divides_by_is_told() -> None:
    square = pr.Over(X * X, Y)
    assert where(pr.relation(square * square, "≥", 0)) == "all sizes; y ≠ 0"
    assert where(pr.relation(X * X, "≥", 0)) == "all sizes"


def test_what_is_divided_by_is_told_where_conditions_are_not_needed() -> None:
    assert where(CANCELLED, pr.relation(X, ">", 0)) == "all sizes; y ≠ 0"


def test_a_chain_of_what_is_known_needs_what_each_link_does() -> None:
    one, other = pr.Over(X, Y), pr.Over(X * X, X * Y)
    chain = pr.Relation(X, (("=", one), ("=", other)))
    known = {
        Link(X, "=", one): Evidence(Grade.PROVED, "all sizes; y ≠ 0"),
        Link(one, "=", other): Evidence(Grade.PROVED, "all sizes; x y ≠ 0"),
    }
    question = RelationQuestion(chain, Glossary(given={"x": "", "y": ""}, sizes={}))
    assert decided(question, known) == Evidence(Grade.PROVED, "all sizes; y ≠ 0; x y ≠ 0")


# -- What fails only at sizes far out, or at sizes that a condition asks for -------------------------------------------
LETTERS = proving.letters_of(
    "new | s n, x n, z m, A n n, w L h, Q n_q d_k, K n_k d_k, V n_k d_v | index i n, j n"
    " | sizes n, m, n_q, n_k, d_k, d_v, L, h | where p = softmax(s)",
    {},
)
FALSE_FAR = [
    *("n ≤ 20001", "log(n) ≤ 10", "1/n ≥ 10^{−20}", "(1 + 1/n)^n ≤ 2718/1000", "n ≤ 1000 m", "sin(n) ≤ 99999/100000"),
    *("(n − 10007)² > 0", "cos(n) ≥ −9999999/10000000", "relu(log(n) − 20) = 0", "√n ≤ n/10000 + 2500 − 1/1000"),
    *("Σ_{i=1}^{n} 1/i ≥ log n + 57725/100000", "Σ_{i=1}^{n} i ≤ 10^{9}", "lse(s) ≤ max(s) + 12", "‖A‖_F ≤ 100 ‖A‖_∞"),
    *("H(p) ≤ 25", "‖Q Kᵀ‖_F ≤ 10^{9} ‖Q‖_F ‖K‖_F/√d_k"),
]
TRUE_FAR = [
    *(
        "n ≤ n²",
        "n m ≥ n",
        "(1 + 1/n)^n ≤ e",
        "2 log n = log n²",
        "Σ_{i=1}^{n} 1/i ≤ 1 + log(n)",
        "Σ_{i=1}^{n} 1/i² ≤ 2",
    ),
    *("‖x‖_1 ≤ √n ‖x‖", "lse(s) ≤ max(s) + log(n)"),
]
ASKED = [
    ("n² − 62 n + 961 > 0", "n ≥ 30"),
    ("n ≤ 10^{20}", "n ≥ 30"),
    ("n ≤ 10 m + 5", "n ≥ 10 m"),
    ("x_1 ≤ n", "n ≥ 1000"),
    ("max(x) ≤ 4000", "n ≥ 30"),
    ("x·x ≥ 1/10000", "n ≥ 30"),
]
MET = [
    ("n² > 3000", "n ≥ 60"),
    ("x_{30} ≤ max(x)", "n ≥ 30"),
]


@pytest.mark.parametrize("typed", FALSE_FAR)
def test_what_fails_far_out_is_refuted(typed: str) -> None:
    with pytest.raises(FalseStep, match="false at"):
        judged(RelationQuestion(pr.formula(typed), LETTERS))  # type: ignore[arg-type]


@pytest.mark.deep
@pytest.mark.parametrize("typed", TRUE_FAR)
def test_what_holds_at_all_sizes_is_checked(typed: str) -> None:
    judged(RelationQuestion(pr.formula(typed), LETTERS))  # type: ignore[arg-type]


@pytest.mark.parametrize(("typed", "where"), ASKED)
def test_sizes_that_a_condition_asks_for_are_drawn(typed: str, where: str) -> None:
    with pytest.raises(FalseStep, match="false at"):
        judged(RelationQuestion(pr.formula(typed), LETTERS, where=(pr.formula(where),)))  # type: ignore[arg-type]


@pytest.mark.deep
@pytest.mark.parametrize(("typed", "where"), MET)
def test_what_holds_at_sizes_that_a_condition_asks_for_is_checked(typed: str, where: str) -> None:
    judged(RelationQuestion(pr.formula(typed), LETTERS, where=(pr.formula(where),)))  # type: ignore[arg-type]


def test_conditions_on_sizes_are_met_before_entries_are_compared() -> None:
    where = (pr.formula("x_1 ≥ x_2"), pr.formula("n ≥ 2"))
    with pytest.raises(FalseStep, match="false at"):
        judged(RelationQuestion(pr.formula("x_1 ≤ 1000 x_2"), LETTERS, where=where))  # type: ignore[arg-type]


def test_a_root_or_a_logarithm_of_what_has_none_refutes_nothing() -> None:
    letters = proving.letters_of("new | a | sizes n", {})
    for typed in ("log(a) ≤ a", "√a ≤ a² + 1"):
        evidence = judged(RelationQuestion(pr.formula(typed), letters))  # type: ignore[arg-type]
        assert evidence.where.endswith("where both sides are defined")


def test_a_counterexample_without_sizes_names_its_entries() -> None:
    with pytest.raises(FalseStep, match=r"false at a = \S+$"):
        judged(RelationQuestion(pr.formula("a² ≥ a + 1"), proving.letters_of("new | a", {})))  # type: ignore[arg-type]


def test_mistakes_in_letters_are_said_by_name() -> None:
    with pytest.raises(InputError, match="laws x : a letter, its deviation"):
        proving.letters_of("new | x n | laws x", {})
    for letters in ("new | x", {"x": "x"}, 5):
        with pytest.raises(InputError, match="letters are a Glossary"):
            theorem("t", "softmax", "says", arrays={}, false=(), false_says="", letters=letters)


# -- Bounds that fail near equal arrays, near multiples, by little, or where a sign is 0 -------------------------------
LETTERS_NEAR = proving.letters_of(
    "new | x 3, y 3, a, b, s n_k, t n_k | sizes n 3 | where p = softmax(s); q = softmax(t)", {}
)
FALSE_NEAR = [
    "a (1 − a) ≤ 1/4 − 1/10000",
    "‖p − q‖ ≤ 249/500 ‖s − t‖",
    "(x·y)/(1 + ‖x‖ ‖y‖) ≤ 99/100",
    "|sigmoid(a) − sigmoid(b)| ≤ 6/25 |a − b|",
    "a e^(−3 a) ≤ 61/500",
    "0 < (a² − 2)² + (b − 1/7)²",
    "‖(a − 3/7) x − y‖ > 0",
    "(tanh(a b) − tanh(2/3))² > 0",
    "(x_1² − 2)² + (x_2² − 5)² + (x_3 x_1 − 2)² > 0",
    "log(e^a + 2 e^b + 3) ≥ log(3) + (a + b + log(6))/3 + 10^{−12}",
    "|sign(2 a + b)| + |sign(a b + 18)| > 0",
    "|sign(a − 41/7)| + |sign(a b − 3)| ≥ 1",
    "sign(x_1 − y_1)² ≥ 1",
    "(a² − 2)² ≥ 10^{−20}",
    "cos(a) ≥ 10^{−20} − 1",
    "cos(a) + cos(√2 a) ≥ −1999/1000",
]
TRUE_NEAR = [
    "a (1 − a) ≤ 1/4",
    "|x·y| ≤ ‖x‖ ‖y‖",
    "|sigmoid(a) − sigmoid(b)| ≤ 1/4 |a − b|",
    "sign(a) sign(b) = sign(a b)",
    "lse(x) > x_1",
    "√{1 + a²} − |a| > 0",
    "log(e^a + 2 e^b + 3) > log(3) + (a + b + log(6))/3 − 10^{−6}",
    "a⁴ b² + a² b⁴ + 1 + 1/1000 > 3 a² b²",
]


@pytest.mark.parametrize("typed", FALSE_NEAR)
def test_a_smooth_bound_that_fails_by_little_is_refuted(typed: str) -> None:
    with pytest.raises(FalseStep, match="false at"):
        judged(RelationQuestion(pr.formula(typed), LETTERS_NEAR))  # type: ignore[arg-type]


@pytest.mark.parametrize("typed", TRUE_NEAR)
def test_a_sharp_bound_is_not_refuted(typed: str) -> None:
    judged(RelationQuestion(pr.formula(typed), LETTERS_NEAR))  # type: ignore[arg-type]


SIGNED = proving.letters_of("new | a, b, x n | sizes n | positive a | nonnegative b", {})


@pytest.mark.parametrize("typed", ["a + 1 > 1", "1/a ≥ 0", "a + b > 0", "a b ≥ 0", "a + b² + 1 > 1"])
def test_entries_that_are_positive_stay_positive(typed: str) -> None:
    judged(RelationQuestion(pr.formula(typed), SIGNED))  # type: ignore[arg-type]


@pytest.mark.parametrize("typed", ["b > 0", "a ≥ 1/10^9", "b + x_1² > 0"])
def test_a_bound_of_signed_entries_is_refuted(typed: str) -> None:
    with pytest.raises(FalseStep, match="false at"):
        judged(RelationQuestion(pr.formula(typed), SIGNED))  # type: ignore[arg-type]


SHUFFLED = proving.letters_of("new | x n, a | sizes n | permutations Π n", {})
RARE = [
    "n² − 62 n + 961 > 0",
    "√n ≤ n/10 + 5/2 − 1/1000",
    "(n − 6)² + (x_1 − 1/7)² > 0",
    "relu(x_1 − 1) relu(1 − x_1) = relu(x_1 − 999) relu(n − 20)",
    "‖x‖_1 ‖x‖_∞ ≤ 2 ‖x‖²",
    "x·(Π x) ≥ −99/100 ‖x‖²",
]


@pytest.mark.parametrize("typed", RARE)
def test_what_fails_at_one_size_or_for_one_permutation_is_refuted(typed: str) -> None:
    where = (pr.formula("n ≥ 3"),) if "Π" in typed else ()
    with pytest.raises(FalseStep, match="false at"):
        judged(RelationQuestion(pr.formula(typed), SHUFFLED, where=where))  # type: ignore[arg-type]


MAGNITUDES = [
    *("a ≤ 10^{30}", "a² + b² ≤ 10^{60}", "log(1 + a²) ≤ 500", "a/(1 + |a|) ≤ 1 − 10^{−60}", "tanh(a) ≤ 1 − 10^{−90}"),
    *("KL(p, q) ≤ 10^{10}", "KL(p, q) ≥ 10^{−20} TV(p, q)", "‖x − y‖² ≥ 10^{−12} ‖x‖²", "TV(p, q) ≤ 1 − 10^{−40}"),
    *("max(s) − min(s) ≤ 10^{12}", "lse(s) ≥ max(s) + 10^{−50}", "relu(a − 10^{9}) relu(10^{9} + 1 − a) = 0"),
]


@pytest.mark.parametrize("typed", MAGNITUDES)
def test_what_fails_for_tiny_huge_or_nearly_equal_numbers_is_refuted(typed: str) -> None:
    with pytest.raises(FalseStep, match="false at"):
        judged(RelationQuestion(pr.formula(typed), LETTERS_NEAR))  # type: ignore[arg-type]


def test_a_permutation_has_the_size_that_is_set() -> None:
    judged(RelationQuestion(pr.formula("Π Π Π Π Π Π x = x"), SHUFFLED, {"n": 3}))  # type: ignore[arg-type]
    with pytest.raises(FalseStep, match="false at"):
        judged(RelationQuestion(pr.formula("Π Π Π Π x = x"), SHUFFLED, {"n": 3}))  # type: ignore[arg-type]


MEETING = [
    *("(e^a − 2)² > 0", "(a³ − 2)² > 0", "(e^a − 2)² + (e^b − 3)² > 0"),
    "log(e^a + 2 e^b + 3) > log(3) + (a + b + log(6))/3",
]


@pytest.mark.parametrize("typed", MEETING)
def test_a_strict_bound_whose_sides_meet_at_numbers_that_have_no_name_is_not_decided(typed: str) -> None:
    with pytest.raises(NotDecided, match="as near to each other"):
        judged(RelationQuestion(pr.formula(typed), LETTERS_NEAR))  # type: ignore[arg-type]


@pytest.mark.deep
@pytest.mark.parametrize(("typed", "where"), [("max(x) ≥ x_2", "n ≥ 2"), ("relu(x_3) − relu(−x_3) = x_3", "n ≥ 3")])
def test_an_entry_that_small_sizes_lack_needs_a_condition(typed: str, where: str) -> None:
    judged(RelationQuestion(pr.formula(typed), SHUFFLED, where=(pr.formula(where),)))  # type: ignore[arg-type]


OPEN = [("(a − b)⁴ > 0", "a ≠ b"), ("(a − 7/3)⁴ > 0", "a ≠ 7/3"), ("1/a > 0", "a > 0")]


@pytest.mark.parametrize(("typed", "where"), OPEN)
def test_a_strict_bound_whose_sides_meet_outside_its_conditions_is_checked(typed: str, where: str) -> None:
    judged(RelationQuestion(pr.formula(typed), LETTERS_NEAR, where=(pr.formula(where),)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("right", "sign", "holds"),
    [("2 +/- 1e-20", "≠", False), ("2 +/- 1e-20", "=", True), ("3 +/- 1e-20", "≠", True), ("3 +/- 1e-20", "=", False)],
)
def test_narrow_balls_decide_whether_numbers_are_equal(right: str, sign: str, holds: bool) -> None:
    assert entry_holds(flint.arb("2 +/- 1e-20"), sign, flint.arb(right)) is holds


@pytest.mark.parametrize("sign", ["=", "≠"])
def test_wide_balls_that_overlap_decide_nothing(sign: str) -> None:
    with pytest.raises(Undecided, match="too wide"):
        entry_holds(flint.arb("2 +/- 0.5"), sign, flint.arb("2.1 +/- 0.5"))
