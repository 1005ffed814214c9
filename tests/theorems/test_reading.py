"""What is printed of a theorem is read, decided, and refused where it is not so; the theorems on rounding."""

import re
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from math import exp, log, log1p
from typing import Any

import flint
import numpy as np
import pytest

from symattn import Grade, functional, prove, proving, theorem, theorems
from symattn import printing as pr
from symattn.arrays.formats import Format
from symattn.proof.coq.coq_judges import CoqJudgement
from symattn.proof.coq.inferences import lemmas
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.judging import recorded
from symattn.theorems.coq import _why_not
from symattn.theorems.reading import Statement
from symattn.theorems.runner import decide_one
from symattn.theorems.texts import theorems as read_theorems
from tests.formats import NARROW
from tests.lanes import one_in

S = pr.name("s")
LETTERS = Glossary(given={"s": "n", "t": "n", "a": ""}, index={"i": "n", "j": "n"})
E = pr.name("e")


def stated(
    *says: str | pr.Node, false: pr.Text = (), hypotheses: tuple[pr.Text, ...] = (), **more: Any
) -> proving.Theorem:
    """A theorem that is true whatever it says."""
    make = theorem(
        "any",
        "softmax",
        says,
        arrays={"s": "n m"},
        false=lambda s: (functional.softmax(s), s),
        false_says=false,
        hypotheses=hypotheses,
        letters=LETTERS.also(**more),
    )
    return make(lambda s: (functional.softmax(s), functional.softmax(s)))


def decided(of: proving.Theorem) -> Any:
    """The record of a theorem that is proved by nobody before."""
    (found,) = prove(of, cached=False).record["theorems"]
    return found


def wrong(of: proving.Theorem) -> str:
    """What its print says that is not so."""
    where: str = decided(of)["where"]
    return where if where.startswith("what is printed") else ""


def grades(of: proving.Theorem) -> list[Grade | None]:
    found = decided(of)
    assert not found["where"].startswith("what is printed"), found
    return [claim.get("grade") for claim in found["read"]]


SHIFT = pr.equals(pr.call("softmax", S + 2 * pr.name("1", bold=True)), pr.call("softmax", S))
WRONG = pr.equals(pr.call("softmax", 2 * S), pr.call("softmax", S))


def test_what_holds_keeps_the_grade_and_what_is_false_loses_it() -> None:
    assert decided(stated(SHIFT, false=(WRONG,)))["grade"] is Grade.PROVED
    assert decided(stated(WRONG))["grade"] is Grade.UNDECIDED
    assert decided(stated(SHIFT, false=(SHIFT,)))["grade"] is Grade.UNDECIDED


@pytest.mark.deep
@pytest.mark.parametrize(
    ("says", "holds"),
    [("x_i² + 1 > 0", True), ("0 < x_i² + 1 ≥ 1/2", True), ("x_i² > 0", False), ("|x_i − x_j| > −1/9 + x_j", False)],
)
def test_a_strict_bound_for_some_indices_need_not_hold_for_others(says: str, holds: bool) -> None:
    letters = proving.letters_of("new | x 3 | index i 3, j 3", {})
    of = replace(stated(pr.formula(says), " for ", pr.formula("i < j")), letters=letters)
    if holds:
        assert grades(of) == [Grade.SEARCHED]
    else:
        assert "false at" in wrong(of)


def test_what_cannot_be_read_is_words() -> None:
    first, second = decided(stated(SHIFT, " and ", pr.equals(pr.name("y"), S)))["read"]
    assert first["grade"] is Grade.PROVED
    assert second["grade"] is None
    assert "the letter y has no meaning" in second["where"]


def test_definitions_and_conditions_are_no_claims() -> None:
    y = pr.call("softmax", S)
    assert grades(stated(pr.equals(pr.call("lse", pr.name("y")), pr.call("lse", y)), " with ", pr.equals("y", y))) == [
        Grade.PROVED
    ]
    once = pr.equals(E ** pr.name("s", "i"), E ** pr.name("s", "i") * pr.name("a"))
    assert grades(stated(once, " for ", pr.equals("a", 1))) == [Grade.PROVED]
    assert grades(stated("for ", pr.equals("a", 1), ": ", once)) == [Grade.PROVED]
    f = pr.equals(pr.call("f", "x"), 2 * pr.name("x"))
    assert grades(stated("for ", f, ": ", pr.equals(pr.call("f", S), S + S))) == [Grade.PROVED]


def test_numbers_with_commas_between_are_a_vector() -> None:
    a = pr.name("a")
    weights = pr.call("softmax", pr.Fence("round", pr.commas(a, -a)))
    assert grades(
        stated(
            pr.equals(pr.call("max", weights), pr.call("max", pr.call("softmax", pr.Fence("round", pr.commas(-a, a)))))
        )
    ) == [Grade.SEARCHED]
    assert grades(stated(pr.equals(weights, pr.call("softmax", pr.Fence("round", pr.commas(2 * a, 0)))))) == [
        Grade.PROVED
    ]
    assert wrong(stated(pr.equals(weights, pr.Fence("round", pr.commas(a, -a)))))


STEPS = """
doubled: A step that is {0}
$‖softmax(s)‖ ≤ 1$
false: $‖softmax(s)‖ ≤ 1/2$
step: $softmax(s + a 𝟏) = {1} softmax(s)$, and
step new | x m | sizes m | index i m | where y = softmax(x): of other letters $Σ_{{i=1}}^m y_i = 1$.
rule: So it is.
"""


@pytest.mark.deep
@pytest.mark.parametrize(("word", "factor", "grade"), [("true", "", Grade.ARGUED), ("false", "2", Grade.REFUTED)])
def test_a_statement_that_follows_is_worth_what_its_steps_are(word: str, factor: str, grade: Grade) -> None:
    (of,) = read_theorems("softmax", STEPS.format(word, factor), {"": LETTERS})
    found = decided(of)
    assert found["grade"] is grade
    assert found["false_variant"]["grade"] is Grade.REFUTED
    if grade is Grade.ARGUED:
        assert "Σ_{i=1}^{m} yᵢ = 1. So it is." in found["how"][-1]


MEANS = """
mean: A mean under a law of which the first two moments are assumed
{0}
letters: | q d | laws q σ | index i d | sizes d
false: {1}
"""


@pytest.mark.parametrize(
    ("says", "false", "grade", "of_false"),
    [
        ("$E[q_i²] = σ²$", "$E[q_i²] = 2 σ²$", Grade.PROVED, Grade.REFUTED),
        ("$E[q_i²] = σ²$", "$Var(q·q) = d σ⁴$", Grade.PROVED, Grade.REFUTED),
        ("$E[q_i²] = σ²$", "$E[q_i⁴] = σ⁴$", Grade.UNDECIDED, Grade.UNDECIDED),  # so for ±σ, not for every law
        ("$E[q_i⁴] = σ⁴$", "$E[q_i²] = 2 σ²$", Grade.UNDECIDED, Grade.REFUTED),
        ("$E[q_i⁴] = 3 σ⁴$", "$E[q_i²] = 2 σ²$", Grade.REFUTED, Grade.REFUTED),
        ("not always $E[q_i²] = 2 σ²$", "$E[q_i²] = 2 σ²$", Grade.PROVED, Grade.REFUTED),
        ("not always $E[q_i⁴] = σ⁴$", "$E[q_i²] = 2 σ²$", Grade.UNDECIDED, Grade.REFUTED),
    ],
)
def test_one_law_refutes_a_mean_and_shows_none(says: str, false: str, grade: Grade, of_false: Grade) -> None:
    (of,) = read_theorems("softmax", MEANS.format(says, false), {"": Glossary()})
    found = decided(of)
    assert (found["grade"], found["false_variant"]["grade"]) == (grade, of_false)


@pytest.mark.parametrize(
    ("says", "grade"),
    [
        ("$a^300 ≥ 0$", Grade.PROVED),
        ("$2^300 ≥ a^0$", Grade.SEARCHED),
        ("$2^300 ≥ 3^100$", Grade.CHECKED),
        ("$max(p) ≥ 10^{−200000}$", Grade.UNDECIDED),
    ],
)
def test_large_exponents_are_read_or_refused(says: str, grade: Grade) -> None:
    false = says.replace("≥", "<")
    (of,) = read_theorems(
        "softmax", f"power: A power\n{says}\nletters: | s n, a | where p = softmax(s)\nfalse: {false}", {"": Glossary()}
    )
    assert decided(of)["grade"] is grade


def test_a_condition_on_indices_is_a_mask() -> None:
    equal = pr.equals(pr.name("s", "i"), pr.name("s", "j"))
    assert grades(stated(equal, " for ", pr.relation(pr.name("i"), "=", pr.name("j")))) == [Grade.PROVED]
    assert wrong(stated(equal, " for ", pr.relation(pr.name("i"), "≤", pr.name("j"))))


@pytest.mark.deep
def test_a_condition_on_a_size_and_an_index_is_a_mask() -> None:
    letters = proving.letters_of("new | x 3 n | index i 3, j n | sizes n", {})
    for condition in ("n = j", "n > j", "n ≥ j"):
        of = replace(stated(pr.formula("x_ij + x_ij = 2 x_ij"), " for ", pr.formula(condition)), letters=letters)
        assert set(grades(of)) <= {Grade.PROVED, Grade.CHECKED}


def test_hypotheses_are_assumed_and_must_be_met() -> None:
    positive = pr.relation(pr.name("a"), ">", 0)
    claim = pr.relation(pr.name("a"), "≥", 0)
    assert grades(stated(claim, hypotheses=((positive,),))) == [Grade.PROVED]
    assert wrong(stated(claim))
    assert wrong(stated(SHIFT, hypotheses=((pr.relation(S, "=", 2 * S),),)))


@pytest.mark.deep
@pytest.mark.parametrize("name", ["softmax-tv-perturbation", "softmax-limits"])
def test_it_does_not_matter_whether_a_theorem_is_read_or_decided_first(name: str) -> None:
    """Hypotheses, letters and all that was asked on the way are those of a theorem that nobody has decided."""
    of = next(t for t in theorems.of_topic("softmax") if t.name == name)
    fresh, before = (replace(of, method=replace(of.method)) for _ in range(2))
    before.method.refute()
    before.method.decide()
    found = []
    for one in (fresh, before, before):
        with recorded() as asked:
            record = decided(one)
        kept = {key: record[key] for key in ("grade", "where", "read", "hypotheses")}
        found.append((kept, {pr.text(question.relation) for question in asked}))
    assert found[0][0]["read"]
    assert found[0][1]
    assert found[0] == found[1] == found[2]


def test_signs_that_are_declared_are_printed() -> None:
    assert decided(stated(pr.relation(pr.name("a"), "≥", 0), positive=("a",)))["hypotheses"] == ["a > 0"]


@pytest.mark.deep
def test_a_weaker_bound_is_refused_where_the_bound_is_sharp() -> None:
    bound, weaker = pr.call("max", S) + pr.call("log", "n"), pr.call("max", S) + pr.call("log", "n") + 1
    assert grades(stated(pr.relation(pr.call("lse", S), "≤", bound), sharp="attained")) == [Grade.SEARCHED]
    assert "nothing comes near" in wrong(stated(pr.relation(pr.call("lse", S), "≤", weaker), sharp="attained"))


OF_A = Glossary({"a": "", "s": "n"}, index={"j": "n"}).where("p = softmax(s)")


def printed(says: str, *hypotheses: str) -> proving.Theorem:
    """A theorem whose code is true whatever it says of a and s."""
    make = theorem(
        "any",
        "softmax",
        says,
        arrays={"a": ""},
        false=lambda a: (a + 1, a),
        false_says="$a + 1 = a$",
        hypotheses=hypotheses,
        letters=OF_A,
    )
    return make(lambda a: (a, a))


@pytest.mark.parametrize(
    "says",
    [
        "$Σ_{j=1}^{n} p_j ≥ 1 + e^{−9000}$",
        "$Σ_{j=1}^{n} p_j ≤ 1 − e^{−90000}$",
        "$tanh(a) = tanh(a) + e^{−9000}$",
        "$tanh(a) ≤ tanh(a) − e^{−e^{12}}$",
        "$max(a, −a)/a = a/max(a, −a) + e^{−9000}$",
        "$1/a² ≥ a$",
        "$(a − 17/13)² > 0$",
        "$(n − 13)² > 0$",
        "$p_1 = 1$ for $n ≠ 1$",
        "$p_1 = 1/(1 + e^{−(s_1 − s_2)})$ for $n ≥ 2$",
        "$Σ_{j=1}^{n} p_j² ≥ 1/3$ for $n ≥ 3$",
    ],
)
def test_what_fails_by_little_or_at_one_place_is_refused(says: str) -> None:
    assert wrong(printed(says)).startswith("what is printed is not so")


@pytest.mark.parametrize(
    "says",
    [
        "$1 + e^{−e^{14}} = 1$",
        "$sigmoid(e^{14 + a²}) = 1$",
        "$tanh(e^{20} a) a = max(a, −a)$",
        "$e^{e^{−e^{11}}} = 1 + e^{−e^{11}}$",
        "$log(1 + e^{e^{14}}) = e^{14}$",
    ],
)
def test_an_equation_is_open_where_a_term_is_too_small_to_be_seen(says: str) -> None:
    assert wrong(printed(says)).startswith("what is printed is not shown")


@pytest.mark.deep
@pytest.mark.parametrize("c", [400, 40000])
def test_an_equation_of_huge_numbers_is_checked_where_they_are_ordinary(c: int) -> None:
    says = f"$tanh({c} a) (e^{{{c} a}} + e^{{−{c} a}}) = e^{{{c} a}} − e^{{−{c} a}}$"
    assert bool(wrong(printed(says))) == (c > 400)


@pytest.mark.deep
@pytest.mark.parametrize("says", ["$max(p) < 1$ for $n > 1$", "$Σ_{j=1}^{n} p_j² < 1$ for $n > 1$"])
def test_a_condition_on_a_size_sets_none(says: str) -> None:
    assert grades(printed(says)) == [Grade.SEARCHED]
    claim, _, condition = says.partition(" for ")
    assert grades(printed(claim, condition)) == [Grade.SEARCHED]


def test_a_size_that_is_set_is_said_beside_other_conditions() -> None:
    (claim,) = decided(printed("$a Σ_{j=1}^{n} s_j = a s_1 + a s_2$ for $n = 2$ and $a > 0$"))["read"]
    assert (claim["grade"], claim["where"]) == (Grade.PROVED, "n = 2, all entries")


@pytest.mark.parametrize("says", ["$1/√(a²) = 1/max(a, −a)$", "$1/a² > 0$", "$a²/a² ≤ 1$", "$max(a, −a)/a ≤ 1$"])
def test_numbers_at_which_a_side_is_undefined_refute_nothing(says: str) -> None:
    (claim,) = decided(printed(says))["read"]
    assert "where both sides are defined" in claim["where"]


@pytest.mark.deep
@pytest.mark.parametrize("says", ["$tanh(e^a) < 1$", "$1 > sigmoid(10000 a)$"])
def test_numbers_at_which_a_strict_bound_is_too_near_to_tell_refute_nothing(says: str) -> None:
    assert grades(printed(says)) == [Grade.SEARCHED]


@pytest.mark.long
@pytest.mark.deep
@pytest.mark.parametrize("topic", one_in(4, [*theorems.TOPICS]))
def test_every_print_of_the_catalogue_holds(topic: str) -> None:
    for found in prove(topic, cached=False).record["theorems"]:
        assert not found["where"].startswith("what is printed"), found


def test_a_print_that_is_changed_is_refused() -> None:
    each = next(t for t in theorems.of_topic("softmax") if t.name == "softmax-shift")
    (first,) = each.says
    assert isinstance(first, pr.Relation)
    assert wrong(replace(each, says=(pr.Relation(first.first, (("=", pr.node(2) * S),)),)))
    denied = decided(replace(each, says=(pr.Relation(first.first, (("≠", first.rest[0][1]),)),)))
    assert denied["read"][0]["grade"] is None


@pytest.mark.deep
def test_words_stand_below_the_box_and_conditions_of_what_was_read_in_it() -> None:
    few, many = "each row once transposed", "so the shift is repeated g times in every row, and each head is transposed"
    for words in ((SHIFT, " ", few), (SHIFT, ", ", many), (few, " ", SHIFT)):
        box, below, *others = prove(stated(*words, false=(WRONG,)), cached=False).blocks
        assert isinstance(box, pr.Result)
        assert isinstance(below, pr.Paragraph)
        assert (box.formulas, box.text) == ((SHIFT,), ())
        assert "transposed" in pr.plain_text(below.text)
        told = " ".join(pr.plain_text(b.text) for b in others if isinstance(b, pr.Paragraph))
        assert "What stands in the box was read" in told
        assert "The statement was read" not in told
    scaled = pr.relation(pr.call("lse", S), "≤", pr.call("max", S) + pr.name("a"))
    condition = pr.relation(pr.name("a"), "≥", pr.call("log", pr.name("n")))
    one, other = stated(), stated("for ", condition, ": ", scaled)
    assert isinstance(one.letters, Glossary)
    statement = Statement(one.letters, one.hypotheses, one.says, one.false_says)
    (claim,) = statement.reading(other.says, other.false_says).claims
    assert claim.shown is not None
    assert pr.text(claim.shown) == f"{pr.text(scaled)}  for {pr.text(condition)}"


def test_coq_grades_nothing_of_which_it_sees_zero_alone() -> None:
    (masked,) = (t for t in theorems.of_topic("masks") if t.name == "fully-masked-row")
    found = decide_one(masked, explain=True)
    assert sum(x.empty for x in lemmas(masked.name, found.certificates)) == 2
    asked = lemmas(masked.name, found.certificates)
    judgement = CoqJudgement(accepted=frozenset(x.name for x in asked))
    assert "0 = 0" in _why_not(found, asked, asked, judgement)


@pytest.mark.deep
@pytest.mark.parametrize("name", ["one-hot-saturation", "softmax-log-ratio", "softcap", "scale-before-norm-cancels"])
def test_a_sign_is_a_hypothesis_once(name: str) -> None:
    theorem = theorems.catalogue()[name]
    said = [pr.plain_text(x) for x in (*theorem.hypotheses, *decide_one(theorem).finding.hypotheses)]
    pattern = r"(?:all entries of (\w+) are|(?:^|, |where )(\w+) [>≥] 0)"
    letters = [a or b for words in said for a, b in re.findall(pattern, words)]
    assert letters
    assert len(letters) == len(set(letters)), said


# -- the statements in real formats ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_dot_products_in_any_order_are_within_the_bound(name: str):
    f = Format(name)
    rng = np.random.default_rng(0)
    gamma = 4 * f.u / (1 - 4 * f.u)
    beyond_the_false_one = False
    for _ in range(20):
        q, k = (f.cast(rng.normal(size=4).astype(f.wider)) for _ in range(2))
        exact = [Fraction(float(a)) * Fraction(float(b)) for a, b in zip(q, k, strict=True)]
        products = q * k
        for order in permutations(range(4)):
            a, b, c, d = (products[i] for i in order)
            for total in (((a + b) + c) + d, (a + b) + (c + d)):
                error = abs(Fraction(float(total)) - sum(exact))
                assert error <= gamma * sum(map(abs, exact))
                beyond_the_false_one |= error > gamma * abs(sum(exact))
    assert beyond_the_false_one


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_every_exponential_is_on_the_side_of_the_threshold_that_its_argument_is_on(name: str):
    f = Format(name)
    # Midway from the largest number to the power of two beyond it, and half of the smallest number.
    high, low = (2 - f.u) * f.power_beyond / 2, f.smallest / 2
    for x in f.numbers().astype(np.float64)[::17]:
        y = flint.arb(float(x)).exp()
        assert bool(y >= _ball(high)) == (x >= log(high))
        assert bool(y <= _ball(low)) == (x <= log(low))


def _ball(x: Fraction) -> flint.arb:
    return flint.arb(flint.fmpq(x.numerator, x.denominator))


@pytest.mark.parametrize("keys", [2, 3, 100])
def test_weights_saturate_from_the_gap_on_and_not_much_before(keys: int):
    gap = 25 * log(2) + log(keys - 1)
    assert np.float32(1 / (1 + (keys - 1) * exp(-gap * 1.0001))) == 1
    assert np.float32(1 / (1 + (keys - 1) * exp(-gap * 0.95))) < 1


@pytest.mark.parametrize(("name", "kappa"), [("float32", 4), ("float16", 2)])
def test_computed_weights_are_within_the_bound(name: str, kappa: int):
    f = Format(name)
    u = float(f.u)
    rng = np.random.default_rng(1)
    for n in (2, 5, 30):
        s = f.cast((rng.normal(size=n) * 2).astype(np.float32))
        e = np.exp(s - s.max())
        total = e[0]
        for x in e[1:]:
            total = total + x
        got = (e / total).astype(np.float64)
        x = s.astype(np.float64) - float(s.max())
        true = np.exp(x) / np.exp(x).sum()
        limit = (abs(x) + abs(x).max()) * u - (n + 2 * kappa) * log1p(-u)
        assert (abs(np.log(got / true)) <= limit + 1e-12).all()


@pytest.mark.parametrize("seed", range(30))
def test_outputs_move_no_further_than_said(seed: int):
    rng = np.random.default_rng(seed)
    n, eta = int(rng.integers(2, 6)), float(rng.uniform(0.01, 3))
    s, v = rng.normal(size=n) * 2, rng.normal(size=n)
    e = eta * rng.choice([-1.0, 1.0], size=n)
    a, b = np.exp(s), np.exp(s + e)
    moved = abs(b @ v / b.sum() - a @ v / a.sum())
    assert moved <= np.tanh(eta / 2) * (v.max() - v.min()) + 1e-12


@pytest.mark.parametrize("name", NARROW)
def test_sums_products_and_maxima_commute(name: str):
    """The hypothesis of merge-rounding-commutes, on every pair of an 8-bit format and on many of a wider one."""
    every = Format(name).numbers()
    some = every if every.size <= 256 else every[:: every.size // 300]
    a, b = some[:, None], some[None, :]
    with np.errstate(all="ignore"):
        for x, y in ((a + b, b + a), (a * b, b * a), (np.maximum(a, b), np.maximum(b, a))):
            assert np.array_equal(x.astype(np.float64), y.astype(np.float64), equal_nan=True)


@pytest.mark.deep
@pytest.mark.parametrize("name", NARROW)
def test_scaling_by_a_power_of_two_commutes_with_rounding(name: str):
    """power-of-two-scale-exact, on every pair of an 8-bit format and on many of a wider one."""
    f = Format(name)
    every = f.numbers()
    x, y = every[:, None], every[None, :: 1 + every.size // 257]
    for k in (1, 3):
        c, least = f.cast(2.0**-k), float(f.smallest_normal) * 2**k
        with np.errstate(all="ignore"):
            normal = [abs(z.astype(np.float64)) >= least for z in (x, y)]
            for scaled, result in (((x * c) * y, x * y), (x * (y * c), x * y), (x * c + y * c, x + y)):
                size = abs(result.astype(np.float64))
                told = normal[0] & normal[1] & (size >= least) & np.isfinite(size)
                assert told.sum() > 100
                assert (scaled == result * c)[told].all()


def test_the_mask_constant_of_float16_is_infinite_beside_every_number_from_sixteen_on():
    every = Format("float16").numbers()
    with np.errstate(over="ignore"):
        assert (np.isneginf(every - np.float16(65504)) == (every <= -16)).all()
