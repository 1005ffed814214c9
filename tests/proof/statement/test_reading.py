"""What can be read of a formula, and what is refused."""

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from symattn import Grade, kinds, proving, theorems
from symattn import printing as pr
from symattn.arrays.formats import Format
from symattn.proof.expectation import law_with
from symattn.proof.relations.comparing import FalseStep
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.judging import RelationQuestion, judged
from symattn.proof.relations.printed_roundings import _numbers_near_format_ends
from symattn.proof.relations.section import Section
from symattn.proof.relations.sentences import claims, defined
from symattn.theorems.reading import Statement
from tests.formats import FORMATS
from tests.letters import mean, var

Q, K, V, S, A, ONES = (pr.Name(x) for x in ("Q", "K", "V", "S", "A", "𝟏"))
e, s, t = pr.Name("e"), pr.Name("s"), pr.Name("t")
D_K, N_K = pr.name("d", "k"), pr.name("n", "k")
GIVEN = {"Q": "n_q d_k", "K": "n_k d_k", "V": "n_k d_v", "s": "n_k", "t": ""}


def section() -> Section:
    made = Section(Glossary(given=GIVEN, index={"i": "n_q", "j": "n_k", "l": "n_k"}))
    made.define(pr.equals(S, Q * pr.Transposed(K)))
    made.define(pr.equals(A, pr.call("softmax", S)))
    return made


PROVED: list[pr.Node] = [
    pr.equals(pr.name("S", "i", "j"), pr.Product((pr.name("q", "i"), pr.name("k", "j")), "·")),
    pr.equals(A * ONES, ONES),
    pr.equals(pr.total("j", 1, N_K, pr.name("a", "i", "j")), 1),
    pr.equals(pr.Transposed(S), K * pr.Transposed(Q)),
    pr.equals(pr.call("softmax", s + t * ONES), pr.call("softmax", s)),
    pr.equals(pr.call("attention", Q, K, V), pr.call("softmax", Q * pr.Transposed(K) / pr.Root(D_K)) * V),
    pr.equals(pr.Partial(pr.name("s", "j") ** 2, pr.name("s", "l")), 2 * pr.name("δ", "j", "l") * pr.name("s", "j")),
]


@pytest.mark.parametrize("formula", PROVED, ids=pr.text)
def test_read_and_proved(formula: pr.Node) -> None:
    step = section().claim(formula, "")
    assert step.evidence is not None
    assert step.evidence.grade is Grade.PROVED


def test_a_size_alone_in_a_divisor() -> None:
    divisor = 1 - N_K * e**t
    step = section().claim(pr.equals(1 / divisor - 1 / divisor, 0), "")
    assert step.evidence is not None
    assert step.evidence.grade is Grade.PROVED


REFUSED: list[tuple[pr.Node, str]] = [
    (pr.equals(A * ONES, 2 * ONES), "false"),
    (pr.equals(pr.name("S", "i", "j"), pr.name("S", "i", "l")), "free indices"),
    (pr.equals(pr.Name("y"), s), "no meaning"),
    (pr.equals(pr.call("f", s), s), "the function f"),
    (pr.equals(pr.total("h", 1, pr.Name("h"), s), s), "range|meaning"),
    (pr.equals(pr.total("j", 1, pr.name("n", "q"), pr.name("s", "j")), 0), "false|different lengths"),
    (pr.equals(s + t, s), "a number is added"),
    (pr.equals(pr.Transposed(s), s), "a row"),
    (pr.equals(s, t), "one side is a number"),
    (pr.relation(pr.name("s", "j"), "∈", 1), "the sign"),
    (pr.equals(pr.name("s", 3), 0), "false|an entry is missing|refuse"),
    (pr.relation(e**t, "≤", e ** (2 * t)), "false"),
    (pr.equals(t / (t - t), 1), "Zero|zero"),
    (pr.call("softmax", s), "no relation"),
    (pr.equals(pr.Fence("floor", t), t), "⌊…⌋ outside an index"),
]


@pytest.mark.parametrize(("formula", "why"), REFUSED, ids=[pr.text(f) for f, _ in REFUSED])
def test_refused(formula: pr.Node, why: str) -> None:
    with pytest.raises(FalseStep, match=why):
        section().claim(formula, "")


def test_a_bound_is_proved_by_its_gap_alone() -> None:
    row = pr.total("j", 1, N_K, e ** pr.name("s", "j"))
    twice = row + e**t
    gap = {row: e**t}
    step = section().claim(pr.relation(row, "<", twice), "", gaps=gap)
    assert step.evidence is not None
    assert step.evidence.grade is Grade.PROVED
    for wrong in (pr.relation(row, "<", twice + e**t), pr.relation(row, ">", twice), pr.relation(row, "<", 2 * row)):
        with pytest.raises(FalseStep):
            section().claim(wrong, "", gaps=gap)


def test_a_bound_without_a_gap_is_searched() -> None:
    step = section().claim(pr.relation(t, "<", e**t), "")
    assert step.evidence is not None
    assert step.evidence.grade is Grade.SEARCHED
    assert re.search(r"^48 draws .*; \d+ draws beyond; ascent from \d+ places$", step.evidence.where)


def test_a_letter_is_defined_once() -> None:
    with pytest.raises(ValueError, match="has a meaning already"):
        section().define(pr.equals(A, pr.call("softmax", 2 * S)))


def test_written_out_for_a_size() -> None:
    formula = pr.equals(pr.total("j", 1, N_K, pr.name("s", "j")), pr.name("s", 1) + pr.name("s", 2))
    step = section().claim(formula, (pr.equals(N_K, 2),))
    assert step.evidence is not None
    assert step.evidence.where == "n_k = 2, all entries"
    for reason in ((pr.equals(N_K, 3),), ()):
        with pytest.raises(FalseStep):
            section().claim(formula, reason)


def example() -> Section:
    made = Section(Glossary(given={"x": "n", "c": ""}, sizes={"n": "n"}, index={"i": "n"}, example=True))
    made.let(("With ", pr.equals("x", pr.matrix([[1, 2]])), " and ", pr.equals("c", 3)))
    return made


def test_an_example_is_decided_in_its_numbers() -> None:
    sum_ = pr.total("i", 1, pr.Name("n"), pr.name("x", "i"))
    step = example().claim(pr.equals(sum_, pr.Name("c"), 3), "")
    assert step.evidence is not None
    assert step.evidence.where == "this example"
    assert example().claim(pr.Relation(sum_ / 7, (("≈", pr.Decimal("0.429")),)), "")
    for wrong in (
        pr.equals(sum_, 4),
        pr.Relation(sum_ / 7, (("≈", pr.Decimal("0.428")),)),
        pr.Relation(sum_, (("≠", pr.node(3)),)),
        pr.Relation(sum_, (("≠", pr.node(5)),)),
        pr.equals(pr.name("x", 3), 0),
    ):
        with pytest.raises(FalseStep):
            example().claim(wrong, "")


def test_numbers_that_do_not_fit_are_refused() -> None:
    made = Section(Glossary(given={"x": "n", "y": "n"}, sizes={"n": "n"}, index={"i": "n"}, example=True))
    made.let((pr.equals("x", pr.matrix([[1, 2]])),))
    with pytest.raises(FalseStep, match="y has no numbers"):
        made.claim(pr.equals(pr.name("x", 1), 1), "")
    made.let((pr.equals("y", pr.matrix([[1, 2, 3]])),))
    with pytest.raises(FalseStep, match="another length"):
        made.claim(pr.equals(pr.name("x", 1), 1), "")


def grouped() -> Section:
    given = {"Q": "g*r n d_k", "K": "g m d_k", "V": "g m d_v"}
    sizes, index = {"g": "g", "r": "r"}, {"t": "g*r", "a": "g", "b": "r", "c": "g"}
    made = Section(Glossary(given, sizes, index, first=0))
    group = pr.Fence("floor", pr.Name("t") / pr.Name("r"))
    made.define(
        pr.equals(pr.name("O", "t"), pr.call("attention", pr.name("Q", "t"), pr.name("K", group), pr.name("V", group)))
    )
    return made


def member(a: str, r: str, b: str) -> pr.Node:
    return pr.Name(a) * pr.Name(r) + pr.Name(b)


def test_indices_that_count_in_groups() -> None:
    def formula(place: pr.Node, keys: str) -> pr.Relation:
        of_group = pr.call("attention", pr.name("Q", place), pr.name("K", keys), pr.name("V", keys))
        return pr.equals(pr.name("O", place), of_group)

    step = grouped().claim(formula(member("a", "r", "b"), "a"), "")
    assert step.evidence is not None
    assert step.evidence.grade is Grade.PROVED
    wrong = [
        (member("a", "r", "b"), "c"),
        (member("b", "r", "a"), "a"),
        (member("a", "g", "b"), "a"),
        (pr.Name("t"), "a"),
    ]
    for place, keys in wrong:
        with pytest.raises(FalseStep):
            grouped().claim(formula(place, keys), "")
    with pytest.raises(FalseStep, match="not counted from 0"):
        Section(replace(grouped().glossary, first=1)).claim(formula(member("a", "r", "b"), "a"), "")


def drawn() -> Section:
    given = {"x": "n", "w": "n", "u": "n", "σ": ""}
    laws = {"w": law_with("σ"), "u": law_with("σ")}
    made = Section(Glossary(given, {"n": "n"}, {"i": "n"}, laws=laws, labels={"A1": "w", "A2": "u"}))
    made.let((pr.equals("y", pr.total("i", 1, pr.Name("n"), pr.name("x", "i") * pr.name("w", "i"))),))
    return made


def test_moments_under_any_law() -> None:
    y, sigma, norm = pr.Name("y"), pr.Name("σ"), pr.Fence("norm", pr.Name("x"))
    other = pr.total("i", 1, pr.Name("n"), pr.name("x", "i") * pr.name("u", "i"))
    true = [
        pr.equals(mean(y), 0), pr.equals(var(y), sigma**2 * norm**2), pr.equals(pr.call("Cov", y, y), var(y)),
        pr.equals(pr.call("Cov", y, other), 0), pr.equals(mean(y * other), 0),
    ]  # fmt: skip
    for stated in true:
        step = drawn().claim(stated, "")
        assert step.evidence is not None
        assert step.evidence.grade is Grade.PROVED
    wrong = [
        pr.equals(mean(y), sigma), pr.equals(var(y), sigma**2 * norm), pr.equals(var(y), sigma**3),
        pr.equals(mean(y**3), 0),
        pr.equals(mean(pr.Name("x")), pr.Name("x")), pr.equals(pr.call("Cov", y, y), 0), pr.equals(var(y), 0),
        pr.equals(var(y**2), 0),
    ]  # fmt: skip
    for stated in wrong:
        with pytest.raises(FalseStep):
            drawn().claim(stated, "")


def test_limits_have_premises() -> None:
    beta, u, infinity = pr.Name("β"), pr.name("u", "i"), pr.Name("∞")
    glossary = Glossary({"u": "n", "β": "", "c": ""}, {"n": "n"}, {"i": "n"}, positive=("u", "β"))
    rest = pr.Big("sum", pr.Name("i"), None, None, e ** (-(beta * u)))
    sharp, flat = pr.relation(beta, "→", infinity), pr.relation(beta, "→", 0)

    def tends(x: pr.Node, to: pr.Node | int, when: pr.Relation, form: pr.Node | None = None) -> Any:
        return Section(glossary).tends(pr.relation(x, "→", to), when, form).evidence

    share = rest / (1 + rest)
    assert tends(rest, 0, sharp).grade is Grade.PROVED
    assert tends(1 - 1 / (1 + rest), 0, sharp, share).grade is Grade.PROVED
    assert tends(rest, pr.Name("n"), flat).grade is Grade.PROVED
    wrong = [
        (rest, 1, sharp, None), (rest, 0, flat, None), (beta, 0, sharp, None), (e ** (beta * u), 0, sharp, None),
        (e ** (-(beta * pr.Name("c"))), 0, sharp, None), (beta * rest, 0, sharp, None), (share, 0, sharp, rest),
        (rest, 0, pr.relation(pr.Name("c"), "→", infinity), None), (beta / beta, 1, flat, None),
        (rest, 0, pr.relation(beta, "→", 1), None),
    ]  # fmt: skip
    for x, to, when, form in wrong:
        with pytest.raises(FalseStep):
            tends(x, to, when, form)
    hidden = Section(glossary)
    hidden.let((pr.equals("R", rest),))
    with pytest.raises(FalseStep, match="depends on"):
        hidden.tends(pr.relation(pr.Name("R"), "→", pr.Name("R")), sharp)


def test_norms_and_logarithms() -> None:
    x, s_j = pr.Name("x"), pr.name("s", "j")
    made = Section(Glossary({"x": "n", "s": "n", "b": ""}, {"n": "n"}, {"j": "n"}))
    rows = pr.total("j", 1, pr.Name("n"), e**s_j)
    for stated in (
        pr.equals(pr.Fence("norm", -x), pr.Fence("norm", x)),
        pr.equals(pr.call("lse", s), pr.call("log", rows)),
    ):
        step = made.claim(stated, "")
        assert step.evidence is not None
        assert step.evidence.grade is Grade.PROVED
    for stated in (
        pr.equals(pr.Fence("norm", 2 * x), pr.Fence("norm", x)),
        pr.equals(pr.call("lse", s), pr.call("log", 2 * rows)),
    ):
        with pytest.raises(FalseStep):
            made.claim(stated, "")


STEPS = Glossary(
    {"X₀": "n", "A": "L n n", "s": "m+n", "B": "h n d"},
    {"n": "n", "L": "L", "h": "h"},
    {"i": "n", "l": "L", "j": "m+n", "c": "n"},
    sets={"M": "m"},
    functions={"last": lambda _, *x: x[-1], "first": lambda _, *x: x[0]},
)
X_L, X_0, NEXT = (
    pr.name("X", "L"),
    pr.name("X", 0),
    pr.equals(pr.name("X", pr.name("l") + 1), pr.name("A", "l") * pr.name("X", "l")),
)
OVER_M = (pr.Big("sum", pr.relation("j", sign, "M"), None, None, pr.name("s", "j")) for sign in "∈∉")
EVERY = pr.total("j", 1, "N", pr.name("s", "j"))


def stepwise(**more: Any) -> Section:
    made = Section(STEPS.also(**more))
    found = defined(made.glossary, NEXT)
    assert found is not None
    made.glossary = found
    return made


TOGETHER: list[tuple[pr.Relation, bool]] = [
    (pr.equals(pr.name("X", 1), pr.name("A", 1) * X_0), True),
    (pr.equals(pr.name("X", 2), pr.name("A", 1) * pr.name("X", 1)), False),
    (
        pr.equals(
            X_L, X_0 + pr.total("l", 0, pr.name("L") - 1, pr.name("A", "l") * pr.name("X", "l") - pr.name("X", "l"))
        ),
        True,
    ),
    (pr.equals(X_L, X_0 + pr.total("l", 0, pr.name("L") - 1, pr.name("A", "l") * X_0 - X_0)), False),
    (pr.equals(pr.Sum(tuple(OVER_M)), EVERY), True),
    (pr.equals(pr.Big("sum", pr.relation("j", "∈", "M"), None, None, pr.name("s", "j")), EVERY), False),
    (
        pr.relation(pr.Big("max", pr.relation("j", "∈", "M"), None, None, pr.name("s", "j")), "≤", pr.call("max", s)),
        True,
    ),
    (pr.equals(pr.call("last", pr.name("B", 1), pr.Name("…"), pr.name("B", "h")), pr.name("B", "h")), True),
    (pr.equals(pr.call("first", pr.name("B", 1), pr.Name("…"), pr.name("B", "h")), pr.name("B", "h")), False),
]


@pytest.mark.parametrize(("formula", "holds"), TOGETHER)
def test_steps_sets_and_dots(formula: pr.Relation, holds: bool) -> None:
    made = stepwise(sizes={"N": "m+n"}, families={"B": _block})
    if holds:
        assert made.claim(formula, "").evidence is not None
    else:
        with pytest.raises(FalseStep):
            made.claim(formula, "")


def _block(reader: Any, parts: tuple[pr.Node, ...]) -> Any:
    """B_1 or B_h."""
    place = reader.whole_number(parts[0])
    return reader.array("B")[place - 1]


PREFIXES = [
    ("Σ_{j < i} x_j + x_i = Σ_{j ≤ i} x_j", "proved"),
    ("c_i − Σ_{j<i} x_j = x_i", "proved"),
    ("Σ_{i=1}^n Σ_{j<i} x_i x_j = Σ_{i<j} x_i x_j", "proved"),
    ("Σ_{i<j} (x_i − x_j)² = n Σ_{i=1}^n x_i² − (Σ_{i=1}^n x_i)²", "proved"),
    ("Σ_{j ≤ i} e^{x_j} + e^{x_i} ≥ Σ_{l=1}^n e^{x_l}", "false at"),
    ("c_i ≥ Σ_{l=1}^n x_l − Σ_{l=1}^n |x_l|/2", "false at"),
    ("Σ_{j ≤ i} x_i x_j ≥ 0", "is over i, too"),
    ("Σ_{i≠j} δ_ij = 0 x_1", "is over j, too"),
    ("Σ_{j≠i} δ_ij + δ_i_i = Σ_{j=1}^n δ_ij", "proved"),
    ("Σ_{l=0}^{n−1} x_l = Σ_{l=1}^n x_l", "begin with 0 and with 1"),
    ("|x_1| ≤ Σ_{l=0}^{n−1} |x_l|", "begin with 0 and with 1"),
    ("Σ_{j∈M} x_j² ≤ Σ_{j∈N} x_j²", "two sets of indices"),
    ("e ≥ 0", "false at"),
    ("e^x_1 > 0", "the power"),
    ("δ_ij δ_ij = δ_ij", "false at"),
    ("u_j = e^{x_j}", "proved"),
]
"""Σ_{j<i} is over j alone if i stands elsewhere, and over pairs if it cannot be meant otherwise; a declared letter
is no other of its name."""


@pytest.mark.parametrize(("typed", "found"), PREFIXES)
def test_sums_over_indices_and_letters_of_several_meanings(typed: str, found: str) -> None:
    letters = proving.letters_of(
        f"new | x m+k+r, δ m+k+r m+k+r{', e' * typed.startswith('e')} | index i m+k+r, j m+k+r, l m+k+r | sizes n m+k+r"
        " | sets M m, N m+k | where c_i = Σ_{j ≤ i} x_j; u_j = e^{x_j}",
        {},
    )
    try:
        answer = judged(RelationQuestion(pr.formula(typed), letters)).grade.value  # type: ignore[arg-type]
    except FalseStep as reason:
        answer = str(reason)
    assert found in answer


def test_ranks_and_determinants() -> None:
    given = Glossary({"Q": "n d", "K": "n d", "x": "", "y": ""}, {"n": "n", "d": "d"}, exact=True)
    made = Section(given)
    low = pr.relation(pr.call("rank", Q * pr.Transposed(K)), "≤", "d")
    assert made.claim(low, "").evidence is not None
    with pytest.raises(FalseStep):
        made.claim(pr.relation(pr.call("rank", Q * pr.Transposed(K)), "≤", 1), "")
    x, y = pr.Name("x"), pr.Name("y")
    square = pr.matrix([[x, 1], [1, y]])
    assert made.claim(pr.equals(pr.call("det", square), x * y - 1), "").evidence is not None
    with pytest.raises(FalseStep):
        made.claim(pr.equals(pr.call("det", square), x * y + 1), "")


# -- Results of rounding, as they are printed and read -----------------------------------------------------------------
#: The letters of a theorem on the numbers of a format.
FORMAT_LETTERS: Any = theorems.theorem_of("rounding", "exp-overflow-threshold").letters
LETTERS = FORMAT_LETTERS.also({"y": ""}, formats=("float16", "bfloat16"))
MODEL = LETTERS.also({"w": ""}, formats=(), families={"fl": FORMAT_LETTERS.families["fl"]}).where("u = 1/(2 + e^w)")
TRUE = [
    ("fl(x + y) = fl(y + x)", ""),
    ("fl(fl(x + y)) = fl(x + y)", ""),
    ("fl(x − x) = 0", ""),
    ("fl(x) = ∞", "x ≥ (2 − u) 2^{e_max}"),
]
FALSE = [
    ("fl(x + y) = x + y", ""),
    ("fl(fl(x + y) + x) = fl(x + y + x)", ""),
    ("fl(x y) = x y", ""),
    ("fl(x) = ∞", "x ≥ 2 2^{e_max}"),
    ("fl(x) = ∞", "x ≥ 2^{e_max}"),
]


def asked(claim: str, where: str) -> RelationQuestion:
    return RelationQuestion(relation_of(claim), LETTERS, where=(relation_of(where),) if where else (), only=bool(where))


def relation_of(claim: str) -> pr.Relation:
    read = pr.formula(claim)
    assert isinstance(read, pr.Relation)
    return read


@pytest.mark.parametrize(("claim", "where"), TRUE)
def test_what_is_so_in_every_format(claim: str, where: str) -> None:
    found = judged(asked(claim, where))
    assert found.grade in (Grade.CHECKED, Grade.SEARCHED)
    assert (found.grade is Grade.SEARCHED) == ("draws" in found.where)
    assert "float16, bfloat16" in found.where


@pytest.mark.parametrize(("claim", "where"), FALSE)
def test_what_is_not_so_in_some_format(claim: str, where: str) -> None:
    with pytest.raises(FalseStep):
        judged(asked(claim, where))


@pytest.mark.parametrize(
    ("digits", "right"), [("11.090111", True), ("11.090112", False), ("11.09", True), ("−11.09", False)]
)
def test_digits_are_those_of_the_rounded_number(digits: str, right: bool) -> None:
    claim = RelationQuestion(
        relation_of(f"log((2 − u) 2^{{e_max}}) ≈ {digits}"), FORMAT_LETTERS.also(formats=("float16",))
    )
    if right:
        assert judged(claim).grade is Grade.CHECKED
    else:
        with pytest.raises(FalseStep):
            judged(claim)


def test_digits_of_a_number_of_no_format_are_proved() -> None:
    assert judged(RelationQuestion(relation_of("log(2) ≈ 0.6931"), Glossary())).grade is Grade.PROVED


def test_a_claim_in_a_format_is_read_there() -> None:
    said = pr.running_text("$fl(10^9) = ∞$ in float16, and $fl(10^9) = ∞$", FORMAT_LETTERS.roles)
    within, everywhere = claims(said)
    statement = Statement(FORMAT_LETTERS, (), said, ())
    assert statement.decided(within).evidence
    with pytest.raises(FalseStep):
        statement.decided(everywhere)


def test_the_model_of_rounding_errs_as_much_as_it_may() -> None:
    product = "|fl(x y x) − x y x| ≤ ({}) |x y x|"  # of three numbers, so of two operations
    assert judged(RelationQuestion(relation_of(product.format("2 u + u²")), MODEL)).grade is Grade.SEARCHED
    with pytest.raises(FalseStep):
        judged(RelationQuestion(relation_of(product.format("2 u")), MODEL))


@pytest.mark.parametrize("format_name", FORMATS)
def test_nearest_is_what_the_formats_do(format_name: str) -> None:
    f, dice = Format(format_name), np.random.default_rng(0)
    for x in np.concatenate([dice.normal(size=50), 10.0 ** dice.uniform(-9, 5, 50), [0.0, float(f.smallest) / 2]]):
        c = float(f.rounded(x))
        assert f.nearest(Fraction(float(x))) == (np.inf if np.isnan(c) else c)


def test_numbers_next_to_logarithms_do_not_depend_on_who_asked_first() -> None:
    found = []
    for bits in (53, 200):
        _numbers_near_format_ends.cache_clear()
        with kinds.precision(bits):
            found.append([_numbers_near_format_ends(Format(name)) for name in ("float32", "float16", "bfloat16")])
    assert found[0] == found[1]
