"""What can be read of a formula, and what is refused."""

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from symattn import Grade
from symattn.arrays.ball import precision
from symattn.arrays.formats import FORMATS, Format
from symattn.attention.letters_of_attention import D_K, N_K
from symattn.document import notation as nt
from symattn.document.formulas import formula, running_text
from symattn.document.notation import Name, Node, Relation, call, equals, name, node, relation, total
from symattn.document.text import text
from symattn.proof.expectation import law_with
from symattn.proof.relations.comparing import FalseStep
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.judging import RelationQuestion, judged
from symattn.proof.relations.printed_roundings import _numbers_near_format_ends, fl
from symattn.proof.relations.section import Section
from symattn.proof.relations.sentences import claims, defined
from symattn.theorems.reading import Statement
from symattn.theorems.rounding import FORMAT_LETTERS
from symattn.theorems.texts import letters_of
from tests.letters import mean, var

Q, K, V, S, A, ONES = (Name(x) for x in ("Q", "K", "V", "S", "A", "𝟏"))
e, s, t = Name("e"), Name("s"), Name("t")
GIVEN = {"Q": "n_q d_k", "K": "n_k d_k", "V": "n_k d_v", "s": "n_k", "t": ""}


def section() -> Section:
    made = Section(Glossary(given=GIVEN, index={"i": "n_q", "j": "n_k", "l": "n_k"}))
    made.define(equals(S, Q * nt.Transposed(K)))
    made.define(equals(A, call("softmax", S)))
    return made


PROVED: list[Node] = [
    equals(name("S", "i", "j"), nt.Product((name("q", "i"), name("k", "j")), "·")),
    equals(A * ONES, ONES),
    equals(total("j", 1, N_K, name("a", "i", "j")), 1),
    equals(nt.Transposed(S), K * nt.Transposed(Q)),
    equals(call("softmax", s + t * ONES), call("softmax", s)),
    equals(call("attention", Q, K, V), call("softmax", Q * nt.Transposed(K) / nt.Root(D_K)) * V),
    equals(nt.Partial(name("s", "j") ** 2, name("s", "l")), 2 * name("δ", "j", "l") * name("s", "j")),
]


@pytest.mark.parametrize("formula", PROVED, ids=text)
def test_read_and_proved(formula: Node) -> None:
    step = section().claim(formula, "")
    assert step.evidence is not None
    assert step.evidence.grade is Grade.PROVED


def test_a_size_alone_in_a_divisor() -> None:
    divisor = 1 - N_K * e**t
    step = section().claim(equals(1 / divisor - 1 / divisor, 0), "")
    assert step.evidence is not None
    assert step.evidence.grade is Grade.PROVED


REFUSED: list[tuple[Node, str]] = [
    (equals(A * ONES, 2 * ONES), "false"),
    (equals(name("S", "i", "j"), name("S", "i", "l")), "free indices"),
    (equals(Name("y"), s), "no meaning"),
    (equals(call("f", s), s), "the function f"),
    (equals(total("h", 1, Name("h"), s), s), "range|meaning"),
    (equals(total("j", 1, name("n", "q"), name("s", "j")), 0), "false|different lengths"),
    (equals(s + t, s), "a number is added"),
    (equals(nt.Transposed(s), s), "a row"),
    (equals(s, t), "one side is a number"),
    (relation(name("s", "j"), "∈", 1), "the sign"),
    (equals(name("s", 3), 0), "false|an entry is missing|refuse"),
    (relation(e**t, "≤", e ** (2 * t)), "false"),
    (equals(t / (t - t), 1), "Zero|zero"),
    (call("softmax", s), "no relation"),
    (equals(nt.Fence("floor", t), t), "⌊…⌋ outside an index"),
]


@pytest.mark.parametrize(("formula", "why"), REFUSED, ids=[text(f) for f, _ in REFUSED])
def test_refused(formula: Node, why: str) -> None:
    with pytest.raises(FalseStep, match=why):
        section().claim(formula, "")


def test_a_bound_is_proved_by_its_gap_alone() -> None:
    row = total("j", 1, N_K, e ** name("s", "j"))
    twice = row + e**t
    gap = {row: e**t}
    step = section().claim(relation(row, "<", twice), "", gaps=gap)
    assert step.evidence is not None
    assert step.evidence.grade is Grade.PROVED
    for wrong in (relation(row, "<", twice + e**t), relation(row, ">", twice), relation(row, "<", 2 * row)):
        with pytest.raises(FalseStep):
            section().claim(wrong, "", gaps=gap)


def test_a_bound_without_a_gap_is_searched() -> None:
    step = section().claim(relation(t, "<", e**t), "")
    assert step.evidence is not None
    assert step.evidence.grade is Grade.SEARCHED
    assert re.search(r"^48 draws .*; \d+ draws beyond; ascent from \d+ places$", step.evidence.where)


def test_a_letter_is_defined_once() -> None:
    with pytest.raises(ValueError, match="has a meaning already"):
        section().define(equals(A, call("softmax", 2 * S)))


def test_written_out_for_a_size() -> None:
    formula = equals(total("j", 1, N_K, name("s", "j")), name("s", 1) + name("s", 2))
    step = section().claim(formula, (equals(N_K, 2),))
    assert step.evidence is not None
    assert step.evidence.where == "n_k = 2, all entries"
    for reason in ((equals(N_K, 3),), ()):
        with pytest.raises(FalseStep):
            section().claim(formula, reason)


def example() -> Section:
    made = Section(Glossary(given={"x": "n", "c": ""}, sizes={"n": "n"}, index={"i": "n"}, example=True))
    made.let(("With ", equals("x", nt.matrix([[1, 2]])), " and ", equals("c", 3)))
    return made


def test_an_example_is_decided_in_its_numbers() -> None:
    sum_ = total("i", 1, Name("n"), name("x", "i"))
    step = example().claim(equals(sum_, Name("c"), 3), "")
    assert step.evidence is not None
    assert step.evidence.where == "this example"
    assert example().claim(Relation(sum_ / 7, (("≈", nt.Decimal("0.429")),)), "")
    for wrong in (
        equals(sum_, 4),
        Relation(sum_ / 7, (("≈", nt.Decimal("0.428")),)),
        Relation(sum_, (("≠", node(3)),)),
        Relation(sum_, (("≠", node(5)),)),
        equals(name("x", 3), 0),
    ):
        with pytest.raises(FalseStep):
            example().claim(wrong, "")


def test_numbers_that_do_not_fit_are_refused() -> None:
    made = Section(Glossary(given={"x": "n", "y": "n"}, sizes={"n": "n"}, index={"i": "n"}, example=True))
    made.let((equals("x", nt.matrix([[1, 2]])),))
    with pytest.raises(FalseStep, match="y has no numbers"):
        made.claim(equals(name("x", 1), 1), "")
    made.let((equals("y", nt.matrix([[1, 2, 3]])),))
    with pytest.raises(FalseStep, match="another length"):
        made.claim(equals(name("x", 1), 1), "")


def grouped() -> Section:
    given = {"Q": "g*r n d_k", "K": "g m d_k", "V": "g m d_v"}
    sizes, index = {"g": "g", "r": "r"}, {"t": "g*r", "a": "g", "b": "r", "c": "g"}
    made = Section(Glossary(given, sizes, index, first=0))
    group = nt.Fence("floor", Name("t") / Name("r"))
    made.define(equals(name("O", "t"), call("attention", name("Q", "t"), name("K", group), name("V", group))))
    return made


def member(a: str, r: str, b: str) -> Node:
    return Name(a) * Name(r) + Name(b)


def test_indices_that_count_in_groups() -> None:
    def formula(place: Node, keys: str) -> Relation:
        of_group = call("attention", name("Q", place), name("K", keys), name("V", keys))
        return equals(name("O", place), of_group)

    step = grouped().claim(formula(member("a", "r", "b"), "a"), "")
    assert step.evidence is not None
    assert step.evidence.grade is Grade.PROVED
    wrong = [(member("a", "r", "b"), "c"), (member("b", "r", "a"), "a"), (member("a", "g", "b"), "a"), (Name("t"), "a")]
    for place, keys in wrong:
        with pytest.raises(FalseStep):
            grouped().claim(formula(place, keys), "")
    with pytest.raises(FalseStep, match="not counted from 0"):
        Section(replace(grouped().glossary, first=1)).claim(formula(member("a", "r", "b"), "a"), "")


def drawn() -> Section:
    given = {"x": "n", "w": "n", "u": "n", "σ": ""}
    laws = {"w": law_with("σ"), "u": law_with("σ")}
    made = Section(Glossary(given, {"n": "n"}, {"i": "n"}, laws=laws, labels={"A1": "w", "A2": "u"}))
    made.let((equals("y", total("i", 1, Name("n"), name("x", "i") * name("w", "i"))),))
    return made


def test_moments_under_any_law() -> None:
    y, sigma, norm = Name("y"), Name("σ"), nt.Fence("norm", Name("x"))
    other = total("i", 1, Name("n"), name("x", "i") * name("u", "i"))
    true = [
        equals(mean(y), 0), equals(var(y), sigma**2 * norm**2), equals(call("Cov", y, y), var(y)),
        equals(call("Cov", y, other), 0), equals(mean(y * other), 0),
    ]  # fmt: skip
    for stated in true:
        step = drawn().claim(stated, "")
        assert step.evidence is not None
        assert step.evidence.grade is Grade.PROVED
    wrong = [
        equals(mean(y), sigma), equals(var(y), sigma**2 * norm), equals(var(y), sigma**3), equals(mean(y**3), 0),
        equals(mean(Name("x")), Name("x")), equals(call("Cov", y, y), 0), equals(var(y), 0), equals(var(y**2), 0),
    ]  # fmt: skip
    for stated in wrong:
        with pytest.raises(FalseStep):
            drawn().claim(stated, "")


def test_limits_have_premises() -> None:
    beta, u, infinity = Name("β"), name("u", "i"), Name("∞")
    glossary = Glossary({"u": "n", "β": "", "c": ""}, {"n": "n"}, {"i": "n"}, positive=("u", "β"))
    rest = nt.Big("sum", Name("i"), None, None, e ** (-(beta * u)))
    sharp, flat = relation(beta, "→", infinity), relation(beta, "→", 0)

    def tends(x: Node, to: Node | int, when: Relation, form: Node | None = None) -> Any:
        return Section(glossary).tends(relation(x, "→", to), when, form).evidence

    share = rest / (1 + rest)
    assert tends(rest, 0, sharp).grade is Grade.PROVED
    assert tends(1 - 1 / (1 + rest), 0, sharp, share).grade is Grade.PROVED
    assert tends(rest, Name("n"), flat).grade is Grade.PROVED
    wrong = [
        (rest, 1, sharp, None), (rest, 0, flat, None), (beta, 0, sharp, None), (e ** (beta * u), 0, sharp, None),
        (e ** (-(beta * Name("c"))), 0, sharp, None), (beta * rest, 0, sharp, None), (share, 0, sharp, rest),
        (rest, 0, relation(Name("c"), "→", infinity), None), (beta / beta, 1, flat, None),
        (rest, 0, relation(beta, "→", 1), None),
    ]  # fmt: skip
    for x, to, when, form in wrong:
        with pytest.raises(FalseStep):
            tends(x, to, when, form)
    hidden = Section(glossary)
    hidden.let((equals("R", rest),))
    with pytest.raises(FalseStep, match="depends on"):
        hidden.tends(relation(Name("R"), "→", Name("R")), sharp)


def test_norms_and_logarithms() -> None:
    x, s_j = Name("x"), name("s", "j")
    made = Section(Glossary({"x": "n", "s": "n", "b": ""}, {"n": "n"}, {"j": "n"}))
    rows = total("j", 1, Name("n"), e**s_j)
    for stated in (equals(nt.Fence("norm", -x), nt.Fence("norm", x)), equals(call("lse", s), call("log", rows))):
        step = made.claim(stated, "")
        assert step.evidence is not None
        assert step.evidence.grade is Grade.PROVED
    for stated in (
        equals(nt.Fence("norm", 2 * x), nt.Fence("norm", x)),
        equals(call("lse", s), call("log", 2 * rows)),
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
X_L, X_0, NEXT = name("X", "L"), name("X", 0), equals(name("X", name("l") + 1), name("A", "l") * name("X", "l"))
OVER_M = (nt.Big("sum", relation("j", sign, "M"), None, None, name("s", "j")) for sign in "∈∉")
EVERY = total("j", 1, "N", name("s", "j"))


def stepwise(**more: Any) -> Section:
    made = Section(STEPS.also(**more))
    found = defined(made.glossary, NEXT)
    assert found is not None
    made.glossary = found
    return made


TOGETHER: list[tuple[Relation, bool]] = [
    (equals(name("X", 1), name("A", 1) * X_0), True),
    (equals(name("X", 2), name("A", 1) * name("X", 1)), False),
    (equals(X_L, X_0 + total("l", 0, name("L") - 1, name("A", "l") * name("X", "l") - name("X", "l"))), True),
    (equals(X_L, X_0 + total("l", 0, name("L") - 1, name("A", "l") * X_0 - X_0)), False),
    (equals(nt.Sum(tuple(OVER_M)), EVERY), True),
    (equals(nt.Big("sum", relation("j", "∈", "M"), None, None, name("s", "j")), EVERY), False),
    (relation(nt.Big("max", relation("j", "∈", "M"), None, None, name("s", "j")), "≤", call("max", s)), True),
    (equals(call("last", name("B", 1), Name("…"), name("B", "h")), name("B", "h")), True),
    (equals(call("first", name("B", 1), Name("…"), name("B", "h")), name("B", "h")), False),
]


@pytest.mark.parametrize(("formula", "holds"), TOGETHER)
def test_steps_sets_and_dots(formula: Relation, holds: bool) -> None:
    made = stepwise(sizes={"N": "m+n"}, families={"B": _block})
    if holds:
        assert made.claim(formula, "").evidence is not None
    else:
        with pytest.raises(FalseStep):
            made.claim(formula, "")


def _block(reader: Any, parts: tuple[Node, ...]) -> Any:
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
    letters = letters_of(
        f"new | x m+k+r, δ m+k+r m+k+r{', e' * typed.startswith('e')} | index i m+k+r, j m+k+r, l m+k+r | sizes n m+k+r"
        " | sets M m, N m+k | where c_i = Σ_{j ≤ i} x_j; u_j = e^{x_j}",
        {},
    )
    try:
        answer = judged(RelationQuestion(formula(typed), letters)).grade.value  # type: ignore[arg-type]
    except FalseStep as reason:
        answer = str(reason)
    assert found in answer


def test_ranks_and_determinants() -> None:
    given = Glossary({"Q": "n d", "K": "n d", "x": "", "y": ""}, {"n": "n", "d": "d"}, exact=True)
    made = Section(given)
    low = relation(call("rank", Q * nt.Transposed(K)), "≤", "d")
    assert made.claim(low, "").evidence is not None
    with pytest.raises(FalseStep):
        made.claim(relation(call("rank", Q * nt.Transposed(K)), "≤", 1), "")
    x, y = Name("x"), Name("y")
    square = nt.matrix([[x, 1], [1, y]])
    assert made.claim(equals(call("det", square), x * y - 1), "").evidence is not None
    with pytest.raises(FalseStep):
        made.claim(equals(call("det", square), x * y + 1), "")


# -- Results of rounding, as they are printed and read -----------------------------------------------------------------
LETTERS = FORMAT_LETTERS.also({"y": ""}, formats=("float16", "bfloat16"))
MODEL = LETTERS.also({"w": ""}, formats=(), families={"fl": fl}).where("u = 1/(2 + e^w)")
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


def relation_of(claim: str) -> Relation:
    read = formula(claim)
    assert isinstance(read, Relation)
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
    said = running_text("$fl(10^9) = ∞$ in float16, and $fl(10^9) = ∞$", FORMAT_LETTERS.roles)
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
        with precision(bits):
            found.append([_numbers_near_format_ends(Format(name)) for name in ("float32", "float16", "bfloat16")])
    assert found[0] == found[1]
