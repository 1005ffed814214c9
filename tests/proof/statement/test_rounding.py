"""Results of rounding, as they are printed and read."""

from fractions import Fraction

import numpy as np
import pytest

from symattn.arrays.ball import precision
from symattn.arrays.formats import FORMATS, Format
from symattn.document.evidence import Grade
from symattn.document.formulas import formula, running_text
from symattn.document.notation import Relation
from symattn.proof.relations.comparing import FalseStep
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.judging import RelationQuestion, judged
from symattn.proof.relations.printed_roundings import _near, fl
from symattn.proof.relations.sentences import claims
from symattn.theorems.reading import Statement
from symattn.theorems.rounding import FORMAT_LETTERS

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
    return RelationQuestion(relation(claim), LETTERS, where=(relation(where),) if where else (), only=bool(where))


def relation(claim: str) -> Relation:
    read = formula(claim)
    assert isinstance(read, Relation)
    return read


@pytest.mark.parametrize(("claim", "where"), TRUE)
def test_what_is_so_in_every_format(claim: str, where: str) -> None:
    found = judged(asked(claim, where))
    assert found.grade is Grade.CHECKED
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
        relation(f"log((2 − u) 2^{{e_max}}) ≈ {digits}"), FORMAT_LETTERS.also(formats=("float16",))
    )
    if right:
        assert judged(claim).grade is Grade.CHECKED
    else:
        with pytest.raises(FalseStep):
            judged(claim)


def test_digits_of_a_number_of_no_format_are_proved() -> None:
    assert judged(RelationQuestion(relation("log(2) ≈ 0.6931"), Glossary())).grade is Grade.PROVED


def test_a_claim_in_a_format_is_read_there() -> None:
    said = running_text("$fl(10^9) = ∞$ in float16, and $fl(10^9) = ∞$", FORMAT_LETTERS.roles)
    within, everywhere = claims(said)
    statement = Statement(FORMAT_LETTERS, (), said, ())
    assert statement.decided(within).evidence
    with pytest.raises(FalseStep):
        statement.decided(everywhere)


def test_the_model_of_rounding_errs_as_much_as_it_may() -> None:
    product = "|fl(x y x) − x y x| ≤ ({}) |x y x|"  # of three numbers, so of two operations
    assert judged(RelationQuestion(relation(product.format("2 u + u²")), MODEL)).grade is Grade.CHECKED
    with pytest.raises(FalseStep):
        judged(RelationQuestion(relation(product.format("2 u")), MODEL))


@pytest.mark.parametrize("format_name", FORMATS)
def test_nearest_is_what_the_formats_do(format_name: str) -> None:
    f, dice = Format(format_name), np.random.default_rng(0)
    for x in np.concatenate([dice.normal(size=50), 10.0 ** dice.uniform(-9, 5, 50), [0.0, float(f.smallest) / 2]]):
        c = float(f.rounded(x))
        assert f.nearest(Fraction(float(x))) == (np.inf if np.isnan(c) else c)


def test_numbers_next_to_logarithms_do_not_depend_on_who_asked_first() -> None:
    found = []
    for bits in (53, 200):
        _near.cache_clear()
        with precision(bits):
            found.append([_near(Format(name)) for name in ("float32", "float16", "bfloat16")])
    assert found[0] == found[1]
